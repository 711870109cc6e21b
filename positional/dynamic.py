"""Dynamic NTK: the base grows with the length read so far. For evaluation only."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from .base import BaseRope, Record, Rotary


class Dynamic(Record):
    """theta' = theta x (f l / L - (f - 1))^(d / (d - 2)) for lengths l > L, as transformers computes it.

    Keys already cached keep the base they were rotated with, one-pass curves do not hold, and loaders disagree, so it
    is measured but never trained or published.
    """

    length_dependent: ClassVar[bool] = True

    name: Literal["dynamic"] = "dynamic"

    def theta_at(self, base: BaseRope, length: int) -> float:
        """The rotary base when `length` tokens are read."""
        ratio = self.factor * max(length, base.window) / base.window - (self.factor - 1)
        return base.theta_scaled(ratio)

    def rotary(self, base: BaseRope) -> Rotary:
        """At lengths up to the pretrained window: the base RoPE."""
        return Rotary(base.inv_freq_F)

    def rotary_at(self, base: BaseRope, length: int) -> Rotary:
        """At `length` tokens."""
        return Rotary(BaseRope(self.theta_at(base, length), base.head_dim, base.window).inv_freq_F)

    def rope_parameters(self, base: BaseRope) -> dict[str, Any]:
        return {"rope_type": "dynamic", "rope_theta": base.theta, "factor": float(self.factor)}
