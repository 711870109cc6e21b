"""YaRN (arXiv:2309.00071), with the three ramps under which it is in use."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field, model_validator

from .base import BaseRope, Record, Rotary, clamp, longrope_carrier


class Yarn(Record):
    """Keep fast frequencies, interpolate slow ones, blend between; scale attention by 0.1 ln(factor) + 1.

    ramp=index: the blend is linear in the pair's index, as transformers, vLLM and the authors' code compute it.
    ramp=turns: linear in rotations over the pretrained window, as the paper writes it.
    ramp=harmonic: the index ramp blends the divisors instead of the frequencies (PoSE, arXiv:2309.10400).
    """

    name: Literal["yarn"] = "yarn"
    beta_fast: float = Field(default=32.0, gt=0)
    """Pairs with at least this many rotations over the pretrained window are kept."""
    beta_slow: float = Field(default=1.0, gt=0)
    """Pairs with at most this many are interpolated."""
    ramp: Literal["index", "turns", "harmonic"] = "index"
    truncate: bool = True
    """Round the index ramp's ends outward to whole pairs."""
    attention_factor: float | None = Field(default=None, gt=0)
    """Attention scale in place of 0.1 ln(factor) + 1."""

    @model_validator(mode="after")
    def _order(self) -> Yarn:
        if self.beta_fast <= self.beta_slow:
            raise ValueError(f"beta_fast = {self.beta_fast:g} must be above beta_slow = {self.beta_slow:g}")
        return self

    @property
    def attention_scale(self) -> float:
        return self.attention_factor if self.attention_factor is not None else 0.1 * math.log(self.factor) + 1

    def rotary(self, base: BaseRope) -> Rotary:
        interpolate_F = self._turns_ramp(base) if self.ramp == "turns" else self._index_ramp(base)
        if self.ramp == "harmonic":
            freqs = [w / (b * self.factor + 1 - b) for w, b in zip(base.inv_freq_F, interpolate_F, strict=True)]
        else:
            freqs = [w * (b / self.factor + 1 - b) for w, b in zip(base.inv_freq_F, interpolate_F, strict=True)]
        return Rotary(tuple(freqs), self.attention_scale)

    def rope_parameters(self, base: BaseRope) -> dict[str, Any]:
        if self.ramp != "index":
            return longrope_carrier(base, self.rotary(base), self.factor)
        return {
            "rope_type": "yarn",
            "rope_theta": base.theta,
            "factor": float(self.factor),
            "original_max_position_embeddings": base.window,
            "attention_factor": self.attention_scale,
            "beta_fast": float(self.beta_fast),
            "beta_slow": float(self.beta_slow),
            "truncate": self.truncate,
        }

    def _index_ramp(self, base: BaseRope) -> list[float]:
        """0 = keep .. 1 = interpolate, for each pair. Both ends are clamped to [0, d - 1] as transformers does."""
        low, high = base.dim_at(self.beta_fast), base.dim_at(self.beta_slow)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, base.head_dim - 1)
        if low == high:
            high += 0.001  # the ramp becomes a step
        return [clamp((i - low) / (high - low)) for i in range(base.num_freqs)]

    def _turns_ramp(self, base: BaseRope) -> list[float]:
        return [1 - clamp((r - self.beta_slow) / (self.beta_fast - self.beta_slow)) for r in base.turns_F]
