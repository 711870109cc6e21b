"""Which rows become which figure: from a Report (and the runs' step metrics) to the SVGs of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..eval.score import wilson
from . import figures
from .canvas import NARROW, WIDE, LineStyle, Size, for_page, line_styles
from .collect import RunRecord
from .figures import Curve, LossCurve
from .schema import HEADLINE_THRESHOLD, UNTRAINED, PasskeyLengthRow, PasskeyRow, PerplexityRow, Report
from .tables import Row, series
from .words import arm_labels, arm_suffixes, method_name, method_title, steps_label

Arm = tuple[str, str]


@dataclass(frozen=True)
class Drawing:
    """One figure: the file's SVG, and its two forms for inside the page (the narrow one None where one form serves)."""

    name: str
    file: str
    wide: str
    narrow: str | None


@dataclass(frozen=True)
class Look:
    """Labels and line styles of all arms, the same through the page."""

    labels: dict[Arm, str]
    styles: dict[Arm, LineStyle]


def look(report: Report) -> Look:
    measured = (report.k_max, report.perplexity, report.gap, report.nll_by_position)
    arms = dict.fromkeys(arm for rows in measured for arm in series(rows))
    arms |= dict.fromkeys((run.method, run.arm) for run in report.runs)
    trained = {method for method, arm in arms if arm != UNTRAINED}
    ordered = [arm for arm in arms if arm[1] != UNTRAINED or arm[0] not in trained]
    ordered += [] if ("none", UNTRAINED) in ordered else [("none", UNTRAINED)]
    own = {run.arm: method_name(run.method) for run in report.runs}
    suffixes = arm_suffixes({run.arm: run.method for run in report.runs}, report.training_rows)
    labels = arm_labels(ordered, own, suffixes)
    labels |= {(run.method, run.arm): "trained from scratch" for run in report.runs if run.recipe["model"].get("fresh")}
    return Look(labels, line_styles(ordered))


def page_drawings(report: Report, runs: Sequence[RunRecord], seen: Look) -> dict[str, Drawing]:
    """Every figure whose measurements exist, by name."""
    windows = (("L", report.original_window), ("L′", report.target_window))
    drawings = {}

    def add(name: str, described: str, drawn: Callable[[Size], str]) -> None:
        wide, narrow = drawn(WIDE), drawn(NARROW)
        page = (for_page(wide, f"{name}-w", described), for_page(narrow, f"{name}-n", described))
        drawings[name] = Drawing(name, wide, *page)

    window = report.target_window
    course = retrieval_curves(report.passkey_by_length, window, seen) if window else []
    if window and any(len(curve.xs) > 1 for curve in course):
        add(
            "retrieval-by-steps",
            f"Share of keys found at {window} tokens over training steps, by method",
            lambda size: figures.retrieval_by_steps(course, size, window, HEADLINE_THRESHOLD),
        )
    by_length = curves(one_protocol(report.perplexity), seen, lambda row: row.length)
    if by_length:
        add(
            "perplexity-by-length",
            "Perplexity over window length, by method, before and after training",
            lambda size: figures.perplexity_by_length(by_length, size, windows),
        )
    by_position = curves(report.nll_by_position, seen, lambda row: (max(row.first, 1) * (row.last + 1)) ** 0.5)
    if by_position:
        add(
            "loss-by-position",
            "Loss over position in the window, by method, before and after training",
            lambda size: figures.nll_by_position(by_position, size, windows),
        )
    by_gap = curves(report.gap, seen, lambda row: row.gap)
    if by_gap:
        add(
            "perplexity-by-gap",
            "Perplexity after a jump in position, by method, before and after training",
            lambda size: figures.perplexity_by_gap(by_gap, size),
        )
    losses = loss_curves(report, runs, seen)
    if losses:
        add("training-loss", "Training loss over steps, by run", lambda size: figures.training_loss(losses, size))
    return drawings


