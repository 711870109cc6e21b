"""Position interpolation, PI (arXiv:2306.15595)."""

from __future__ import annotations

from typing import Any, Literal

from .base import BaseRope, Record, Rotary


class Linear(Record):
    """Divide every frequency by the factor: position m of the long window lands on m / factor of the pretrained one."""

    name: Literal["linear"] = "linear"

    def rotary(self, base: BaseRope) -> Rotary:
        return Rotary(tuple(w / self.factor for w in base.inv_freq_F))

    def rope_parameters(self, base: BaseRope) -> dict[str, Any]:
        return {"rope_type": "linear", "rope_theta": base.theta, "factor": float(self.factor)}
