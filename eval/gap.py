"""Gap probe: perplexity of a block of text read after another with a jump in position between them.

It reaches positions far beyond the tokens that are read (positions 0..C-1, then C+gap..C+gap+T-1), so a window of
32,768 positions costs 1,024 tokens. It sees how a model takes large distances, not whether it finds its way in a long
text: that is what true long windows are for. Letters: N places, C context tokens, T target tokens.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from ..config import GapTask
from .bootstrap import mean_nll
from .job import Advance, Job, Measurement, Subject, perplexity_of
from .scorer import last_nll
from .texts import Texts, spread_places, tokens_hash


def gap_jobs(task: GapTask, texts: Texts, bos: list[int], seed: int) -> list[Job]:
    """One job a gap, on the same tokens. Every scored prediction is made from a position after the jump.

    EvalError when no document holds context and target.
    """
    num_context, num_target = task.context_tokens, task.target_tokens
    places = spread_places(texts, max(0, num_context - len(bos)), num_target + 1, task.windows)
    rows = []
    for place in places:
        start = place.start - (num_context - len(bos))
        rows.append([*bos, *texts.tokens[place.document][start : place.start + num_target + 1].tolist()])
    rows_NT = np.array(rows, dtype=np.int64)
    documents = [place.document for place in places]
    settings = f"context={num_context},target={num_target},windows={len(places)},bos={len(bos)}"
    jobs = []
    for gap in sorted(set(task.gaps)):
        params = f"gap={gap},{settings},text={tokens_hash(rows_NT)}"
        measure = partial(_measure, rows_NT, num_context, gap, documents, seed)
        length = num_context + gap + num_target
        jobs.append(Job("gap", "jump", params, length, rows_NT[:, 1:].size, measure))
    return jobs


def _measure(
    rows_NT: np.ndarray,
    num_context: int,
    gap: int,
    documents: list[int],
    seed: int,
    subject: Subject,
    advance: Advance,
) -> list[Measurement]:
    num_target = rows_NT.shape[1] - 1 - num_context
    positions_T = np.arange(rows_NT.shape[1] - 1)
    positions_T[num_context:] += gap
    subject.refresh()
    nll_NK = last_nll(subject.model, rows_NT[:, :-1], rows_NT[:, -num_target:], positions_T, advance)
    extra: dict[str, float | int | str] = {
        "gap": gap,
        "context": num_context,
        "target": num_target,
        "tokens": nll_NK.size,
    }
    length = num_context + gap + num_target
    return [perplexity_of(length, mean_nll(nll_NK, documents, seed), extra)]
