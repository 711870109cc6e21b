"""Scores and step metrics -> the rows of a Report. Pure functions; rows come out in a fixed order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from statistics import fmean, median
from typing import Any, TypeVar

from ..eval.score import THRESHOLDS, Score, k_max, wilson
from .collect import RunRecord
from .schema import (
    HEADLINE_THRESHOLD,
    UNTRAINED,
    CostRow,
    DataRow,
    GapRow,
    KMaxRow,
    LossSummary,
    Measured,
    NllRow,
    PasskeyLengthRow,
    PasskeyRow,
    PerplexityRow,
    RunRow,
    WindowSteps,
)

Key = tuple[str, str, int]
"""(method, arm, trained steps): which model was measured."""
Row = TypeVar("Row", bound=Measured)


def passkey_rows(scores: Iterable[Score]) -> tuple[PasskeyRow, ...]:
    """Counts by length and depth; trials of several seeds are put together."""
    counts: dict[tuple[Key, int, float], list[int]] = defaultdict(lambda: [0, 0])
    for score in scores:
        if score.task == "passkey" and score.depth is not None and score.correct is not None:
            cell = counts[_key(score), score.length, score.depth]
            cell[0] += score.correct
            cell[1] += score.n
    return tuple(
        PasskeyRow(**_named(key), length=length, depth=depth, correct=correct, n=n)
        for (key, length, depth), (correct, n) in sorted(counts.items())
    )


def passkey_by_length(rows: Iterable[PasskeyRow]) -> tuple[PasskeyLengthRow, ...]:
    """All depths of a length together, with the Wilson interval of the rate."""
    pooled = []
    for key, cells in _cells(rows).items():
        for length, (correct, n) in sorted(cells.items()):
            low, high = wilson(correct, n)
            pooled.append(PasskeyLengthRow(**_named(key), length=length, correct=correct, n=n, low=low, high=high))
    return tuple(pooled)


def k_max_rows(rows: Iterable[PasskeyRow]) -> tuple[KMaxRow, ...]:
    """k_max of every measured model at every threshold, and its version by lower interval ends."""
    found = []
    for key, cells in _cells(rows).items():
        for threshold in THRESHOLDS:
            at_rate, at_low = k_max(cells, threshold)
            found.append(
                KMaxRow(**_named(key), threshold=threshold, k_max=at_rate or 0, low=at_low or 0, longest=max(cells))
            )
    return tuple(found)


def steps_to_window(rows: Iterable[KMaxRow], windows: dict[str, int], default: int | None) -> tuple[WindowSteps, ...]:
    """For each method and arm: after how many measured steps k_max first reaches the window.

    `windows` is the target window by arm; `default` stands in for methods that no run trained. The untrained
    measurement of a method counts as step 0 of each of its arms. An arm whose longest tested length is below the
    window gives no row: nothing was measured there.
    """
    rows = [row for row in rows if row.threshold == HEADLINE_THRESHOLD]
    found = []
    for (method, arm), course in series(rows).items():
        window = windows.get(arm, default)
        course = [row for row in course if window is not None and row.longest >= window]
        if window is None or not course:
            continue
        reached = [row.trained for row in course if row.k_max >= window]
        first = min(reached) if reached else None
        held = first is None or all(row.k_max >= window for row in course if row.trained > first)
        found.append(
            WindowSteps(
                method=method,
                arm=arm,
                threshold=HEADLINE_THRESHOLD,
                window=window,
                steps=first,
                tried=max(row.trained for row in course),
                held=held,
            )
        )
    return tuple(found)


def series(rows: Iterable[Row]) -> dict[tuple[str, str], list[Row]]:
    """Rows by (method, arm), by training steps; untrained rows open every trained arm of their method.

    A method that was only measured untrained is a series of its own, with arm "untrained".
    """
    rows = list(rows)
    arms = {(row.method, row.arm) for row in rows if row.arm != UNTRAINED}
    trained_methods = {method for method, _ in arms}
    arms |= {(row.method, UNTRAINED) for row in rows if row.method not in trained_methods}
    return {
        (method, arm): sorted(
            (row for row in rows if row.method == method and row.arm in (arm, UNTRAINED)), key=lambda row: row.trained
        )
        for method, arm in sorted(arms, key=_series_order)
    }


def perplexity_rows(scores: Iterable[Score]) -> tuple[PerplexityRow, ...]:
    rows = [
        PerplexityRow(**_named(_key(s)), **_value(s), protocol=s.protocol, length=s.length, stride=_whole(s, "stride"))
        for s in _of_task(scores, "perplexity")
    ]
    return tuple(sorted(rows, key=lambda row: (row.method, row.arm, row.trained, row.protocol, row.length)))


def gap_rows(scores: Iterable[Score]) -> tuple[GapRow, ...]:
    rows = [GapRow(**_named(_key(s)), **_value(s), gap=int(s.extra["gap"])) for s in _of_task(scores, "gap")]
    return tuple(sorted(rows, key=lambda row: (row.method, row.arm, row.trained, row.gap)))


def nll_rows(scores: Iterable[Score]) -> tuple[NllRow, ...]:
    rows = [
        NllRow(**_named(_key(s)), **_value(s), first=int(s.extra["first"]), last=int(s.extra["last"]))
        for s in _of_task(scores, "nll_by_position")
    ]
    return tuple(sorted(rows, key=lambda row: (row.method, row.arm, row.trained, row.first)))


def loss_summary(run: RunRecord) -> LossSummary | None:
    """First and last tenth of the run's steps; None when no step was logged."""
    if not run.steps:
        return None
    tenth = max(1, len(run.steps) // 10)

    def mean(key: str, records: Iterable[dict[str, Any]]) -> float | None:
        values = [record[key] for record in records if key in record]
        return fmean(values) if values else None

    ends = {"first": run.steps[:tenth], "last": run.steps[-tenth:]}
    parts = {
        f"{end}_{part}": mean(f"loss_{part}", records) for end, records in ends.items() for part in ("inside", "beyond")
    }
    first, last = mean("loss", ends["first"]), mean("loss", ends["last"])
    if first is None or last is None:
        return None
    return LossSummary(arm=run.config.name, steps=len(run.steps), first=first, last=last, **parts)


def cost_row(run: RunRecord) -> CostRow | None:
    """Tokens, time, rate and memory of the run; None when no step was logged."""
    steps = run.steps
    if not steps or any("time_s" not in step or "tokens" not in step for step in steps):
        return None

    def middle(key: str) -> float | None:
        values = [step[key] for step in steps if key in step]
        return median(values) if values else None

    memory = [step["peak_memory_bytes"] for step in steps if "peak_memory_bytes" in step]
    return CostRow(
        arm=run.config.name,
        steps=steps[-1]["step"],
        tokens=steps[-1].get("tokens_total", sum(step["tokens"] for step in steps)),
        time_s=sum(step["time_s"] for step in steps),
        tokens_per_s=middle("tokens_per_s") or median(step["tokens"] / step["time_s"] for step in steps),
        peak_memory_bytes=max(memory) if memory else None,
        flops_per_s=middle("flops_per_s"),
        mfu=middle("mfu"),
    )


def data_rows(run: RunRecord) -> tuple[DataRow, ...]:
    """The row plans of the recipe, each with its share of the micro batches over the steps it takes part in."""
    total = run.config.train.steps
    shares: list[list[float]] = [[] for _ in run.config.data.rows]
    for step in range(total):
        weights = [
            plan.weight if plan.first_step <= step < (plan.last_step or total) else 0.0 for plan in run.config.data.rows
        ]
        for share, weight in zip(shares, weights, strict=True):
            if weight:
                share.append(weight / sum(weights))
    return tuple(
        DataRow(
            arm=run.config.name,
            row_tokens=plan.tokens,
            positions=plan.positions,
            share=fmean(share),
            steps=len(share),
            text=plan.text,
            passkey=plan.passkey,
            repeat=plan.repeat,
            first_step=plan.first_step,
            last_step=plan.last_step,
        )
        for plan, share in zip(run.config.data.rows, shares, strict=True)
        if share
    )


def run_row(run: RunRecord, method: str) -> RunRow:
    config = run.config
    model = config.model.base or "a new small model"
    return RunRow(
        arm=config.name,
        method=method,
        steps=run.steps[-1]["step"] if run.steps else 0,
        model=model.rstrip("/").split("/")[-1],
        original_window=config.rope.original_window,
        target_window=config.rope.target_window,
        seed=config.seed,
        commit=run.commit,
        dirty=run.dirty,
        versions=run.versions,
        hardware=run.hardware,
        recipe=run.recipe,
    )


def _key(score: Score) -> Key:
    return score.method, score.arm, score.trained_steps


def _named(key: Key) -> dict[str, Any]:
    return dict(zip(("method", "arm", "trained"), key, strict=True))


def _value(score: Score) -> dict[str, Any]:
    return {"value": score.value, "low": score.low, "high": score.high, "n": score.n}


def _whole(score: Score, key: str) -> int | None:
    return int(score.extra[key]) if key in score.extra else None


def _of_task(scores: Iterable[Score], task: str) -> Iterator[Score]:
    return (score for score in scores if score.task == task)


def _cells(rows: Iterable[PasskeyRow]) -> dict[Key, dict[int, tuple[int, int]]]:
    """(correct, n) by length, depths together, of every measured model."""
    cells: dict[Key, dict[int, tuple[int, int]]] = defaultdict(dict)
    for row in rows:
        of_model = cells[row.method, row.arm, row.trained]
        correct, n = of_model.get(row.length, (0, 0))
        of_model[row.length] = (correct + row.correct, n + row.n)
    return cells


def _series_order(name: tuple[str, str]) -> tuple[bool, bool, str, str]:
    """Trained methods first, the base model and direct extrapolation last."""
    method, arm = name
    return arm == UNTRAINED, method == "none", method, arm
