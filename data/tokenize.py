"""Text -> token ids: in linear time on long documents, on all cores, and equal to what one call would give.

A fast tokenizer takes more than linear time on one long string. So a long document is cut into pieces at places where
no tokenizer we know merges across; each piece is tokenised with some text around it, and the tokens on both sides of a
cut must come out the same from both pieces, else the two are joined and tokenised as one.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .bos import plain_ids

if TYPE_CHECKING:
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase

PIECE_CHARS = 32_768
CONTEXT_CHARS = 256
AGREE_TOKENS = 8
"""Tokens on each side of a cut that both pieces must agree on."""
MOST_JOINED = 16
"""Joined pieces of one document after which it is tokenised in one call."""
SAFE_CUT = re.compile(r"(?<=[a-z])(?= [a-z])|(?<=\S\n)(?=\w)")
"""Between a word and the space before the next word, or after a single line end before a word."""


@dataclass(frozen=True)
class Piece:
    """Characters start..end of a text, tokenised with context around them.

    `ids` are those of start..end alone, `before` and `after` the ids next to it in the context; `clean` is False when a
    token lies across start or end.
    """

    start: int
    end: int
    ids: np.ndarray
    before: list[int]
    after: list[int]
    clean: bool


class DocumentTokenizer:
    """Tokenises documents on `num_threads` threads (all cores when None); use it as a context manager."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, num_threads: int | None = None, piece_chars: int = PIECE_CHARS
    ) -> None:
        self.tokenizer = tokenizer
        self.piece_chars = piece_chars
        self._pool = ThreadPoolExecutor(num_threads or os.cpu_count() or 1)
        backend = getattr(tokenizer, "backend_tokenizer", None)
        self._backend = None if backend is None else _bare_copy(backend)

    def __enter__(self) -> DocumentTokenizer:
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def map(self, texts: Iterable[str]) -> Iterator[np.ndarray]:
        """The ids (int64) of each text, in order, without special tokens; many short texts are in work at once."""
        batch: list[str] = []
        chars = 0
        for text in texts:
            batch.append(text)
            chars += len(text)
            if chars >= 64 * self.piece_chars:
                yield from self._map_batch(batch)
                batch, chars = [], 0
        yield from self._map_batch(batch)

    def _map_batch(self, texts: list[str]) -> Iterator[np.ndarray]:
        backend = self._backend
        if backend is None:  # a tokenizer in Python: one call a document
            yield from (np.array(plain_ids(self.tokenizer, text), dtype=np.int64) for text in texts)
            return
        spans = [list(pairwise(cuts(text, self.piece_chars))) for text in texts]
        work = [(backend, text, start, end) for text, parts in zip(texts, spans, strict=True) for start, end in parts]
        done = self._pool.map(lambda item: _tokenize_piece(*item), work)
        for text, parts in zip(texts, spans, strict=True):
            yield _joined(backend, text, [next(done) for _ in parts])


def _bare_copy(backend: Any) -> Any:
    """The same tokenizer with no truncation, no padding, and no post-processor (which may trim spaces off offsets)."""
    state = json.loads(backend.to_str())
    return type(backend).from_str(json.dumps(state | {"truncation": None, "padding": None, "post_processor": None}))


def cuts(text: str, piece_chars: int) -> list[int]:
    """Where to cut a text: 0, safe places at least `piece_chars` apart, len(text)."""
    places = [0]
    while (found := SAFE_CUT.search(text, places[-1] + piece_chars)) is not None:
        # A remainder shorter than the context is no piece of its own.
        if len(text) - found.start() <= CONTEXT_CHARS:
            break
        places.append(found.start())
    return [*places, len(text)]


def _tokenize_piece(backend: Any, text: str, start: int, end: int) -> Piece:
    low, high = max(0, start - CONTEXT_CHARS), min(len(text), end + CONTEXT_CHARS)
    # A batch of one, since only the batch call lets other threads work meanwhile.
    encoding = backend.encode_batch([text[low:high]], add_special_tokens=False)[0]
    ids = encoding.ids
    first, last = _token_from(encoding, start - low), _token_from(encoding, end - low)
    if low == start:
        first = 0
    if high == end:
        last = len(ids)
    clean = first is not None and last is not None
    first, last = first or 0, len(ids) if last is None else last
    before, after = ids[max(0, first - AGREE_TOKENS) : first], ids[last : last + AGREE_TOKENS]
    return Piece(start, end, np.array(ids[first:last], dtype=np.int64), before, after, clean)


def _token_from(encoding: Any, char: int) -> int | None:
    """The index of the token that begins exactly at a character; None if none does, or one reaches over it."""
    token = encoding.char_to_token(char)
    if token is None or encoding.token_to_chars(token)[0] != char:
        return None
    if token > 0 and encoding.token_to_chars(token - 1)[1] > char:
        return None
    return token


def _joined(backend: Any, text: str, pieces: list[Piece]) -> np.ndarray:
    """The ids of the whole text from those of its pieces; pieces that disagree at their border are made one."""
    kept: list[Piece] = []
    num_joined = 0
    for piece in pieces:
        while kept and not _agree(kept[-1], piece):
            num_joined += 1
            if num_joined > MOST_JOINED:  # this tokenizer cannot be cut here; joining on would take quadratic time
                return _tokenize_piece(backend, text, 0, len(text)).ids
            piece = _tokenize_piece(backend, text, kept.pop().start, piece.end)
        kept.append(piece)
    return np.concatenate([piece.ids for piece in kept]) if kept else np.zeros(0, dtype=np.int64)


def _agree(left: Piece, right: Piece) -> bool:
    if not (left.clean and right.clean):
        return False
    before, after = left.ids[-AGREE_TOKENS:].tolist(), right.ids[:AGREE_TOKENS].tolist()
    return bool(before and after) and before == right.before[-len(before) :] and after == left.after[: len(after)]
