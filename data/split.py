"""The split by document: a stable hash of each name decides, whatever the order, the machine or the other documents."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ..config import Source
from ..errors import DataError


def name_fraction(name: str) -> float:
    """A number in [0, 1) from a document's name alone."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big") / 2**48


def held_out_flags(sources: Sequence[Source], names: Sequence[Sequence[str]], share: float) -> list[list[bool]]:
    """For each source, for each of its document names: is it held out?

    Of the sources with `use: split`, documents whose `name_fraction` is below `share` are held out, but at least one
    (the lowest) and not all (the highest stays). DataError when a split is asked of a single document.
    """
    flags = [[source.use == "held-out"] * len(group) for source, group in zip(sources, names, strict=True)]
    splittable = [
        (name_fraction(name), s, d)
        for s, source in enumerate(sources)
        if source.use == "split"
        for d, name in enumerate(names[s])
    ]
    if not splittable or share == 0:
        return flags
    if len(splittable) == 1:
        _, s, _ = splittable[0]
        raise DataError(
            f"data.held_out = {share:g} asks for a split by document, but the sources give one document only "
            f"({names[s][0]!r}). Set data.held_out: 0, or `use: train` there and `use: held-out` on another source."
        )
    splittable.sort()
    for rank, (fraction, s, d) in enumerate(splittable):
        flags[s][d] = rank == 0 or (fraction < share and rank < len(splittable) - 1)
    return flags
