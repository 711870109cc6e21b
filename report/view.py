"""The tables of the page: rows of a Report as labelled text cells. No HTML here; the template lays them out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..eval.score import THRESHOLDS
from .drawings import Look, one_protocol
from .schema import (
    HEADLINE_THRESHOLD,
    UNTRAINED,
    CostRow,
    GapRow,
    KMaxRow,
    Measured,
    PasskeyLengthRow,
    PerplexityRow,
    Report,
)
from .tables import Row, series
from .words import byte_size, duration, number, percent, state_label, steps_label


@dataclass(frozen=True)
class Cell:
    """`main` is the figure, `small` what qualifies it (an interval, a bound); empty where nothing was measured."""

    main: str = ""
    small: str = ""


@dataclass(frozen=True)
class Line:
    head: str
    cells: tuple[Cell, ...]
    small: str = ""


@dataclass(frozen=True)
class Table:
    """`corner` heads the column of line heads. `groups` are (heading or "", lines)."""

    corner: str
    columns: tuple[str, ...]
    groups: tuple[tuple[str, tuple[Line, ...]], ...]


@dataclass(frozen=True)
class Card:
    """One arm of the headline."""

    label: str
    figure: str
    unit: str
    detail: str
    good: bool


def headline_cards(report: Report, seen: Look) -> list[Card]:
    """Steps to the full window, the quickest first."""
    best = {(row.arm, row.method): row for row in report.k_max if row.threshold == HEADLINE_THRESHOLD}
    best = {key: row for key, row in sorted(best.items(), key=lambda item: item[1].trained)}
    cards = []
    for found in sorted(report.steps_to_window, key=lambda row: (row.steps is None, row.steps or 0)):
        if found.arm == UNTRAINED and found.steps is None:
            continue  # never trained: there is no course to speak of
        label = seen.labels[found.method, found.arm]
        last = best.get((found.arm, found.method)) or best.get((UNTRAINED, found.method))
        when = f"after {steps_label(last.trained)}" if last and last.trained else "untrained"
        reached = f"k_max {last.k_max:,} {when}" if last else ""
        if found.steps is None:
            card = Card(
                label, "not reached", f"in {steps_label(found.tried)}" if found.tried else "untrained", reached, False
            )
        elif found.steps == 0:
            card = Card(label, "0", "steps: untrained", reached, True)
        else:
            again = "" if found.held else "; a later measurement fell below"
            card = Card(label, f"{found.steps:,}", "steps", reached + again, found.held)
        cards.append(card)
    return cards


def before_after(report: Report, seen: Look) -> Table:
    """One line an arm: what retrieval and perplexity were untrained, and are after the last measured step.

    The base model, the yardstick of the others, has the first line.
    """
    original, target = report.original_window or 0, report.target_window or 0
    k_max = [row for row in report.k_max if row.threshold == HEADLINE_THRESHOLD]
    ppl = one_protocol(report.perplexity)
    near, far = ([row for row in ppl if row.length == window] for window in (original, target))
    gaps = () if far else report.gap  # the far positions themselves say more, where they were measured
    no_gap = [row for row in gaps if row.gap == 0]
    largest = max((row.gap for row in gaps), default=0)
    wide_gap = [row for row in gaps if row.gap == largest > 0]
    found = [row for row in report.passkey_by_length if row.length == target]
    columns = {
        f"k_max at {percent(HEADLINE_THRESHOLD)}": _ends(k_max, lambda row: f"{row.k_max:,}"),
        f"keys found at {target:,}": _ends(found, lambda row: percent(row.correct / row.n)),
        f"perplexity at {original:,}": _ends(near, lambda row: number(row.value)),
        f"perplexity at {target:,}": _ends(far, lambda row: number(row.value)),
        f"× base’s at {original:,}": _against_base(far, near),
        "perplexity at gap 0": _ends(no_gap, lambda row: number(row.value)),
        f"perplexity at gap {largest:,}": _ends(wide_gap, lambda row: number(row.value)),
        "× base’s at gap 0": _against_base(wide_gap, no_gap),
    }
    columns = {name: cells for name, cells in columns.items() if cells}
    base = ("none", UNTRAINED)
    lines = []
    for arm in dict.fromkeys((base, *seen.labels)):
        cells = tuple(column.get(arm, Cell()) for column in columns.values())
        if any(cell.main for cell in cells):
            lines.append(Line(seen.labels[arm], cells, _steps_of(arm, report)))
    return Table("method", tuple(columns), (("", tuple(lines)),))


def k_max_table(report: Report, seen: Look) -> Table:
    """k_max at each threshold for every measured model, by arm."""
    groups = []
    for arm, rows in series(report.k_max).items():
        lines = []
        for trained in sorted({row.trained for row in rows}):
            cells = {row.threshold: _k_max_cell(row) for row in rows if row.trained == trained}
            lines.append(Line(state_label(arm[0], trained), tuple(cells.get(t, Cell()) for t in THRESHOLDS)))
        groups.append((seen.labels[arm], tuple(lines)))
    return Table("trained", tuple(f"at {percent(t)}" for t in THRESHOLDS), tuple(groups))


def perplexity_table(report: Report, seen: Look) -> Table:
    """Perplexity with its interval, a line a measured model, a column a length."""
    rows = one_protocol(report.perplexity)
    lengths = sorted({row.length for row in rows})
    return Table(
        "trained",
        tuple(f"{length:,} tokens" for length in lengths),
        _value_groups(rows, seen, lambda row: row.length, lengths),
    )


def gap_table(report: Report, seen: Look) -> Table:
    gaps = sorted({row.gap for row in report.gap})
    return Table(
        "trained", tuple(f"gap {gap:,}" for gap in gaps), _value_groups(report.gap, seen, lambda row: row.gap, gaps)
    )


def ends_only(table: Table) -> Table:
    """The first and the last line of each group: untrained and fully trained."""
    groups = ((heading, lines if len(lines) < 3 else (lines[0], lines[-1])) for heading, lines in table.groups)
    return Table(table.corner, table.columns, tuple(groups))


def cost_table(rows: Iterable[CostRow], methods: dict[str, str]) -> Table:
    """Tokens, time, rate and memory of each run; columns that no run measured are left out."""
    rows = list(rows)
    columns = {
        "steps": [f"{row.steps:,}" for row in rows],
        "tokens": [f"{row.tokens:,}" for row in rows],
        "time": [duration(row.time_s) for row in rows],
        "tokens/s": [f"{row.tokens_per_s:,.0f}" for row in rows],
        "peak memory": [byte_size(row.peak_memory_bytes) if row.peak_memory_bytes else "" for row in rows],
        "GFLOP/s": [f"{row.flops_per_s / 1e9:,.1f}" if row.flops_per_s else "" for row in rows],
        "MFU": [percent(row.mfu) if row.mfu else "" for row in rows],
    }
    columns = {name: cells for name, cells in columns.items() if any(cells)}
    lines = [
        Line(row.arm, tuple(Cell(cells[i]) for cells in columns.values()), methods.get(row.arm, ""))
        for i, row in enumerate(rows)
    ]
    return Table("run", tuple(columns), (("", tuple(lines)),))


def loss_table(report: Report) -> Table:
    """Loss over the first and the last tenth of each run."""
    names = {"all targets": "", "inside L": "_inside", "beyond L": "_beyond"}
    columns: dict[str, list[Cell]] = {}
    for name, suffix in names.items():
        pairs = [(getattr(row, f"first{suffix}"), getattr(row, f"last{suffix}")) for row in report.loss]
        if any(last is not None for _, last in pairs):
            columns[name] = [
                Cell(f"{a:.2f} → {b:.2f}") if a is not None and b is not None else Cell() for a, b in pairs
            ]
    lines = [Line(row.arm, tuple(c[i] for c in columns.values())) for i, row in enumerate(report.loss)]
    return Table("run", tuple(columns), (("", tuple(lines)),))


def _ends(rows: Iterable[Row], text: Callable[[Row], str]) -> dict[tuple[str, str], Cell]:
    """First -> last measurement of each arm, the last with its interval; only the one where there is but one.

    The base model gets its own cell also where it opens the course of direct fine-tuning.
    """
    rows = list(rows)
    base = [row for row in rows if (row.method, row.arm) == ("none", UNTRAINED)]
    found = {("none", UNTRAINED): Cell(text(base[0]), _interval(base[0]))} if base else {}
    for arm, course in series(rows).items():
        first, last = course[0], course[-1]
        main = f"{text(first)} → {text(last)}" if last.trained > first.trained else text(last)
        found[arm] = Cell(main, _interval(last))
    return found


def _against_base(
    rows: Iterable[PerplexityRow | GapRow], references: Iterable[PerplexityRow | GapRow]
) -> dict[tuple[str, str], Cell]:
    """The last value of each arm as a multiple of the untrained base's reference; empty without a reference."""
    base = [row.value for row in references if (row.method, row.arm) == ("none", UNTRAINED)]
    if not base:
        return {}
    ratios = _ends(rows, lambda row: f"{row.value / base[0]:.2f}")
    return {arm: Cell(cell.main) for arm, cell in ratios.items()}


