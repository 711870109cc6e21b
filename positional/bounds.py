"""How far an attention score can stray, between trained positions and beyond them (arXiv:2306.15595, section 2.3).

Without its softmax the score of a query and a key s positions apart is a(s) = Re sum_j h_j exp(i s theta_j), one
complex h_j a pair of dimensions. Two bounds follow. Between neighbouring positions the score stays near the straight
line through its values there (what position interpolation relies on); at any s it is at most max|h_j - h_j+1| B(s)
(all that extrapolation can rely on).

The paper's constant for the first bound is too small: its proof puts d / (4 ln theta) in place of sum_j theta_j^2,
which is larger. The right sum is (1 - theta^-2) / (1 - theta^(-4 / d)), and is used here; `paper_constant` is kept to
show that it can be exceeded.

`python -m ropewalk.positional.bounds OUT.svg` draws both.
"""

from __future__ import annotations

import cmath
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from .base import BaseRope


def score(h_F: Sequence[complex], base: BaseRope, s: float) -> float:
    """a(s): the attention score at distance s, before scaling and softmax."""
    return sum((h * cmath.exp(1j * s * w)).real for h, w in zip(h_F, base.inv_freq_F, strict=True))


def interpolation_error(h_F: Sequence[complex], base: BaseRope, s: float, left: float, right: float) -> float:
    """|a(s) - a_lin(s)| for left <= s <= right, a_lin being the straight line through a(left) and a(right)."""
    share = (s - left) / (right - left)
    line = (1 - share) * score(h_F, base, left) + share * score(h_F, base, right)
    return abs(score(h_F, base, s) - line)


def interpolation_bound(base: BaseRope, max_h: float, s: float, left: float, right: float) -> float:
    """What `interpolation_error` never exceeds when every |h_j| <= max_h.

    The error of a chord is at most max|a''| (s - left)(right - s) / 2, and |a''| <= max_h sum_j theta_j^2.
    """
    return max_h * _sum_of_squares(base) * (s - left) * (right - s) / 2


def interpolation_constant(base: BaseRope) -> float:
    """The bound halfway between neighbouring whole positions, for max|h| = 1: sum_j theta_j^2 / 8."""
    return interpolation_bound(base, 1.0, 0.5, 0.0, 1.0)


def paper_constant(base: BaseRope) -> float:
    """The same as the paper prints it, d / (32 ln theta). It does not hold."""
    return base.head_dim / (32 * math.log(base.theta))


def extrapolation_sum(base: BaseRope, s: float) -> float:
    """B(s) = sum over k of |sum_{j <= k} exp(i s theta_j)|: |a(s)| <= max|h_j - h_j+1| B(s) <= 2 max|h| B(s).

    By summation by parts, with h = 0 after the last pair.
    """
    partial, total = 0j, 0.0
    for w in base.inv_freq_F:
        partial += cmath.exp(1j * s * w)
        total += abs(partial)
    return total


def bound_ratio(base: BaseRope, s: float) -> float:
    """How much looser the bound on extrapolation is than the one on interpolation, at distance s."""
    return 2 * extrapolation_sum(base, s) / interpolation_constant(base)


def _sum_of_squares(base: BaseRope) -> float:
    """Sum of theta_j^2, a geometric series."""
    return (1 - base.theta**-2) / (1 - base.theta ** (-4 / base.head_dim))


def draw(out: Path) -> None:
    """The PI paper's figures 2 and 5 from the functions above: a fitted score, far away and close by, and B(s)."""
    from .bounds_figure import draw_figure

    draw_figure(BaseRope(theta=10000.0, head_dim=128, window=2048), out)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
