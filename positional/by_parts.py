"""NTK-by-parts as the YaRN paper defines it (arXiv:2309.00071, section 3.2): YaRN without the attention scale."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from .base import BaseRope, Record, Rotary
from .llama3 import llama3_carrier, turns_blend


class ByParts(Record):
    """Blend linearly in rotations r = L theta_i / 2 pi between `alpha` (interpolate) and `beta` (keep)."""

    name: Literal["by_parts"] = "by_parts"
    alpha: float = Field(default=1.0, gt=0)
    beta: float = Field(default=32.0, gt=0)

    @model_validator(mode="after")
    def _order(self) -> ByParts:
        if self.beta <= self.alpha:
            raise ValueError(f"beta = {self.beta:g} must be above alpha = {self.alpha:g}")
        return self

    def rotary(self, base: BaseRope) -> Rotary:
        return Rotary(turns_blend(base, self.factor, self.alpha, self.beta))

    def rope_parameters(self, base: BaseRope) -> dict[str, Any]:
        return llama3_carrier(base, self.factor, self.alpha, self.beta)
