"""Intervals of a mean token loss by the bootstrap (Efron 1979): whole documents are drawn again, not single tokens.

Letters: N scored blocks, K scored tokens of a block, U units that are drawn again, R draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

DRAWS = 1000
FEWEST_UNITS = 8
"""With fewer units an interval says little, and a finer unit is drawn: documents, then blocks, then pieces."""
PIECE_TOKENS = 32


@dataclass(frozen=True)
class MeanNll:
    """Token-weighted mean loss in nats with its 95 % interval, and what was drawn again for it."""

    value: float
    low: float
    high: float
    units: int
    unit: str


def mean_nll(nll_NK: np.ndarray, documents: Sequence[int], seed: int) -> MeanNll:
    """Mean loss over all tokens of the blocks; `documents` names the document of each block.

    Tokens of a document depend on each other, so documents are the unit where there are at least 8. With fewer the
    unit is the block, and with fewer than 8 blocks a piece of 32 tokens, which makes the interval too narrow: the
    unit used is part of the result.
    """
    nll_NK = nll_NK.astype(np.float64)
    sums_U, counts_U, unit = _units(nll_NK, np.asarray(documents))
    rng = np.random.default_rng(seed)
    draws_RU = rng.multinomial(len(sums_U), np.full(len(sums_U), 1 / len(sums_U)), size=DRAWS)
    means_R = (draws_RU @ sums_U) / (draws_RU @ counts_U)
    low, high = np.quantile(means_R, [0.025, 0.975])
    value = float(nll_NK.mean())
    return MeanNll(value, min(float(low), value), max(float(high), value), len(sums_U), unit)


def _units(nll_NK: np.ndarray, documents_N: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
    names, index_N = np.unique(documents_N, return_inverse=True)
    num_blocks, num_tokens = nll_NK.shape
    if len(names) >= FEWEST_UNITS:
        counts_U = np.bincount(index_N).astype(np.float64) * num_tokens
        return np.bincount(index_N, weights=nll_NK.sum(1)), counts_U, "documents"
    if num_blocks >= FEWEST_UNITS:
        return nll_NK.sum(1), np.full(num_blocks, float(num_tokens)), "blocks"
    starts = np.arange(0, num_tokens, PIECE_TOKENS)
    sizes = np.diff([*starts, num_tokens]).astype(np.float64)
    sums_U = np.add.reduceat(nll_NK, starts, axis=1).ravel()
    return sums_U, np.tile(sizes, num_blocks), "pieces"
