"""Resonance RoPE (arXiv:2403.00071): whole-number wavelengths, on top of another method."""

from __future__ import annotations

import math
from typing import Literal

from .base import BaseRope, Record, Rotary
from .linear import Linear
from .none import NoChange
from .ntk import Ntk
from .yarn import Yarn

_INNER = {"none": NoChange, "linear": Linear, "ntk": Ntk, "yarn": Yarn}


class Resonance(Record):
    """Round each wavelength 2 pi / theta_i of the inner method to a whole number of positions."""

    name: Literal["resonance"] = "resonance"
    of: Literal["none", "linear", "ntk", "yarn"] = "yarn"
    """The method whose wavelengths are rounded, with its defaults and this factor."""

    def rotary(self, base: BaseRope) -> Rotary:
        inner = _INNER[self.of](factor=self.factor).rotary(base)
        full_turn = 2 * math.pi
        return Rotary(tuple(full_turn / round(full_turn / w) for w in inner.inv_freq_F), inner.attention_scale)
