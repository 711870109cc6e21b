"""Score: the one record every measurement becomes, its file, and the statistics that need no model. Free of torch.

| task              | protocol   | metric     | length            | depth | extra (beside `params`)            |
| ----------------- | ---------- | ---------- | ----------------- | ----- | ---------------------------------- |
| `perplexity`      | `press`    | `ppl`      | window            |       | stride, tokens, documents, nll     |
| `nll_by_position` | `one-pass` | `nll`      | window            |       | first, last (positions), tokens    |
| `passkey`         | `exact`    | `accuracy` | prompt + answer   | 0..1  | teacher_forced, decoded, near_ties |
| `gap`             | `jump`     | `ppl`      | positions spanned |       | gap, context, target, tokens, nll  |

`value` is in the metric's own unit; `low` and `high` bound it at 95 %. A measurement that was not made is a row that is
not there: no -1, no NaN. docs/evaluation.md defines each number.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, NonNegativeInt, PositiveInt, ValidationError

from ..errors import EvalError

THRESHOLDS = (0.2, 0.5, 0.9, 1.0)
"""Success rates at which the effective window is stated; 0.2 is the bar of the PI paper (arXiv:2306.15595)."""


class Score(BaseModel):
    """One number with its interval, and all that is needed to know whether another number is the same measurement."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    task: str
    protocol: str
    metric: str
    method: str
    """`none`, `linear:8`, `yarn:8`: as on the command line."""
    arm: str
    """Name of the run that trained the weights, or `untrained`."""
    trained_steps: NonNegativeInt
    """Optimizer steps of fine-tuning; 0 for the base model's own weights."""
    length: PositiveInt
    depth: Annotated[float, Field(ge=0, le=1)] | None = None
    value: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat
    n: PositiveInt
    """What the interval counts: trials, or documents or blocks that were drawn again in the bootstrap."""
    correct: NonNegativeInt | None = None
    seed: NonNegativeInt
    model: str
    """Folder name or hub id; no path."""
    weights_hash: str
    rotary_hash: str
    tokenizer_hash: str
    dtype: str
    extra: dict[str, float | int | str] = {}
    """Details of the task, and `params`: the settings that decide the number, as text."""


def score_key(score: Score) -> tuple[str | int, ...]:
    """What makes two measurements the same one; scores with equal keys belong to one cached result."""
    return (
        score.task,
        score.protocol,
        str(score.extra.get("params", "")),
        score.method,
        score.weights_hash,
        score.rotary_hash,
        score.tokenizer_hash,
        score.seed,
        score.dtype,
    )


def wilson(correct: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson score interval of a success rate (Wilson 1927), both ends in 0..1. ValueError unless 0 <= correct <= n."""
    from scipy.stats import binomtest  # slow to import, and only passkeys need it

    interval = binomtest(correct, n).proportion_ci(confidence_level=level, method="wilson")
    return float(interval.low), float(interval.high)


def k_max(cells: Mapping[int, tuple[int, int]], threshold: float) -> tuple[int | None, int | None]:
    """Effective window from `{length: (correct, n)}`: the largest tested length such that it and every smaller tested
    length succeed at a rate of at least `threshold`.

    The second figure asks the same of the lower Wilson bound, so it is the window that the number of trials can prove;
    a threshold of 1 can never be proven by trials. None when the smallest tested length fails already.
    """
    point = _prefix_max(cells, lambda correct, n: correct / n >= threshold)
    proven = _prefix_max(cells, lambda correct, n: wilson(correct, n)[0] >= threshold)
    return point, proven


def _prefix_max(cells: Mapping[int, tuple[int, int]], passes) -> int | None:
    best = None
    for length in sorted(cells):
        if not passes(*cells[length]):
            break
        best = length
    return best


def append_scores(path: Path, scores: Iterable[Score]) -> None:
    """Add scores to a JSON-lines file, in one write that is on disk when this returns. A line left torn by a crash is
    closed first, so that nothing is glued to it."""
    lines = "".join(score.model_dump_json(exclude_none=True) + "\n" for score in scores)
    if not lines:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                lines = "\n" + lines
        file.write(lines.encode())
        file.flush()
        os.fsync(file.fileno())


def read_scores(path: Path) -> list[Score]:
    """Scores of one file, or of every `*.jsonl` of a folder in name order; `[]` when the path is not there.

    The last line before a break may be torn by a killed process: a line that is no JSON at all is skipped with a
    warning. A line that is JSON and not a Score raises EvalError with file and line.
    """
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path] if path.exists() else []
    return [score for file in files for score in _read_file(file)]


def _read_file(file: Path) -> Iterable[Score]:
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield Score.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            if first["type"] == "json_invalid":
                warnings.warn(f"{file}:{number}: torn line skipped; that measurement will be made again", stacklevel=3)
                continue
            problem = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
            raise EvalError(
                f"{file}:{number}: not a score: {problem}. Delete the line or the file, then evaluate again."
            ) from None


def ppl(nll: float) -> float:
    """Perplexity of a mean negative log-likelihood in nats; capped where a float would overflow."""
    return math.exp(min(nll, 700.0))
