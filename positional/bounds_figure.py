"""The figure of `bounds`: why interpolated positions are safe and extrapolated ones are not, after arXiv:2306.15595."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .base import BaseRope
from .bounds import bound_ratio, extrapolation_sum, interpolation_bound

RED, BLUE, GREY = "#c4462d", "#0b5c94", "#8a949d"
POINTS = 9
"""Random scores that the curve is fitted to, evenly spaced inside the window."""


def draw_figure(base: BaseRope, out: Path) -> None:
    """Write four panels to `out`; the suffix gives the format. The same bytes each time."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context({"svg.hashsalt": "bounds", "svg.fonttype": "path", "font.size": 9}):
        figure, axes = plt.subplots(2, 2, figsize=(9, 6), layout="constrained")
        inside, beyond, near, sums = axes.flat
        _fitted(inside, beyond, near, base)
        _sums(sums, base)
        for axis in axes.flat:
            axis.spines[["top", "right"]].set_visible(False)
            axis.title.set_size(9.5)
        figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None, dpi=150)
        plt.close(figure)


def _fitted(inside: Any, beyond: Any, near: Any, base: BaseRope) -> None:
    """One score function fitted to random points: over the window, past it, and between whole positions."""
    import numpy as np

    freq_F = np.array(base.inv_freq_F)

    def waves(s: Any) -> Any:
        angles = np.multiply.outer(np.asarray(s, dtype=float), freq_F)
        return np.concatenate([np.cos(angles), -np.sin(angles)], axis=-1)

    rng = np.random.default_rng(2)
    spots = np.linspace(0, base.window, POINTS)
    values = rng.uniform(-1, 1, POINTS)
    # By the pairs that make at most one turn inside the window: what lies ahead of them was never seen in training.
    # (All pairs together fit as well with far smaller h, and then nothing explodes; training need not find that.)
    slow = freq_F <= 2 * np.pi / base.window
    columns = np.concatenate([slow, slow])
    weights = np.zeros(2 * len(freq_F))
    weights[columns] = np.linalg.lstsq(waves(spots)[:, columns], values, rcond=1e-13)[0]
    max_h = float(np.hypot(weights[: len(freq_F)], weights[len(freq_F) :]).max())

    s = np.arange(base.window + 1)
    inside.plot(s, waves(s) @ weights, color=RED, lw=1.2)
    inside.plot(spots, values, "o", color=BLUE, ms=4)
    inside.set(title="A score fitted inside the window, by the slow pairs", xlabel="distance s", ylabel="a(s)")
    far = np.arange(2 * base.window + 1)
    curve = waves(far) @ weights
    beyond.plot(far, curve, color=RED, lw=1.2)
    beyond.axvline(base.window, color=GREY, ls=":")
    beyond.set_yscale("symlog", linthresh=1)
    beyond.set(
        title="The same beyond it: extrapolation", xlabel="distance s", ylabel="a(s), log beyond 1", ylim=(-5, None)
    )
    _between(near, base, waves)
    beyond.text(0.98, 0.05, f"max|h| = {max_h:,.0f}", transform=beyond.transAxes, ha="right", color=GREY)


def _between(near: Any, base: BaseRope, waves: Any) -> None:
    """The hardest case between neighbours: all h_j = 1, around s = 0, where every pair bends the same way."""
    import numpy as np

    weights = np.concatenate([np.ones(base.num_freqs), np.zeros(base.num_freqs)])
    s = np.linspace(0, 6, 601)
    knots = np.arange(7)
    line = np.interp(s, knots, waves(knots) @ weights)
    room = np.array([interpolation_bound(base, 1.0, x, np.floor(x), np.floor(x) + 1) for x in s])
    near.fill_between(s, line - room, line + room, color=BLUE, alpha=0.2, lw=0, label="bound")
    near.plot(s, waves(s) @ weights, color=RED, lw=1.2, label="a(s), all h = 1")
    near.plot(knots, waves(knots) @ weights, "o", color=BLUE, ms=4, label="trained positions")
    near.set(title="Between positions: interpolation", xlabel="distance s", ylabel="a(s)")
    near.legend(frameon=False)


def _sums(axis: Any, base: BaseRope) -> None:
    distances = range(1, 2 * base.window + 1)
    values = [extrapolation_sum(base, s) / base.head_dim for s in distances]
    least = min(bound_ratio(base, s) for s in distances)
    axis.plot(distances, values, color=BLUE, lw=0.6)
    axis.axhline(1, color=GREY, ls=":")
    axis.set(title="The bound beyond the window: B(s) / d", xlabel="distance s", ylim=(0, None))
    axis.text(
        0.98,
        0.9,
        f"at least {int(least):,} times the bound between positions",
        transform=axis.transAxes,
        ha="right",
        color=GREY,
    )
