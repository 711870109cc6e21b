"""p-RoPE (arXiv:2410.06205): only the fastest share of the pairs rotates; the rest carry no position."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from .base import BaseRope, Record, Rotary


class PRope(Record):
    """Keep the first `share` of the frequencies and set the others to zero. `factor` states the window only."""

    name: Literal["p_rope"] = "p_rope"
    share: float = Field(default=0.25, gt=0, le=1)

    def num_kept(self, base: BaseRope) -> int:
        """Pairs that rotate, rounded down as transformers does."""
        return int(self.share * base.head_dim // 2)

    def rotary(self, base: BaseRope) -> Rotary:
        kept = self.num_kept(base)
        return Rotary(base.inv_freq_F[:kept] + (0.0,) * (base.num_freqs - kept))

    def rope_parameters(self, base: BaseRope) -> dict[str, Any]:
        # without `factor`, which is 1 where it is known at all
        return {"rope_type": "proportional", "rope_theta": base.theta, "partial_rotary_factor": float(self.share)}
