"""Atomic checkpoints: written aside, fsynced, renamed, marked complete last; verified before they are trusted.

A checkpoint folder `checkpoints/step_000400/` holds the engine's state, `train_state.json`, one RNG file a rank, and
`COMPLETE.json`: the size and SHA-256 of every other file. A folder without a marker, or whose files do not match it, is
not a checkpoint; resuming falls back to the one before and says so.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from .engine import Engine
from .errors import RunError

MARKER = "COMPLETE.json"
_PARTIAL = ".partial-"


@dataclass(frozen=True)
class TrainState:
    """Where a run stands. The data cursor is the step alone: batches are a pure function of (seed, step, index)."""

    step: int
    """Optimizer steps done."""
    tokens: int
    """Input tokens seen."""
    seconds: float
    """Training time so far, over all sittings."""
    world_size: int


def save_checkpoint(engine: Engine, root: Path, state: TrainState, keep: int) -> Path:
    """Write the checkpoint of `state.step`, then delete the oldest beyond `keep`. Collective.

    Raises RunError when the disk refuses; earlier checkpoints stay as they were.
    """
    target = root / f"step_{state.step:06d}"
    partial = root / f"{_PARTIAL}{target.name}"
    problem = ""
    if engine.world.leads:
        with _as_problem() as found:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        problem = found[0]
    _agree(engine, problem, root)
    with _as_problem() as found:
        engine.save(partial)
        torch.save(torch.get_rng_state(), partial / f"rng_rank{engine.world.rank}.pt")
    _agree(engine, found[0], root)
    if engine.world.leads:
        with _as_problem() as found:
            (partial / "train_state.json").write_text(json.dumps(asdict(state)))
            write_marker(partial)
            shutil.rmtree(target, ignore_errors=True)  # an incomplete or corrupt one of the same step
            os.replace(partial, target)
            fsync_folder(root)
            for old in complete_checkpoints(root)[:-keep]:
                shutil.rmtree(old)
    _agree(engine, found[0] if engine.world.leads else "", root)
    return target


def resume(engine: Engine, root: Path, say: Callable[[str], None]) -> TrainState | None:
    """Load the newest checkpoint that is whole; None when there is none. Collective.

    A damaged one is passed over for the one before, with a line through `say`.
    """
    for folder in reversed(complete_checkpoints(root)):
        problem = damage(folder) if engine.world.leads else ""
        if engine.any_rank(bool(problem)):
            if problem:
                say(f"checkpoint {folder.name} is damaged ({problem}); falling back to the one before")
            continue
        state = TrainState(**json.loads((folder / "train_state.json").read_text()))
        if state.world_size != engine.world.size:
            raise RunError(
                f"checkpoint {folder.name} was written by {state.world_size} ranks and this run has "
                f"{engine.world.size}. Resume with --ranks {state.world_size}."
            )
        engine.load(folder)
        torch.set_rng_state(torch.load(folder / f"rng_rank{engine.world.rank}.pt", weights_only=True))
        return state
    return None


def complete_checkpoints(root: Path) -> list[Path]:
    """Checkpoint folders that carry the completion marker, oldest first."""
    return sorted(marker.parent for marker in root.glob(f"step_*/{MARKER}"))


def write_marker(folder: Path) -> None:
    """fsync every file below `folder` and record its size and SHA-256 in the marker, written last."""
    files = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.name != MARKER):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        files[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": digest}
    with (folder / MARKER).open("w") as file:
        json.dump({"files": files}, file)
        file.flush()
        os.fsync(file.fileno())
    fsync_folder(folder)


def damage(folder: Path) -> str:
    """What is wrong with a marked folder, in a few words; empty when every file is as the marker says."""
    try:
        files = json.loads((folder / MARKER).read_text())["files"]
    except (OSError, ValueError, KeyError):
        return f"unreadable {MARKER}"
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != expected["bytes"]:
            return f"{name} has {path.stat().st_size} bytes, not {expected['bytes']}"
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != expected["sha256"]:
                return f"{name} changed since it was written"
    return ""


def fsync_folder(folder: Path) -> None:
    """Make renames inside `folder` durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _as_problem() -> Iterator[list[str]]:
    """Collect a disk fault as text instead of raising on one rank while the others wait for it."""
    found = [""]
    try:
        yield found
    except (OSError, RuntimeError) as error:  # torch.save raises RuntimeError when the disk is full
        found[0] = str(error) or type(error).__name__


def _agree(engine: Engine, problem: str, root: Path) -> None:
    """All ranks fail together when one has a problem."""
    if engine.any_rank(bool(problem)):
        kept = [path.name for path in complete_checkpoints(root)]
        reason = problem or "another rank failed"
        rest = f"Earlier checkpoints are intact: {', '.join(kept)}." if kept else "No earlier checkpoint exists."
        raise RunError(f"could not save a checkpoint under {root.parent.name}/checkpoints: {reason}. {rest}")
