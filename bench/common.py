"""What the bench scripts share: alternating runs, medians, and the record of a result. Not a bench itself."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropewalk.run_folder import provenance

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Bench:
    """One claim: `ours` needs at least `goal` times less of something than `peer`."""

    name: str
    compared: str
    """What is set against what."""
    on: str
    """The input, with its sizes."""
    goal: float

    def finish(self, figure: float, details: Mapping[str, Any]) -> None:
        """Print and write the figure (a ratio, larger is better) and exit: 0 when it reaches the goal, else 1."""
        ok = figure >= self.goal
        record = {
            "name": self.name,
            "compared": self.compared,
            "on": self.on,
            "figure": round(figure, 3),
            "goal": self.goal,
            "ok": ok,
            "details": details,
            **provenance(),
        }
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{self.name}.json").write_text(json.dumps(record, indent=2) + "\n")
        print(f"compared: {self.compared}\non: {self.on}")
        for key, value in details.items():
            print(f"  {key}: {value}")
        print(f"{self.name}: {figure:.2f}x (goal {self.goal:g}x) {'ok' if ok else 'short'}")
        sys.exit(0 if ok else 1)


@dataclass(frozen=True)
class Timed:
    """Seconds of each counted repetition of one arm, and what its last one returned."""

    seconds: list[float]
    result: Any

    @property
    def median(self) -> float:
        """The middle repetition, seconds."""
        return statistics.median(self.seconds)


def alternate(arms: Mapping[str, Callable[[], Any]], repetitions: int) -> dict[str, Timed]:
    """Run each arm once to warm up, then `repetitions` times in turn, the order reversed each round.

    What else the machine does then falls on all arms alike.
    """
    results = {name: run() for name, run in arms.items()}
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    names = list(arms)
    for _ in range(repetitions):
        for name in names:
            started = time.perf_counter()
            results[name] = arms[name]()
            seconds[name].append(time.perf_counter() - started)
        names.reverse()
    return {name: Timed(seconds[name], results[name]) for name in arms}
