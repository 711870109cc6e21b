"""The RoPE scaling of LLaMA 3.1 (arXiv:2407.21783)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from .base import BaseRope, Record, Rotary, clamp


class Llama3(Record):
    """Keep pairs that turn more than `high` times over the pretrained window, interpolate those under `low` turns."""

    name: Literal["llama3"] = "llama3"
    low: float = Field(default=1.0, gt=0)
    high: float = Field(default=4.0, gt=0)

    @model_validator(mode="after")
    def _order(self) -> Llama3:
        if self.high <= self.low:
            raise ValueError(f"high = {self.high:g} must be above low = {self.low:g}")
        return self

    def rotary(self, base: BaseRope) -> Rotary:
        return Rotary(turns_blend(base, self.factor, self.low, self.high))

    def rope_parameters(self, base: BaseRope) -> dict[str, Any]:
        return llama3_carrier(base, self.factor, self.low, self.high)


def turns_blend(base: BaseRope, factor: float, low: float, high: float) -> tuple[float, ...]:
    """Frequencies blended linearly in rotations: interpolated at `low` and fewer, kept at `high` and more."""
    keep_F = [clamp((turns - low) / (high - low)) for turns in base.turns_F]
    return tuple((1 - g) * w / factor + g * w for w, g in zip(base.inv_freq_F, keep_F, strict=True))


def llama3_carrier(base: BaseRope, factor: float, low: float, high: float) -> dict[str, Any]:
    """The stock `llama3` entry."""
    return {
        "rope_type": "llama3",
        "rope_theta": base.theta,
        "factor": float(factor),
        "low_freq_factor": float(low),
        "high_freq_factor": float(high),
        "original_max_position_embeddings": base.window,
    }
