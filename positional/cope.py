"""CoPE (arXiv:2602.05258): the slowest pairs are faded out, on top of a larger base."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from ..errors import MethodError
from .base import BaseRope, Record, Rotary
from .ntk import Ntk


class Cope(Record):
    """Multiply the last `num` frequencies by a half cosine that falls from 1 to 0."""

    name: Literal["cope"] = "cope"
    theta: float | None = Field(default=None, gt=1)
    """Rotary base beneath the fade; by default that of the NTK law for this factor."""
    num: int | None = Field(default=None, ge=2)
    """Pairs that are faded; by default 20 of 64, in proportion."""

    def rotary(self, base: BaseRope) -> Rotary:
        theta = self.theta if self.theta is not None else Ntk(factor=self.factor).theta(base)
        num = self.num if self.num is not None else max(2, round(base.num_freqs * 20 / 64))
        if num > base.num_freqs:
            raise MethodError(f"cope: num = {num}, but the model rotates only {base.num_freqs} pairs")
        kept = base.num_freqs - num
        fade_F = [1.0] * kept + [0.5 * (1 + math.cos(math.pi * k / (num - 1))) for k in range(num)]
        fade_F[-1] = 0.0  # exactly: the cosine's rounding would leave 1e-17
        freqs = BaseRope(theta, base.head_dim, base.window).inv_freq_F
        return Rotary(tuple(w * f for w, f in zip(freqs, fade_F, strict=True)))