def passkey_maps(report: Report, seen: Look) -> dict[Arm, list[tuple[int, Drawing]]]:
    """For each method and arm: (trained steps, map) in order of training."""
    maps: dict[Arm, list[tuple[int, Drawing]]] = {}
    for number, (arm, rows) in enumerate(series(report.passkey).items()):
        label = seen.labels[arm]
        for trained in sorted({row.trained for row in rows}):
            cells = [row for row in rows if row.trained == trained]
            name = f"passkey-{_slug(arm, number)}-{trained:06d}"
            svg = figures.passkey_map(cells, [wilson(row.correct, row.n) for row in cells])
            described = f"Keys found by length and depth: {label}, {steps_label(trained)}"
            maps.setdefault(arm, []).append((trained, Drawing(name, svg, for_page(svg, name, described), None)))
    return maps


def curves(rows: Sequence[Row], seen: Look, x: Callable[[Row], float]) -> list[Curve]:
    """Each arm after its last measured step, and each method untrained (once, though arms share it)."""
    found: dict[Arm, Curve] = {}
    for (method, arm), course in series(rows).items():
        untrained = [row for row in course if row.trained == 0 and row.arm == UNTRAINED]
        if untrained:
            base = method == "none"
            label = "base model" if base else f"{method_title(method)}, untrained"
            style = seen.styles[("none", UNTRAINED) if base else (method, arm)]
            found.setdefault((method, UNTRAINED), _curve(untrained, label, style, False, x))
        last = max(row.trained for row in course)
        trained = [row for row in course if row.trained == last and row.arm == arm != UNTRAINED]
        if trained:
            label = f"{seen.labels[method, arm]}, {steps_label(last)}"
            found[method, arm] = _curve(trained, label, seen.styles[method, arm], True, x)
    return sorted(found.values(), key=lambda curve: curve.label != "base model")  # a stable sort: the base comes first


def retrieval_curves(rows: Sequence[PasskeyLengthRow], window: int, seen: Look) -> list[Curve]:
    """Share of keys found at the window over training steps, for every trained arm measured there."""
    at_window = [row for row in rows if row.length == window]
    return [
        Curve(
            label=seen.labels[arm],
            style=seen.styles[arm],
            trained=True,
            xs=tuple(row.trained for row in course),
            values=tuple(row.correct / row.n for row in course),
            lows=tuple(row.low for row in course),
            highs=tuple(row.high for row in course),
        )
        for arm, course in series(at_window).items()
        if arm[1] != UNTRAINED
    ]


def one_protocol(rows: Sequence[PerplexityRow]) -> list[PerplexityRow]:
    """Rows of the protocol and stride measured most: values of two protocols do not belong on one axis."""
    kinds = [(row.protocol, row.stride) for row in rows]
    return [row for row, kind in zip(rows, kinds, strict=True) if kind == max(kinds, key=kinds.count)]


def loss_curves(report: Report, runs: Sequence[RunRecord], seen: Look) -> list[LossCurve]:
    """Training loss of each run inside and beyond the original window, or in all where the log does not tell."""
    methods = {run.arm: run.method for run in report.runs}
    found = []
    for run in runs:
        arm = (methods[run.config.name], run.config.name)
        split = any("loss_inside" in step for step in run.steps)
        for bucket, key in (("inside", "loss_inside"), ("beyond", "loss_beyond")) if split else (("all", "loss"),):
            steps = [step for step in run.steps if key in step]
            if steps:
                found.append(
                    LossCurve(
                        label=seen.labels[arm],
                        style=seen.styles[arm],
                        bucket=bucket,
                        steps=tuple(step["step"] for step in steps),
                        losses=tuple(step[key] for step in steps),
                    )
                )
    return found


def map_legend(rows: Sequence[PasskeyRow]) -> str:
    """How many trials a cell of the maps holds."""
    trials = sorted({row.n for row in rows})
    return f"{trials[0]}" if len(trials) == 1 else f"{trials[0]} to {trials[-1]}"


def _curve(rows: Sequence[Row], label: str, style: LineStyle, trained: bool, x: Callable[[Row], float]) -> Curve:
    ordered = sorted(rows, key=x)
    columns = {name: tuple(getattr(row, name) for row in ordered) for name in ("value", "low", "high")}
    xs = tuple(x(row) for row in ordered)
    return Curve(label, style, trained, xs, columns["value"], columns["low"], columns["high"])


def _slug(arm: Arm, number: int) -> str:
    """A file name for an arm: letters and digits only, with its number so that no two are alike."""
    kept = "".join(c if c.isalnum() else "-" for c in (arm[1] if arm[1] != UNTRAINED else arm[0]))
    return f"{number}-{kept}".lower()
