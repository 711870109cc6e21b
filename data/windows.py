"""Windows of documents: each at most once an epoch, in an order that depends on nothing but seed and epoch."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .store import TokenStore


class WindowTable:
    """All windows of `window_tokens` ids, each with the id that follows it, inside the documents of a store.

    Neighbouring windows of a document share only that following id. What is left over of a document moves its windows'
    start, at random anew each epoch, so that no part of a document is never read. Documents shorter than one window and
    its following id give none.
    """

    def __init__(self, store: TokenStore, window_tokens: int, seed: tuple[int, ...]) -> None:
        self.store, self.window_tokens, self.seed = store, window_tokens, seed
        lengths_D = np.array([document.num_tokens for document in store.documents], dtype=np.int64)
        self.counts_D = np.maximum(lengths_D - 1, 0) // window_tokens
        self.slack_D = lengths_D - 1 - self.counts_D * window_tokens
        self.ends_D = np.cumsum(self.counts_D)
        self._order = lru_cache(maxsize=2)(self._make_order)

    def __len__(self) -> int:
        return int(self.ends_D[-1]) if len(self.ends_D) else 0

    @property
    def num_short_documents(self) -> int:
        """Documents that give no window."""
        return int((self.counts_D == 0).sum())

    def window(self, number: int) -> np.ndarray:
        """The ids (int64, window_tokens + 1) of the `number`-th window of an endless pass over epoch after epoch."""
        epoch, place = divmod(number, len(self))
        window = int(self._order(epoch)[place])
        document = int(np.searchsorted(self.ends_D, window, side="right"))
        within = window - int(self.ends_D[document] - self.counts_D[document])
        rng = np.random.default_rng([*self.seed, 1, epoch, document])
        start = int(rng.integers(0, self.slack_D[document] + 1)) + within * self.window_tokens
        return self.store.tokens(document)[start : start + self.window_tokens + 1].astype(np.int64)

    def _make_order(self, epoch: int) -> np.ndarray:
        return np.random.default_rng([*self.seed, 0, epoch]).permutation(len(self))
