"""Adjusted base frequency, ABF (Llama 2 Long, arXiv:2309.16039): the new rotary base is given outright."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from .base import BaseRope, Record, Rotary


class Abf(Record):
    """Replace theta by the given value."""

    name: Literal["abf"] = "abf"
    theta: float = Field(gt=1)

    def rotary(self, base: BaseRope) -> Rotary:
        return Rotary(BaseRope(self.theta, base.head_dim, base.window).inv_freq_F)

    def rope_parameters(self, base: BaseRope) -> dict[str, Any]:
        return {"rope_type": "default", "rope_theta": float(self.theta)}
