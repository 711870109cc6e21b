"""A reader of R's lazy-load data files, enough for character vectors: `.rdx` (an index) and `.rdb` (chunks).

The index is a gzipped R serialisation of a list with, for each variable, the offset and length of its chunk; a chunk
is a four-byte length and a zlib stream holding another serialisation (XDR form, versions 2 and 3).
"""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import Any, cast

PAIRLIST, CHARS, LOGICAL, INTEGER, REAL, STRINGS, LIST, SYMBOL = 2, 9, 10, 13, 14, 16, 19, 1
REFERENCE, NIL = 255, 254
HAS_ATTRIBUTES, HAS_TAG = 1 << 9, 1 << 10


def read_lazy_load(index: bytes, chunks: bytes) -> dict[str, list[str]]:
    """The character vectors of a lazy-load pair by name, and no other variables. ValueError on what it cannot read."""
    variables = cast("dict[str, Any]", cast("dict[str, Any]", unserialize(gzip.decompress(index)))["variables"])
    texts: dict[str, list[str]] = {}
    for name, (offset, length) in variables.items():
        # Four bytes hold the unpacked length; the rest is a zlib stream.
        value = unserialize(zlib.decompress(chunks[offset + 4 : offset + length]))
        if isinstance(value, list) and all(isinstance(line, str) for line in value):
            texts[name] = value
    return texts


def unserialize(data: bytes) -> object:
    """The value of an R serialisation: vectors as lists, named lists as dicts, strings as str, NULL as None."""
    if data[:2] != b"X\n":
        raise ValueError(f"not R's XDR serialisation: begins with {data[:2]!r}")
    reader = _Reader(data, 2)
    version, _, _ = reader.integer(), reader.integer(), reader.integer()
    if version == 3:
        reader.take(reader.integer())  # name of the native encoding
    elif version != 2:
        raise ValueError(f"R serialisation version {version} is not supported")
    return reader.item()


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at, self.symbols = data, at, cast("list[object]", [])

    def take(self, count: int) -> bytes:
        part = self.data[self.at : self.at + count]
        if len(part) < count:
            raise ValueError(f"R serialisation ends early, at byte {len(self.data)}")
        self.at += count
        return part

    def integer(self) -> int:
        return struct.unpack(">i", self.take(4))[0]

    def numbers(self, code: str, size: int) -> list[Any]:
        count = self.integer()
        return list(struct.unpack(f">{count}{code}", self.take(size * count)))

    def item(self) -> object:
        flags = self.integer()
        kind = flags & 0xFF
        match kind:
            case 254:
                return None
            case 255:
                return self.symbols[(flags >> 8) - 1]
            case 1:
                self.symbols.append(self.item())
                return self.symbols[-1]
            case 2:
                return self.pairs(flags)
            case 9:
                length = self.integer()
                return None if length < 0 else self.take(length).decode("utf-8")
            case 10 | 13:
                value = self.numbers("i", 4)
            case 14:
                value = self.numbers("d", 8)
            case 16 | 19:
                value = [self.item() for _ in range(self.integer())]
            case _:
                raise ValueError(f"R value of type {kind} is not supported")
        attributes = self.item() if flags & HAS_ATTRIBUTES else None
        names = attributes.get("names") if isinstance(attributes, dict) else None
        return dict(zip(names, value, strict=True)) if names and kind == LIST else value

    def pairs(self, flags: int) -> dict[object, object]:
        found: dict[object, object] = {}
        while flags & 0xFF != NIL:
            if flags & HAS_ATTRIBUTES:
                self.item()
            tag = self.item() if flags & HAS_TAG else len(found)
            found[tag] = self.item()
            flags = self.integer()
        return found
