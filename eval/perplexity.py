"""Perplexity against window length, on the same target tokens at every length.

Protocol `press` (Press et al., arXiv:2108.12409, sliding evaluation; used with a stride of 256 by the PI paper): each
window opens with bos and ends with a block of `stride` target tokens; only those are scored, weighted by token. A
longer window gives the same targets more context, so the curve shows what context is worth and nothing else.

Letters: N windows, W tokens of a window, K target tokens (the stride).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ..config import PerplexityTask
from ..errors import EvalError
from .bootstrap import mean_nll
from .job import Advance, Job, Measurement, Subject, perplexity_of
from .scorer import last_nll
from .texts import Place, Texts, spread_places, tokens_hash


def perplexity_jobs(task: PerplexityTask, texts: Texts, bos: list[int], seed: int) -> list[Job]:
    """One job a length, shortest first.

    EvalError when a length leaves no context before its targets, or no document is long enough.
    """
    lengths = sorted(set(task.lengths))
    if lengths[0] <= task.stride:
        raise EvalError(
            f"perplexity.stride = {task.stride} leaves no context in a window of {lengths[0]} tokens. "
            f"Set a stride of at most {lengths[0] // 2}."
        )
    before = max(0, lengths[-1] - len(bos) - task.stride)
    places = spread_places(texts, before, task.stride, task.windows)
    widest_NW = windows(texts, places, task.stride, lengths[-1], bos)
    params = (
        f"stride={task.stride},windows={len(places)},longest={lengths[-1]},bos={len(bos)},text={tokens_hash(widest_NW)}"
    )
    documents = [place.document for place in places]
    jobs = []
    for length in lengths:
        # A window is the tail of the widest one with its own bos in front: the left edge moves, the targets stay.
        tail_NW = widest_NW[:, len(widest_NW[0]) - length + len(bos) :]
        rows_NW = np.concatenate([np.tile(np.array(bos, dtype=np.int64), (len(places), 1)), tail_NW], axis=1)
        measure = partial(_measure, rows_NW, task.stride, documents, seed)
        jobs.append(Job("perplexity", "press", params, length, rows_NW[:, 1:].size, measure))
    return jobs


def windows(texts: Texts, places: list[Place], stride: int, length: int, bos: list[int]) -> np.ndarray:
    """Windows (N, W) of `length` tokens: bos, then the document up to the end of the target block."""
    rows = []
    for place in places:
        end = place.start + stride
        rows.append([*bos, *texts.tokens[place.document][end - (length - len(bos)) : end].tolist()])
    return np.array(rows, dtype=np.int64)


def _measure(
    rows_NW: np.ndarray, stride: int, documents: list[int], seed: int, subject: Subject, advance: Advance
) -> list[Measurement]:
    subject.refresh()
    nll_NK = last_nll(subject.model, rows_NW[:, :-1], rows_NW[:, -stride:], advance=advance)
    extra: dict[str, float | int | str] = {
        "stride": stride,
        "tokens": nll_NK.size,
        "documents": len(set(documents)),
    }
    return [perplexity_of(rows_NW.shape[1], mean_nll(nll_NK, documents, seed), extra)]
