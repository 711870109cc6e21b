"""The progress line of an evaluation: tokens done, tokens a second, time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

Report = Callable[[str, int, int], None]
"""Told what is being measured, tokens newly done, and tokens of the whole evaluation that must be read."""


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f} tokens/s" if task.speed else "")


@contextmanager
def live_progress() -> Iterator[Report]:
    """A rich progress line on a terminal; one plain line at the end elsewhere."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"), _Rate())
    with Progress(*columns, TimeRemainingColumn(compact=True)) as progress:
        line = progress.add_task("evaluate", total=None)

        def report(what: str, new_tokens: int, all_tokens: int) -> None:
            progress.update(line, description=what, total=all_tokens, advance=new_tokens)

        yield report


def no_progress(what: str, new_tokens: int, all_tokens: int) -> None:
    """Say nothing."""
