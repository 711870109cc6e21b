"""Position plans: which `position_ids` a training row of T tokens carries."""

from __future__ import annotations

import numpy as np


def dense(num_tokens: int) -> np.ndarray:
    """0, 1, ..., num_tokens - 1 (int64)."""
    return np.arange(num_tokens, dtype=np.int64)


def skip_wise(
    rng: np.random.Generator,
    num_tokens: int,
    target_window: int,
    ends: float,
    cut_between: tuple[int, int] | None = None,
) -> np.ndarray:
    """Positions of two chunks with a jump between them, so that a short row meets distances of the whole target window.

    The first chunk begins at 0; the second is moved by a jump drawn evenly from 0..target_window - num_tokens, or, with
    probability `ends`, by the largest one, so that position target_window - 1 gets its share. The second chunk begins
    at a token drawn evenly from 1..num_tokens - 1, or from `cut_between` (both ends included). PoSE, arXiv:2309.10400;
    its two chunks also skip text, ours do not. Returns int64 (T,): strictly increasing, all below `target_window`.
    """
    assert 2 <= num_tokens <= target_window, (num_tokens, target_window)
    first, last = cut_between or (1, num_tokens - 1)
    assert 1 <= first <= last < num_tokens, (first, last, num_tokens)
    cut = int(rng.integers(first, last + 1))
    largest = target_window - num_tokens
    jump = largest if rng.random() < ends else int(rng.integers(0, largest + 1))
    positions = dense(num_tokens)
    positions[cut:] += jump
    return positions
