"""Token ids of documents on disk: one flat file a source, memory-mapped, with the bounds of its documents."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import DataError


@dataclass(frozen=True)
class StoredDocument:
    """Where a document's ids lie: `num_tokens` from `start` in the file of source number `source`."""

    name: str
    source: int
    start: int
    num_tokens: int


@dataclass(frozen=True)
class TokenStore:
    """The documents of one side of the split. `tokens(i)` is a view of the memory map; nothing is read before use."""

    documents: tuple[StoredDocument, ...]
    files: tuple[np.ndarray, ...]
    """For each source, all its ids (uint16 or uint32), memory-mapped."""

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def num_tokens(self) -> int:
        """Tokens of all documents together."""
        return sum(document.num_tokens for document in self.documents)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the documents, in order."""
        return tuple(document.name for document in self.documents)

    def tokens(self, index: int) -> np.ndarray:
        """The ids of document `index`: no bos, no eos, dtype uint16 or uint32 (convert before arithmetic)."""
        document = self.documents[index]
        return self.files[document.source][document.start : document.start + document.num_tokens]

    def of_source(self, source: int) -> TokenStore:
        """The same files, but only the documents of one source."""
        return TokenStore(tuple(d for d in self.documents if d.source == source), self.files)


def id_dtype(num_ids: int) -> np.dtype:
    """The smallest unsigned type that holds ids below `num_ids`."""
    return np.dtype(np.uint16 if num_ids <= 1 << 16 else np.uint32)


def write_ids(path: Path, dtype: np.dtype, arrays: Iterable[np.ndarray]) -> list[int]:
    """Write arrays of ids one after the other; returns how many ids each had. DataError for an id out of range."""
    counts = []
    with path.open("wb") as file:
        for ids in arrays:
            if len(ids) and int(ids.max()) > np.iinfo(dtype).max:
                raise DataError(
                    f"the tokenizer made the id {int(ids.max())}, beyond its own size. Check model.tokenizer."
                )
            file.write(ids.astype(dtype).tobytes())
            counts.append(len(ids))
    return counts


def map_ids(path: Path, dtype: np.dtype, num_ids: int) -> np.ndarray:
    """The ids of a file, memory-mapped. DataError when its size is not that of `num_ids`."""
    size = path.stat().st_size if path.exists() else -1
    if size != num_ids * dtype.itemsize:
        raise DataError(f"{path} should hold {num_ids} tokens but {'is missing' if size < 0 else f'has {size} bytes'}.")
    return np.memmap(path, dtype=dtype, mode="r") if num_ids else np.zeros(0, dtype=dtype)
