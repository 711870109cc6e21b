"""How every figure looks, and how a matplotlib figure becomes SVG that stands alone or inside the page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from .schema import UNTRAINED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID, PAPER = "#1b2025", "#626c76", "#dde2e7", "#fffffe"
PAGE_COLOURS = {INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--grid)", PAPER: "var(--paper)"}
"""Inside the page these follow its light or dark scheme."""

METHOD_COLOURS = {
    "linear": "#0072B2",
    "yarn": "#D55E00",
    "direct": "#009E73",
    "ntk": "#CC79A7",
    "abf": "#B8860B",
    "llama3": "#56B4E9",
}
OTHER_COLOURS = ("#8A5A9E", "#7A7A2A", "#4B6F8C", "#A33B4F")
"""Wong's palette (Nature Methods 8:441), safe for colour-blind readers; markers tell the lines apart in grey."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


@dataclass(frozen=True)
class Size:
    """Inches; one for a desk and one for a phone, so that text stays legible on both."""

    width: float
    height: float
    """Without the legend, which adds a line for each row of names."""


WIDE = Size(7.6, 3.4)
NARROW = Size(3.7, 3.1)


@dataclass(frozen=True)
class LineStyle:
    colour: str
    marker: str
    dash: str


def line_styles(arms: Sequence[tuple[str, str]]) -> dict[tuple[str, str], LineStyle]:
    """The look of each (method, arm), the same in all figures. Base model: ink."""
    spare = iter(OTHER_COLOURS * (1 + len(arms)))
    dashes = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)))
    seen: dict[str, int] = {}
    styles = {}
    for index, (method, arm) in enumerate(arms):
        name = method.partition(":")[0]
        kind = "direct" if name == "none" else name
        if name == "none" and arm == UNTRAINED:
            colour, marker = INK, MARKERS[0]
        else:
            colour, marker = METHOD_COLOURS.get(kind) or next(spare), MARKERS[1 + index % (len(MARKERS) - 1)]
        repeat = seen[kind] = seen.get(kind, -1) + 1
        styles[method, arm] = LineStyle(colour, marker, dashes[repeat % len(dashes)])  # type: ignore[arg-type]
    return styles


def draw(
    size: Size,
    paint: Callable[[Figure], None],
    titles: Mapping[str, str] | None = None,
    margins: tuple[float, float, float, float] | None = None,
) -> str:
    """Run `paint` on an empty figure of `size` and return the SVG text, with no date and no random ids.

    `titles` maps the gid of an artist to the text that shows on hover over it. `margins` (left, bottom, right, top, in
    inches) place the axes; without them the labels are measured, which costs a second drawing.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings: dict[Any, Any] = {
        "font.family": "DejaVu Sans",  # ships with matplotlib, and is wider than most: text never outgrows its place
        "font.size": 9,
        "figure.facecolor": PAPER,
        "savefig.facecolor": PAPER,
        "axes.facecolor": PAPER,
        "axes.edgecolor": MUTED,
        "axes.labelcolor": INK,
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": GRID,
        "grid.linewidth": 0.7,
        "text.color": INK,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "legend.frameon": False,
        "legend.fontsize": 8.5,
        "svg.fonttype": "none",
        "svg.hashsalt": "ropewalk",
    }
    with mpl.rc_context(settings):
        figure = Figure(figsize=(size.width, size.height), layout=None if margins else "constrained")
        if margins:
            left, bottom, right, top = margins
            figure.subplots_adjust(
                left / size.width, bottom / size.height, 1 - right / size.width, 1 - top / size.height
            )
        paint(figure)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = svg.replace("'DejaVu Sans'", "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans'")
    for gid, title in (titles or {}).items():
        svg = svg.replace(f'<g id="{gid}">', f'<g id="{gid}"><title>{escape(title)}</title>', 1)
    return svg


def for_page(svg: str, name: str, described: str) -> str:
    """The SVG for inside HTML: its own id space, the page's colours, a width that follows the column, and a name."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    svg = re.sub(r'xlink:href="#([^"]+)"', rf'href="#{name}-\1"', svg)
    for colour, variable in PAGE_COLOURS.items():
        svg = svg.replace(colour, variable)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(described)}" ', 1)


def mark_windows(axes: Axes, windows: Sequence[tuple[str, int | None]]) -> None:
    """A dashed upright line with its name at each known window."""
    for name, tokens in windows:
        if tokens:
            axes.axvline(tokens, color=MUTED, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
            axes.annotate(
                f"{name} = {tokens:,}",
                (tokens, 1),
                xycoords=("data", "axes fraction"),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                va="bottom",
                color=MUTED,
                fontsize=8,
            )


def spaced_log_ticks(values: Sequence[int], min_gap: float) -> list[int]:
    """Those of the values whose labels have room on a logarithmic axis; the ends always stay.

    `min_gap` is the room one label needs, as a share of the axis.
    """
    from math import log

    ordered = sorted(set(values))
    if len(ordered) < 3:
        return ordered
    span = log(ordered[-1] / ordered[0])
    kept = [ordered[0]]
    for value in ordered[1:-1]:
        if log(value / kept[-1]) / span >= min_gap and log(ordered[-1] / value) / span >= min_gap:
            kept.append(value)
    return [*kept, ordered[-1]]


def plain_log_axis(axes: Axes, low: float, high: float) -> None:
    """A logarithmic y axis from `low` to `high` whose ticks are round numbers written in full."""
    from math import floor, log10

    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = low / 1.15, high * 1.1
    decades = range(floor(log10(low)), floor(log10(high)) + 1)
    for steps in ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9), (1, 1.5, 2, 3, 5, 7), (1, 2, 5), (1, 3), (1,)):
        ticks = [step * 10.0**decade for decade in decades for step in steps if low <= step * 10.0**decade <= high]
        if len(ticks) <= 8:
            break
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
