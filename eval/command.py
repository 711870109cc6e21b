"""`ropewalk eval`: words of the command line -> plan -> scores -> a table."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from ..config import EvalSection, Source
from ..data.builtin import BUILTIN
from ..errors import EvalError
from ..recipe_file import resolve_path
from ..run_folder import RUN_FILE, read_config
from .load import find_weights
from .plan import eval_plan
from .progress import live_progress
from .run import evaluate
from .score import THRESHOLDS, Score, k_max


def run_command(
    target: str,
    methods: str | None,
    tasks: str | None,
    lengths: str | None,
    steps: str | None,
    trials: int | None,
    text: str | None,
    out: Path | None,
    cache: Path,
) -> list[Score]:
    """Evaluate and print; scores go to `out`, by default `eval/` of the run or `eval-NAME` here. Raises EvalError."""
    chosen: list[int] | Literal["all"] | None = "all" if steps == "all" else _numbers("--steps", steps)
    run = _run_of(target, chosen)
    section = read_config(run).eval if run else EvalSection()
    plan = eval_plan(
        section, [word.strip() for word in tasks.split(",")] if tasks else None, _numbers("--lengths", lengths), trials
    )
    folder = out or (run / "eval" if run else Path(f"eval-{Path(target).name}"))
    if folder.is_file():
        raise EvalError(f"--out {folder} is a file. Give a folder for the scores.")
    with live_progress() as report:
        scores = evaluate(
            target,
            split_methods(methods) if methods else None,
            plan,
            folder,
            cache_dir=cache,
            steps=chosen,
            text=[_text_source(text)] if text else [],
            report=report,
        )
    console = Console()
    for table in tables(scores):
        console.print(table)
    console.print(f"scores in {folder}")
    return scores


def split_methods(words: str) -> list[str]:
    """`none,linear:8,yarn:8,beta_fast=16` -> three methods: a `key=value` belongs to the method before it."""
    found: list[str] = []
    for word in filter(None, (part.strip() for part in re.split("[;,]", words))):
        if re.match(r"\w+=", word) and found:
            found[-1] += f",{word}"
        else:
            found.append(word)
    return found


def tables(scores: list[Score]) -> list[Table]:
    """What was measured, a table a task: a row for each weights and method, a column for each length or gap."""
    by_task: dict[str, dict[tuple[int, str, str], dict[int, list[Score]]]] = defaultdict(lambda: defaultdict(dict))
    for score in scores:
        column = int(score.extra.get("gap", score.extra.get("last", score.length)))
        row = by_task[score.task][score.trained_steps, score.arm, score.method]
        row.setdefault(column, []).append(score)
    return [_table(task, rows) for task, rows in by_task.items()]


TITLES = {
    "perplexity": "perplexity of the same targets, by window",
    "nll_by_position": "loss in nats, by last position of the bucket",
    "passkey": "passkeys given back, by length, and k_max at 90 %",
    "gap": "perplexity after a jump of so many positions",
}


def _table(task: str, rows: dict[tuple[int, str, str], dict[int, list[Score]]]) -> Table:
    columns = sorted({column for cells in rows.values() for column in cells})
    table = Table("steps", "method", *(f"{column:,}" for column in columns), title=TITLES[task])
    if task == "passkey":
        table.add_column("k_max")
    for (steps, _, method), cells in rows.items():
        words = [_cell(task, cells.get(column, [])) for column in columns]
        if task == "passkey":
            counts = {c: (sum(s.correct or 0 for s in found), sum(s.n for s in found)) for c, found in cells.items()}
            best, _ = k_max(counts, THRESHOLDS[2])
            words.append(f"{best:,}" if best else "-")
        table.add_row(str(steps), method, *words)
    return table


def _cell(task: str, found: list[Score]) -> str:
    if not found:
        return ""
    if task == "passkey":
        return f"{sum(score.correct or 0 for score in found)}/{sum(score.n for score in found)}"
    return f"{found[-1].value:.2f}"


def _run_of(target: str, steps: list[int] | Literal["all"] | None) -> Path | None:
    folder = resolve_path(target)
    if (folder / RUN_FILE).exists():
        return folder
    return find_weights(target, steps)[0].run


def _text_source(name: str) -> Source:
    if name in BUILTIN:
        return Source(kind="builtin", name=name, use="held-out")
    if resolve_path(name).is_file():
        return Source(kind="text", name=name, use="held-out")
    raise EvalError(f"--text {name} is neither a file nor a built-in source. Built in are {', '.join(BUILTIN)}.")


def _numbers(option: str, words: str | None) -> list[int] | None:
    if words is None:
        return None
    try:
        return [int(word.replace("_", "")) for word in words.split(",")]
    except ValueError as error:
        raise EvalError(f"{option} {words}: give whole numbers separated by commas.") from error