def _interval(row: Measured) -> str:
    if isinstance(row, PasskeyLengthRow):
        return f"{100 * row.low:.0f}–{100 * row.high:.0f} %, n = {row.n}"
    if isinstance(row, KMaxRow):
        return _proven(row)
    if isinstance(row, PerplexityRow | GapRow):
        return f"{number(row.low)}–{number(row.high)}"
    return ""


def _k_max_cell(row: KMaxRow) -> Cell:
    return Cell(f"{row.k_max:,}", _proven(row))


def _proven(row: KMaxRow) -> str:
    """What the intervals support, where it is less than k_max; trials can never prove a rate of 100 %."""
    if row.low == row.k_max or row.threshold >= 1:
        return ""
    return f"≥ {row.low:,}"


def _value_groups(rows: Iterable[Row], seen: Look, x, xs: list[int]) -> tuple[tuple[str, tuple[Line, ...]], ...]:
    groups = []
    for arm, course in series(rows).items():
        lines = []
        for trained in sorted({row.trained for row in course}):
            cells = {x(row): Cell(number(row.value), _interval(row)) for row in course if row.trained == trained}  # type: ignore[attr-defined]
            lines.append(Line(state_label(arm[0], trained), tuple(cells.get(value, Cell()) for value in xs)))
        groups.append((seen.labels[arm], tuple(lines)))
    return tuple(groups)


def _steps_of(arm: tuple[str, str], report: Report) -> str:
    """The two states a line compares, e.g. "untrained → 200 steps"."""
    method, name = arm
    measured = [row for rows in (report.k_max, report.perplexity, report.gap) for row in rows if row.method == method]
    trained = [row.trained for row in measured if row.arm == name]
    opens = any(row.arm == UNTRAINED for row in measured) and name != UNTRAINED
    return f"{'untrained → ' if opens else ''}{steps_label(max(trained))}" if trained else ""
