"""Recipes on disk: YAML -> RunConfig and back, with all faults told at once, each with its file:line and remedy."""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .config import RunConfig
from .config_checks import ABSENT, Problem
from .errors import ConfigError
from .positional import format_method
from .recipe_errors import parse, recipe_schema
from .recipe_yaml import Tree, read_tree

PACKAGE_ROOT = Path(__file__).resolve().parent


def load(path: str | Path, overrides: Sequence[str] = ()) -> RunConfig:
    """The config of a recipe, with `section.key=value` overrides laid over it.

    `path` is looked for from the current directory, then among the recipes that come with the package. Raises
    ConfigError whose text lists every problem: place, field, value found, what to set instead.
    """
    tree = read_tree(resolve_path(path), str(path), overrides)
    result = parse(tree.values)
    problems = [*tree.problems, *(result if isinstance(result, list) else [])]
    if problems:
        raise ConfigError(explain(problems, tree, str(path)))
    assert isinstance(result, RunConfig)
    return result


def explain(problems: Sequence[Problem], tree: Tree, name: str) -> str:
    """One line a problem, in the order of the file."""

    def line_number(problem: Problem) -> int:
        number = tree.place(problem.path).rpartition(":")[2]
        return int(number) if number.isdecimal() else 1 << 30

    lines = [
        f"{tree.place(problem.path)}: {problem.field or 'recipe'}"
        f"{'' if problem.found is ABSENT else f' = {_shown(problem.found)}'}: {problem.message}"
        for problem in sorted(problems, key=line_number)
    ]
    if len(lines) == 1:
        return lines[0]
    return "\n  ".join([f"{len(lines)} problems in {name}", *lines])


def _shown(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower().replace("none", "null")
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def dump(config: RunConfig) -> dict[str, Any]:
    """The resolved config as plain values: every field, defaults included. `load` of its YAML gives `config` again."""
    return config.model_dump(mode="json")


def schema() -> dict[str, Any]:
    """The JSON schema of recipes, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **recipe_schema(),
        "title": "Ropewalk recipe",
    }


def resolve_path(name: str | Path) -> Path:
    """Where `name` (a path or glob) lies: from the current directory, else from the package's own folder.

    What lies in neither, such as a hub id, is given back as it is.
    """
    path = Path(name).expanduser()
    if path.is_absolute() or _exists(path):
        return path
    own = PACKAGE_ROOT / path
    return own if _exists(own) else path


def _exists(path: Path) -> bool:
    return path.exists() or (
        glob.has_magic(str(path)) and next(glob.iglob(str(path), recursive=True), None) is not None
    )


@dataclass(frozen=True)
class Report:
    """What `ropewalk check` says of one recipe: its config, or why there is none."""

    path: str
    config: RunConfig | None
    error: str = ""

    @property
    def ok(self) -> bool:
        return self.config is not None

    def __str__(self) -> str:
        if self.config is None:
            return f"FAIL {self.path}\n  {self.error}"
        config, train = self.config, self.config.train
        rope, micro_batches = config.rope, train.tokens_per_step // train.micro_batch_tokens
        window = f"{rope.original_window:,} -> {rope.target_window:,} (x{rope.target_window / rope.original_window:g})"
        share = (
            f"{micro_batches} micro batch{'' if micro_batches == 1 else 'es'} of {train.micro_batch_tokens:,} tokens"
        )
        lines = [
            f"ok   {self.path}",
            f"  {config.name}: {format_method(config.method)}, window {window}, {config.finetune.kind} fine-tuning",
            f"  {train.steps:,} steps x {train.tokens_per_step:,} = {train.steps * train.tokens_per_step:,} tokens; "
            f"{share} a step, shared by the ranks",
        ]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    @property
    def notes(self) -> list[str]:
        """What is allowed but worth knowing: micro batches that rows do not fill."""
        assert self.config is not None
        room = self.config.train.micro_batch_tokens
        return [
            f"data.rows.{index}: {room // plan.tokens} rows of {plan.tokens:,} tokens fill {filled:,} of the {room:,} "
            f"tokens of a micro batch ({filled / room:.0%})"
            for index, plan in enumerate(self.config.data.rows)
            if (filled := room // plan.tokens * plan.tokens) != room
        ]


def check_files(paths: Sequence[str | Path]) -> list[Report]:
    """Read every recipe (a folder means all *.yaml in it and below). ConfigError when there is none."""
    reports = [_check_file(file) for path in paths for file in _files(path)]
    if not reports:
        raise ConfigError(
            f"no recipes found in {', '.join(map(str, paths)) or 'nothing'}; give *.yaml files or a folder"
        )
    return reports


def _files(path: str | Path) -> list[str | Path]:
    found = resolve_path(path)
    return sorted(found.rglob("*.yaml")) if found.is_dir() else [path]


def _check_file(path: str | Path) -> Report:
    try:
        return Report(str(path), load(path))
    except ConfigError as error:
        return Report(str(path), None, str(error).replace("\n", "\n  "))
