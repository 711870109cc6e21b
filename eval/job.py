"""What a benchmark hands to the runner: jobs, each the smallest part that is measured, cached and resumed as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from transformers import PreTrainedModel
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from ..positional import Method
from .bootstrap import MeanNll
from .score import ppl

Advance = Callable[[int], None]
"""Told how many tokens have gone through the model since the last call."""


@dataclass(frozen=True)
class Subject:
    """The model as it is measured: weights with one method in force."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    method: Method
    refresh: Callable[[], None]
    """Put the method's rotary state back to its start: length-dependent methods remember the longest length seen."""


@dataclass(frozen=True)
class Measurement:
    """A number and its interval; the runner adds who was measured and makes it a Score."""

    metric: str
    length: int
    value: float
    low: float
    high: float
    n: int
    depth: float | None = None
    correct: int | None = None
    extra: dict[str, float | int | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """One part of a benchmark. `params` holds, as text, every setting that decides its numbers, and the text read."""

    task: str
    protocol: str
    params: str
    length: int
    num_tokens: int
    """Tokens that will go through the model, for the progress line."""
    measure: Callable[[Subject, Advance], list[Measurement]]
    """Gives at least one measurement; all of a job's are written at once, each with their number (`rows`)."""
    depth: float | None = None
    one_pass: bool = False
    """Left out for methods whose rotation depends on the length."""


def perplexity_of(length: int, mean: MeanNll, extra: dict[str, float | int | str]) -> Measurement:
    """A mean loss as a perplexity."""
    details = {**extra, "nll": mean.value, "resampled": mean.unit}
    return Measurement("ppl", length, ppl(mean.value), ppl(mean.low), ppl(mean.high), mean.units, extra=details)
