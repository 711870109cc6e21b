"""The text that is measured: documents in tokens, and the places in them that are scored. Letters: T tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..config import Source
from ..data.sources import Selection
from ..data.store import TokenStore
from ..data.tokenize import DocumentTokenizer
from ..errors import EvalError

if TYPE_CHECKING:
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Texts:
    """Documents in tokens, without bos or eos."""

    names: tuple[str, ...]
    tokens: tuple[np.ndarray, ...]

    @property
    def longest(self) -> int:
        """Tokens of the longest document; 0 when there is none."""
        return max((len(ids) for ids in self.tokens), default=0)


@dataclass(frozen=True)
class Place:
    """Tokens `start` and after of document `document` are scored."""

    document: int
    start: int


def held_out_texts(store: TokenStore) -> Texts:
    """The documents of one side of a run's data, still memory-mapped."""
    return Texts(store.names, tuple(store.tokens(index) for index in range(len(store))))


def source_texts(sources: Sequence[Source], tokenizer: PreTrainedTokenizerBase, cache_dir: Path) -> Texts:
    """Tokenise all documents of the sources, in memory. DataError when a source cannot be read."""
    documents = [document for source in sources for document in Selection(source, cache_dir)]
    with DocumentTokenizer(tokenizer) as pieces:
        tokens = tuple(pieces.map(document.text for document in documents))
    return Texts(tuple(document.name for document in documents), tokens)


def spread_places(texts: Texts, before: int, length: int, count: int) -> list[Place]:
    """At most `count` disjoint blocks of `length` tokens with `before` tokens of the same document ahead of each,
    spread evenly over all such blocks in document order.

    The choice depends on nothing else, so every method is measured on the same tokens. EvalError when no document is
    long enough.
    """
    places = [
        Place(document, start)
        for document, ids in enumerate(texts.tokens)
        for start in range(before, len(ids) - length + 1, length)
    ]
    if not places:
        raise EvalError(
            f"no document has {before + length} tokens: the longest of {len(texts.tokens)} has {texts.longest}. "
            "Ask for shorter lengths, or name a source with longer texts."
        )
    if len(places) <= count:
        return places
    return [places[(2 * i + 1) * len(places) // (2 * count)] for i in range(count)]


def tokens_hash(rows_NT: np.ndarray) -> str:
    """Twelve hex digits of the SHA-256 of token rows: two measurements with equal ones read the same text."""
    return hashlib.sha256(np.ascontiguousarray(rows_NT, dtype=np.int64).tobytes()).hexdigest()[:12]
