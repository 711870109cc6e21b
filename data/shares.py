"""Exact shares without a random draw: which kind the n-th item of a mixed sequence is, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Shares:
    """An endless sequence over kinds 0..K-1 in which each kind keeps to its weight's share, as evenly as can be.

    Kind 0 takes round(n x its share) of the first n items; of the items it leaves, kind 1 takes the rounded share of
    what is left of the weights, and so on. So any stretch of the sequence holds each kind to within about one item, and
    both questions below are answered in O(K) for any n, which makes every row of a run addressable.
    """

    fractions: tuple[Fraction, ...]

    @classmethod
    def of(cls, weights: Sequence[float]) -> Shares:
        """Shares proportional to `weights` (at least one of them above 0)."""
        exact = [Fraction(weight).limit_denominator(1_000_000) for weight in weights]
        assert sum(exact) > 0, weights
        left = [sum(exact[kind:], Fraction(0)) for kind in range(len(exact))]
        return cls(tuple(part / rest if rest else Fraction(0) for part, rest in zip(exact, left, strict=True)))

    def counts(self, num_items: int) -> list[int]:
        """How many of the first `num_items` are of each kind."""
        taken = []
        for fraction in self.fractions:
            taken.append(_rounded(fraction, num_items))
            num_items -= taken[-1]
        return taken

    def pick(self, item: int) -> tuple[int, int]:
        """The kind of an item, and how many of that kind came before it."""
        for kind, fraction in enumerate(self.fractions):
            before = _rounded(fraction, item)
            if _rounded(fraction, item + 1) > before:
                return kind, before
            item -= before
        raise AssertionError("the last kind with a weight takes all that is left")


def _rounded(fraction: Fraction, count: int) -> int:
    """round(fraction x count), halves up, in whole numbers."""
    return (2 * fraction.numerator * count + fraction.denominator) // (2 * fraction.denominator)
