"""Direct extrapolation: the base RoPE, unchanged."""

from __future__ import annotations

from typing import Any, Literal

from .base import BaseRope, Record, Rotary


class NoChange(Record):
    """Leave every frequency as it is; the rival of interpolation. `factor` states the window only."""

    name: Literal["none"] = "none"

    def rotary(self, base: BaseRope) -> Rotary:
        return Rotary(base.inv_freq_F)

    def rope_parameters(self, base: BaseRope) -> dict[str, Any]:
        return {"rope_type": "default", "rope_theta": base.theta}
