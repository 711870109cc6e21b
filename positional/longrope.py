"""LongRoPE (arXiv:2402.13753): a divisor for each frequency, found elsewhere and given here."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from ..errors import MethodError
from .base import BaseRope, Record, Rotary


class LongRope(Record):
    """Divide frequency i by divisors[i]; attention scale sqrt(1 + ln factor / ln L) unless given.

    On the command line: `longrope:8,divisors=1/1.2/.../8` or `longrope:8,divisors=@list.json`.
    """

    name: Literal["longrope"] = "longrope"
    divisors: tuple[Annotated[float, Field(gt=0)], ...] = Field(min_length=1)
    attention_factor: float | None = Field(default=None, gt=0)

    def rotary(self, base: BaseRope) -> Rotary:
        if len(self.divisors) != base.num_freqs:
            raise MethodError(
                f"longrope: divisors has {len(self.divisors)} numbers, but the model rotates {base.num_freqs} pairs. "
                f"Give {base.num_freqs}."
            )
        scale = self.attention_factor
        if scale is None:
            scale = math.sqrt(1 + math.log(self.factor) / math.log(base.window))
        return Rotary(tuple(w / d for w, d in zip(base.inv_freq_F, self.divisors, strict=True)), scale)
