"""Loss by position: one pass over whole windows, and the mean loss of the predictions made from each position.

It shows directly where a model stops reading: beyond its window the curve turns up. Protocol `one-pass`: disjoint
windows that open with bos, every position scored. Only for methods whose rotation does not depend on the length, as one
long pass says nothing about what the others do at shorter lengths. Letters: N windows, W tokens of a window.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from .bootstrap import mean_nll
from .job import Advance, Job, Measurement, Subject
from .perplexity import windows
from .scorer import last_nll
from .texts import Texts, spread_places, tokens_hash

PASS_TOKENS = 16_384
"""Tokens read when the number of windows is not given."""


@dataclass(frozen=True)
class PositionTask:
    """Loss by position in windows of `length` tokens."""

    length: int
    windows: int


def default_windows(length: int) -> int:
    """As many windows as fill about 16,384 tokens, and at least one."""
    return max(1, PASS_TOKENS // length)


def position_jobs(task: PositionTask, texts: Texts, bos: list[int], seed: int) -> list[Job]:
    """The one job of this task. EvalError when no document is as long as a window."""
    num_text = task.length - len(bos)
    places = spread_places(texts, 0, num_text, task.windows)
    rows_NW = windows(texts, places, num_text, task.length, bos)
    params = f"windows={len(places)},bos={len(bos)},text={tokens_hash(rows_NW)}"
    measure = partial(_measure, rows_NW, [place.document for place in places], seed)
    return [Job("nll_by_position", "one-pass", params, task.length, rows_NW[:, 1:].size, measure, one_pass=True)]


def _measure(
    rows_NW: np.ndarray, documents: list[int], seed: int, subject: Subject, advance: Advance
) -> list[Measurement]:
    length = rows_NW.shape[1]
    nll_NK = last_nll(subject.model, rows_NW[:, :-1], rows_NW[:, 1:], advance=advance)
    found = []
    for first, last in position_buckets(length - 1):
        part_NK = nll_NK[:, first : last + 1]
        mean = mean_nll(part_NK, documents, seed)
        extra = {"first": first, "last": last, "tokens": part_NK.size, "resampled": mean.unit}
        found.append(Measurement("nll", length, mean.value, mean.low, mean.high, mean.units, extra=extra))
    return found


def position_buckets(num_positions: int) -> list[tuple[int, int]]:
    """Buckets (first, last), last included, that cover positions 0..num_positions-1: half octaves from 16 on.

    A last bucket less than half full is joined to the one before.
    """
    edges = [0]
    step = 8
    while (edge := round(2 ** (step / 2))) < num_positions:
        edges.append(edge)
        step += 1
    if len(edges) > 1 and num_positions - edges[-1] < (edge - edges[-1]) / 2:
        edges.pop()
    return [(first, last - 1) for first, last in zip(edges, [*edges[1:], num_positions], strict=True)]
