"""One function a figure: rows in, SVG text out. Each is drawn once for a desk and once for a phone (`Size`).

Lines: solid with full markers = trained, dotted with hollow markers = untrained. Bands are 95 % intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from .canvas import MUTED, PAPER, LineStyle, Size, draw, mark_windows, plain_log_axis, spaced_log_ticks
from .schema import PasskeyRow
from .words import compact_tokens, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Curve:
    """One line of a figure: y with its interval over x."""

    label: str
    style: LineStyle
    trained: bool
    xs: tuple[float, ...]
    values: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]


@dataclass(frozen=True)
class LossCurve:
    """Training loss of one run in one position bucket ("inside" or "beyond" the original window, or "all")."""

    label: str
    style: LineStyle
    bucket: str
    steps: tuple[int, ...]
    losses: tuple[float, ...]


Windows = Sequence[tuple[str, int | None]]
"""Named windows to mark, e.g. ("L", 256)."""


def retrieval_by_steps(curves: Sequence[Curve], size: Size, window: int, threshold: float) -> str:
    """Share of keys found at the full window over training steps; measured steps stand at equal distances."""
    steps = sorted({x for curve in curves for x in curve.xs})
    place = {step: index for index, step in enumerate(steps)}

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for index, curve in enumerate(curves):
            nudge = 0.05 * (index - (len(curves) - 1) / 2)  # so that lines that coincide can be told apart
            _line(axes, curve, [place[x] + nudge for x in curve.xs], whiskers=True)
        axes.axhline(threshold, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        axes.annotate(
            percent(threshold),
            (0, threshold),
            xycoords=("axes fraction", "data"),
            xytext=(3, 3),
            textcoords="offset points",
            color=MUTED,
            fontsize=8,
        )
        axes.set_xticks(range(len(steps)), [f"{step:,.0f}" for step in steps])
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
        axes.set_ylim(-0.04, 1.04)
        axes.set_xlabel("training steps (0 = untrained)")
        axes.set_ylabel(f"keys found at {window:,} tokens")
        _legend(figure, axes)

    return draw(size, paint)


def perplexity_by_length(curves: Sequence[Curve], size: Size, windows: Windows) -> str:
    """Perplexity of the same tokens over the length of the window they are read in."""
    lengths = sorted({int(x) for curve in curves for x in curve.xs})
    return _over_tokens(curves, size, windows, lengths, ("window length, tokens", "perplexity"), _log_y)


def nll_by_position(curves: Sequence[Curve], size: Size, windows: Windows) -> str:
    """Mean loss of tokens over their position in one pass."""
    longest = max(x for curve in curves for x in curve.xs)
    powers = [2**k for k in range(0, 40, 2) if 2**k <= longest * 1.5]
    return _over_tokens(curves, size, windows, powers, ("position in the window", "loss, nats a token"), _linear_y)


def perplexity_by_gap(curves: Sequence[Curve], size: Size) -> str:
    """Perplexity of a block read after a jump in position, over the size of the jump."""

    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        for curve in curves:
            _line(axes, curve, curve.xs)
        _log_y(axes, curves)
        gaps = sorted({x for curve in curves for x in curve.xs})
        axes.set_xticks(gaps, [f"{gap:,.0f}" for gap in gaps])
        axes.set_xlabel("jump in position before the block, tokens")
        axes.set_ylabel("perplexity")
        _legend(figure, axes)

    return draw(size, paint)


def training_loss(curves: Sequence[LossCurve], size: Size) -> str:
    """Loss over steps, smoothed over a twentieth of the run, one panel for each position bucket."""
    names = {"inside": "targets inside L", "beyond": "targets beyond L", "all": "all targets"}
    buckets = [bucket for bucket in names if any(curve.bucket == bucket for curve in curves)]

    def paint(figure: Figure) -> None:
        beside = size.width > 5
        shape = (1, len(buckets)) if beside else (len(buckets), 1)
        panels = figure.subplots(*shape, squeeze=False, sharex=True, sharey=True).flat
        for axes, bucket in zip(panels, buckets, strict=True):
            for curve in curves:
                if curve.bucket == bucket:
                    style = curve.style
                    smooth = _smoothed(curve.losses)
                    axes.plot(curve.steps, curve.losses, color=style.colour, linewidth=0.5, alpha=0.25)
                    axes.plot(curve.steps, smooth, color=style.colour, linewidth=1.6, linestyle=style.dash)
                    end = (curve.steps[-1:], smooth[-1:])
                    axes.plot(*end, style.marker, color=style.colour, markersize=5, clip_on=False)
                    axes.plot([], [], style.marker, color=style.colour, linestyle=style.dash, label=curve.label)
            axes.set_title(names[bucket], fontsize=9, color=MUTED)
            if beside:
                axes.set_xlabel("training step")
        figure.axes[-1].set_xlabel("training step")
        figure.supylabel("loss, nats a token", fontsize=9)
        _legend(figure, next(iter(figure.axes)))

    taller = 0.9 * (len(buckets) - 1) if size.width <= 5 else 0
    return draw(Size(size.width, size.height + taller), paint)


def passkey_map(rows: Sequence[PasskeyRow], intervals: Sequence[tuple[float, float]]) -> str:
    """Length x depth map of one model: the darker, the more keys found; hovering a cell tells n and interval."""
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("found", ["#f4f1ea", "#b9d3e3", "#4f95bf", "#0b3f66"])
    lengths = sorted({row.length for row in rows})
    depths = sorted({row.depth for row in rows})
    titles = {
        f"cell-{index}": f"{row.length:,} tokens, depth {percent(row.depth)}: {row.correct} of {row.n} keys found "
        f"(95 % interval {100 * low:.0f} to {100 * high:.0f} %)"
        for index, (row, (low, high)) in enumerate(zip(rows, intervals, strict=True))
    }

    def paint(figure: Figure) -> None:
        from matplotlib.patches import Rectangle

        axes = figure.subplots()
        for row, gid in zip(rows, titles, strict=True):
            x, y, rate = lengths.index(row.length), depths.index(row.depth), row.correct / row.n
            cell = Rectangle((x, y), 1, 1, facecolor=shades(rate), edgecolor=PAPER, linewidth=1, gid=gid)
            axes.add_patch(cell)
            if len(lengths) <= 6:
                ink = (
                    "white" if rate > 0.55 else "#1b2026"
                )  # cells keep their colour in a dark page, so their text does
                axes.text(x + 0.5, y + 0.5, f"{100 * rate:.0f}", ha="center", va="center", fontsize=8.5, color=ink)
        axes.set_xlim(0, len(lengths))
        axes.set_ylim(len(depths), 0)
        every = -(-len(lengths) // 6)
        shown = range(0, len(lengths), every)
        axes.set_xticks([i + 0.5 for i in shown], [compact_tokens(lengths[i]) for i in shown], fontsize=8.5)
        axes.set_yticks([i + 0.5 for i in range(len(depths))], [f"{100 * d:.0f}" for d in depths], fontsize=8.5)
        axes.tick_params(length=0, pad=2)
        axes.grid(visible=False)
        for spine in axes.spines.values():
            spine.set_visible(False)

    margins = (0.3, 0.22, 0.03, 0.03)
    return draw(Size(2.0, 0.25 + 0.27 * len(depths)), paint, titles, margins)


def _over_tokens(
    curves: Sequence[Curve],
    size: Size,
    windows: Windows,
    ticks: Sequence[int],
    axis_labels: tuple[str, str],
    scale_y: Callable[[Axes, Sequence[Curve]], None],
) -> str:
    """Curves over a logarithmic axis of tokens, with the windows marked."""

    def paint(figure: Figure) -> None:
        from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

        axes = figure.subplots()
        for curve in curves:
            _line(axes, curve, curve.xs)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(spaced_log_ticks(ticks, 0.09 if size.width > 5 else 0.16)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        scale_y(axes, curves)
        mark_windows(axes, windows)
        axes.set_xlabel(axis_labels[0])
        axes.set_ylabel(axis_labels[1])
        _legend(figure, axes)

    return draw(size, paint)


def _line(axes: Axes, curve: Curve, xs: Sequence[float], whiskers: bool = False) -> None:
    """The curve with its interval, as a band or (where lines would hide in bands) as whiskers."""
    style = curve.style
    if whiskers:
        axes.vlines(xs, curve.lows, curve.highs, color=style.colour, linewidth=1, alpha=0.55)
    else:
        axes.fill_between(xs, curve.lows, curve.highs, color=style.colour, alpha=0.13, linewidth=0)
    axes.plot(
        xs,
        curve.values,
        color=style.colour,
        marker=style.marker,
        markersize=4.5,
        markerfacecolor=style.colour if curve.trained else PAPER,
        linestyle=style.dash if curve.trained else (0, (1, 1.6)),
        linewidth=1.7 if curve.trained else 1.3,
        label=curve.label,
    )


def _log_y(axes: Axes, curves: Sequence[Curve]) -> None:
    lows = [value for curve in curves for value in (*curve.values, *curve.lows)]
    highs = [value for curve in curves for value in (*curve.values, *curve.highs)]
    plain_log_axis(axes, min(lows), max(highs))


def _linear_y(axes: Axes, curves: Sequence[Curve]) -> None:
    axes.set_ylim(0.95 * min(value for curve in curves for value in curve.lows), None)


def _legend(figure: Figure, axes: Axes) -> None:
    """The names below the plot, in as many columns as fit; the figure grows by their rows."""
    handles, labels = axes.get_legend_handles_labels()
    if len(handles) < 2:
        return
    width, height = figure.get_size_inches()
    column_points = 44 + 4.2 * max(map(len, labels))
    columns = min(len(handles), max(1, int(72 * width / column_points)))
    rows = -(-len(handles) // columns)
    figure.set_size_inches(width, height + 0.17 * rows + 0.1)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=2.6, columnspacing=1.2)


def _smoothed(values: Sequence[float]) -> list[float]:
    """Mean over the twentieth of the run around each step."""
    reach = len(values) // 40
    return [fmean(values[max(0, i - reach) : i + reach + 1]) for i in range(len(values))]
