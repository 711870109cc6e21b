"""NTK-aware scaling: one larger base, so that slow pairs are interpolated and fast ones hardly change."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field, model_validator

from ..errors import MethodError
from .base import BaseRope, Record, Rotary


class Ntk(Record):
    """A changed rotary base.

    form=factor: theta' = theta x factor^(d / (d - 2)), the slowest pair is interpolated by the factor.
    form=alpha: the same law with its own `alpha` in place of the factor (1.5 to 2 times the factor in practice).
    form=critical: theta' = theta^(ln(L'/2 pi) / ln(L/2 pi)), which keeps pairs that saw a full turn in their period
    (arXiv:2310.05209).
    """

    name: Literal["ntk"] = "ntk"
    form: Literal["factor", "alpha", "critical"] = "factor"
    alpha: float | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _alpha_with_its_form(self) -> Ntk:
        if (self.form == "alpha") != (self.alpha is not None):
            raise ValueError("`alpha` goes with form=alpha, and form=alpha needs it: ntk:8,form=alpha,alpha=16")
        return self

    def theta(self, base: BaseRope) -> float:
        """The new rotary base."""
        if self.form == "critical":
            full_turn = 2 * math.pi
            if base.window < 7:
                raise MethodError(f"ntk,form=critical: in a window of {base.window} tokens no pair makes a full turn")
            return base.theta ** (math.log(self.factor * base.window / full_turn) / math.log(base.window / full_turn))
        return base.theta_scaled(self.alpha if self.alpha is not None else self.factor)

    def rotary(self, base: BaseRope) -> Rotary:
        return Rotary(BaseRope(self.theta(base), base.head_dim, base.window).inv_freq_F)

    def rope_parameters(self, base: BaseRope) -> dict[str, Any]:
        return {"rope_type": "default", "rope_theta": self.theta(base)}
