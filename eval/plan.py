"""What is to be measured: the recipe's `eval` section with what the command line says over it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..config import EvalSection, GapTask, PasskeyTask, PerplexityTask
from ..errors import EvalError
from .position import PositionTask, default_windows

TASKS = ("perplexity", "nll-by-position", "passkey", "gap")


@dataclass(frozen=True)
class Plan:
    """The benchmarks to run; None is not run."""

    perplexity: PerplexityTask | None = None
    position: PositionTask | None = None
    passkey: PasskeyTask | None = None
    gap: GapTask | None = None

    @property
    def needs_text(self) -> bool:
        """Whether anything but passkeys is measured."""
        return any((self.perplexity, self.position, self.gap))


def eval_plan(
    section: EvalSection,
    tasks: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    trials: int | None = None,
    windows: int | None = None,
) -> Plan:
    """The section's benchmarks, or the named `tasks`, at the section's lengths or at `lengths`.

    For a named task that the section lacks `lengths` must be given (`gap` must stand in the section). Loss by position
    is measured at the longest length, beside every perplexity the section asks for. EvalError says what is missing.
    """
    if tasks is None:
        stated = {"perplexity": section.perplexity, "passkey": section.passkey, "gap": section.gap}
        tasks = [name for name, task in stated.items() if task is not None]
        tasks += ["nll-by-position"] if section.perplexity is not None else []
    if unknown := [name for name in tasks if name not in TASKS]:
        raise EvalError(f"--tasks {', '.join(unknown)}: no such benchmark. There are {', '.join(TASKS)}.")
    if not tasks:
        raise EvalError("nothing to measure: the recipe has no `eval` section. Name benchmarks with --tasks.")
    if lengths is not None and (not lengths or min(lengths) < 2):
        raise EvalError(f"--lengths {','.join(map(str, lengths))}: give token counts of 2 or more, such as 256,2048.")
    return Plan(
        perplexity=_perplexity(section, lengths, windows) if "perplexity" in tasks else None,
        position=_position(section, lengths, windows) if "nll-by-position" in tasks else None,
        passkey=_passkey(section, lengths, trials) if "passkey" in tasks else None,
        gap=_gap(section, windows) if "gap" in tasks else None,
    )


def _perplexity(section: EvalSection, lengths: Sequence[int] | None, windows: int | None) -> PerplexityTask:
    chosen = tuple(lengths) if lengths else _stated(section.perplexity, "perplexity").lengths
    if section.perplexity is None:
        task = PerplexityTask(lengths=chosen, stride=min(256, min(chosen) // 2))
    else:
        task = section.perplexity.model_copy(update={"lengths": chosen})
    return task if windows is None else task.model_copy(update={"windows": windows})


def _position(section: EvalSection, lengths: Sequence[int] | None, windows: int | None) -> PositionTask:
    length = max(lengths or _stated(section.perplexity, "perplexity").lengths)
    return PositionTask(length, windows or default_windows(length))


def _passkey(section: EvalSection, lengths: Sequence[int] | None, trials: int | None) -> PasskeyTask:
    chosen = tuple(lengths) if lengths else _stated(section.passkey, "passkey").lengths
    task = (section.passkey or PasskeyTask(lengths=chosen)).model_copy(update={"lengths": chosen})
    return task if trials is None else task.model_copy(update={"trials": trials})


T = TypeVar("T")


def _gap(section: EvalSection, windows: int | None) -> GapTask:
    task = _stated(section.gap, "gap")
    return task if windows is None else task.model_copy(update={"windows": windows})


def _stated(task: T | None, name: str) -> T:
    if task is None:
        raise EvalError(
            f"the recipe has no eval.{name}: set it there" + (", or give --lengths." if name != "gap" else ".")
        )
    return task
