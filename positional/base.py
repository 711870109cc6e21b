"""What every method works with: a model's RoPE before extension, and the rotary that a method makes of it.

Letter: F = head_dim // 2 frequencies, fastest first. All numbers are Python floats (float64).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from ..errors import MethodError

Factor = Annotated[float, Field(ge=1, allow_inf_nan=False)]
"""Target window / pretrained window."""

NEVER_TURNS = 1e30
"""Divisor that stands for a frequency of zero in a `longrope` list: JSON has no infinity."""


@dataclass(frozen=True)
class BaseRope:
    """RoPE of a pretrained model: theta_i = theta^(-2i / head_dim) (arXiv:2104.09864)."""

    theta: float
    head_dim: int
    """Dimensions of a head that are rotated; smaller than the head under partial rotary."""
    window: int
    """Tokens the model was pretrained at (L)."""

    def __post_init__(self) -> None:
        if not 1 < self.theta < math.inf:
            raise MethodError(f"RoPE theta = {self.theta}: it must be above 1, and finite; models use 1e4 to 1e8")
        if self.head_dim < 2 or self.head_dim % 2:
            raise MethodError(f"{self.head_dim} rotated dimensions: RoPE turns pairs, so their number must be even")
        if self.window < 2:
            raise MethodError(f"pretrained window = {self.window} tokens: it must be at least 2")

    @property
    def num_freqs(self) -> int:
        return self.head_dim // 2

    @property
    def inv_freq_F(self) -> tuple[float, ...]:
        """Radians a pair turns per position."""
        return tuple(self.theta ** (-2 * i / self.head_dim) for i in range(self.num_freqs))

    @property
    def turns_F(self) -> tuple[float, ...]:
        """Full rotations of each pair over the pretrained window."""
        return tuple(self.window * w / (2 * math.pi) for w in self.inv_freq_F)

    def theta_scaled(self, scale: float) -> float:
        """The base under which the slowest pair turns `scale` times slower: theta x scale^(d / (d - 2))."""
        if self.head_dim == 2:
            raise MethodError("a larger base slows nothing when one pair rotates alone (2 rotated dimensions)")
        return self.theta * scale ** (self.head_dim / (self.head_dim - 2))

    def dim_at(self, turns: float) -> float:
        """Index (not rounded) of the pair that makes `turns` rotations over the pretrained window."""
        return self.head_dim * math.log(self.window / (turns * 2 * math.pi)) / (2 * math.log(self.theta))


@dataclass(frozen=True)
class Rotary:
    """The result of a method: what the model rotates by."""

    inv_freq_F: tuple[float, ...]
    attention_scale: float = 1.0
    """Multiplies cos and sin, so attention logits scale by its square."""


class Record(BaseModel):
    """A method: a frozen record with pure functions of the base. Subclasses set the literal `name`."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    length_dependent: ClassVar[bool] = False
    """Whether frequencies change with the length at run time; such a method is evaluated but never published."""

    factor: Factor = 1.0

    def rotary(self, base: BaseRope) -> Rotary:
        """Frequencies and attention scale of the extended model."""
        raise AssertionError(f"{type(self).__name__} must define rotary")

    def target_window(self, base: BaseRope) -> int:
        """Tokens the extended model is meant to read (L')."""
        return round(self.factor * base.window)

    def rope_parameters(self, base: BaseRope) -> dict[str, Any]:
        """The stock `transformers` form. By default the general carrier; methods with a native type override this."""
        return longrope_carrier(base, self.rotary(base), self.factor)


def longrope_carrier(base: BaseRope, rotary: Rotary, factor: float) -> dict[str, Any]:
    """Any fixed frequencies as stock `longrope`: equal short and long lists of base / new frequency.

    Exact to float32 rounding. Equal lists, because a reader switches from short to long in the middle of a text.
    """
    divisors = [
        min(old / new, NEVER_TURNS) if new else NEVER_TURNS
        for old, new in zip(base.inv_freq_F, rotary.inv_freq_F, strict=True)
    ]
    return {
        "rope_type": "longrope",
        "rope_theta": base.theta,
        "factor": float(factor),
        "original_max_position_embeddings": base.window,
        "short_factor": divisors,
        "long_factor": list(divisors),
        "attention_factor": rotary.attention_scale,
    }


def clamp(x: float, low: float = 0.0, high: float = 1.0) -> float:
    return min(max(x, low), high)
