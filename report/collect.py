"""Reads run folders and folders of scores: everything the report is made from, checked and free of private names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..config import RunConfig
from ..errors import ConfigError, EvalError
from ..eval.score import Score, read_scores
from .schema import UNTRAINED

ABSOLUTE_PATH = re.compile(r"(?<![\w.:/~-])(?:~|[A-Za-z]:)?(?:[/\\][\w.@+-](?:[\w.@+ -]*[\w.@+-])?)+[/\\]?")
"""A path from the root, a home or a drive; the look-behind spares URLs, `and/or` and relative paths."""


@dataclass(frozen=True)
class RunRecord:
    """One run folder: its resolved config, where it was made, and its step metrics in order."""

    config: RunConfig
    recipe: dict[str, Any]
    versions: dict[str, str]
    commit: str | None
    dirty: bool | None
    hardware: dict[str, Any]
    steps: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Evidence:
    runs: tuple[RunRecord, ...]
    scores: tuple[Score, ...]
    cautions: tuple[str, ...]


def collect(folders: Iterable[Path]) -> Evidence:
    """Read every folder: a run (run.json, metrics.jsonl, eval/) or a folder of score files.

    Raises ConfigError for a folder that is neither, or that holds a run.json that cannot be read, and EvalError when
    the scores come from different base models.
    """
    runs: list[RunRecord] = []
    scores: list[Score] = []
    for folder in folders:
        is_run = (folder / "run.json").is_file()
        found = _scores_of(folder)
        if not is_run and not found:
            raise ConfigError(
                f"{folder}: neither a run folder (no run.json) nor a folder of scores (no *.jsonl there or in eval/). "
                "Give the folders that `ropewalk train` and `ropewalk eval` wrote."
            )
        if is_run:
            runs.append(read_run_record(folder))
        scores += found
    _refuse_repeated_runs(runs)
    _refuse_two_bases(scores)
    scores, cautions = _once(scores)
    return Evidence(tuple(runs), tuple(scores), (*_unmeasured(runs, scores), *cautions, *_disagreements(runs)))


def read_run_record(folder: Path) -> RunRecord:
    """The run in `folder`; ConfigError names the file and the fault."""
    path = folder / "run.json"
    try:
        record = json.loads(path.read_text())
        config = RunConfig.model_validate(record["config"])
    except (OSError, ValueError, KeyError, ValidationError) as error:
        raise ConfigError(f"{path}: not a run record this version can read ({error})") from error
    git = record.get("git") or {}
    return RunRecord(
        config=config,
        recipe=without_paths(record["config"]),
        versions=dict(record.get("versions") or {}),
        commit=git.get("commit"),
        dirty=git.get("dirty"),
        hardware=without_paths(record.get("hardware") or {}),
        steps=tuple(read_metrics(folder / "metrics.jsonl")),
    )


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The step records of `metrics.jsonl` by step; none when there is no file.

    A last line cut short by a killed process is left out, any other unreadable line is a ConfigError.
    """
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    records: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            records[int(record["step"])] = record
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                break
            raise ConfigError(f"{path}:{number}: not a step record ({error}). Remove the line.") from error
    return [records[step] for step in sorted(records)]


def without_paths(value: Any) -> Any:
    """The same JSON value with each absolute path cut to its last name: a report must not tell where it was made."""
    if isinstance(value, str):
        return ABSOLUTE_PATH.sub(lambda match: re.split(r"[/\\]", match[0].rstrip("/\\"))[-1], value)
    if isinstance(value, Mapping):
        return {key: without_paths(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_paths(item) for item in value]
    return value


def _scores_of(folder: Path) -> list[Score]:
    """Scores below `folder`/eval, or in `folder` itself when it is a folder of scores and no run."""
    places = [folder / "eval"] if (folder / "run.json").exists() else [folder / "eval", folder]
    return [score for place in places if any(place.glob("*.jsonl")) for score in read_scores(place)]


def _refuse_repeated_runs(runs: list[RunRecord]) -> None:
    names = [run.config.name for run in runs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"two run folders have the name {', '.join(twice)}; arms of a report need different names")


def _refuse_two_bases(scores: list[Score]) -> None:
    """Untrained scores are shared by all arms of a method, so they must be those of one base model."""
    bases = {score.weights_hash for score in scores if score.arm == UNTRAINED}
    if len(bases) > 1:
        raise EvalError(
            f"the untrained scores come from {len(bases)} different base models (weights {', '.join(sorted(bases))}). "
            "Write one report for each base model."
        )


def _once(scores: list[Score]) -> tuple[list[Score], list[str]]:
    """Each measurement once: of two of the same, the one with more trials, or the later; says so when they differ.

    Passkey trials of different seeds are different measurements; the seed of a bootstrap is not.
    """
    kept: dict[tuple[Any, ...], Score] = {}
    differing = 0
    for score in scores:
        named = (score.task, score.protocol, score.metric, score.method, score.arm, score.trained_steps)
        what = tuple(score.extra.get(key) for key in ("gap", "first", "last", "stride"))
        key = (*named, score.length, score.depth, what, score.seed if score.task == "passkey" else None)
        before = kept.get(key)
        differing += before is not None and abs(before.value - score.value) > 1e-4 * abs(before.value)
        if before is None or score.n >= before.n:
            kept[key] = score
    told = (
        f"{differing} measurements were made twice with different results; of each, the one with more trials is shown."
    )
    return list(kept.values()), [told] if differing else []


def _unmeasured(runs: list[RunRecord], scores: list[Score]) -> list[str]:
    arms = {score.arm for score in scores}
    return [
        f"The run {run.config.name} has no scores, so nothing here says what it gained; `ropewalk eval` with its "
        "folder makes them."
        for run in runs
        if run.config.name not in arms
    ]


def _disagreements(runs: list[RunRecord]) -> list[str]:
    """What the reader of a comparison must know: arms that were not made under the same conditions."""
    told = []
    if len({run.commit for run in runs}) > 1:
        told.append("The runs were made at different commits of the code; see the table of versions.")
    if any(run.dirty for run in runs):
        told.append("Some runs were made from a working tree with changes that are in no commit.")
    if len({json.dumps(run.versions, sort_keys=True) for run in runs}) > 1:
        told.append("The runs were made with different library versions; see the table of versions.")
    if len({json.dumps(run.hardware, sort_keys=True) for run in runs}) > 1:
        told.append("The runs were made on different hardware: compare tokens, not times.")
    if len({(run.config.rope.original_window, run.config.rope.target_window) for run in runs}) > 1:
        told.append("The runs ask for different windows; each is judged by its own.")
    return told
