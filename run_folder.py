"""One run is one folder: `run.json` says what it is made from, and a second start must be made from the same."""

from __future__ import annotations

import datetime
import json
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from . import __version__
from .config import RunConfig
from .errors import ConfigError

RUN_FILE = "run.json"
MAY_CHANGE = ("checkpoint", "log", "eval")
"""Sections that a resumed run may state anew: none of them changes a weight."""


@contextmanager
def setting_up(config: RunConfig, folder: Path, leads: bool) -> Iterator[None]:
    """Open the run (where this process leads) while all it needs is made ready; a folder that is new goes again when
    that fails."""
    is_new = leads and not folder.exists()
    if leads:
        open_run(config, folder)
    try:
        yield
    except BaseException:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def open_run(config: RunConfig, folder: Path) -> bool:
    """Begin the run in `folder`, or check that it is the same run; True when it was there before.

    A run that was stopped before its first step has nothing to lose and is begun anew when its settings differ. Raises
    ConfigError that lists each setting in which a resumed run differs from the recorded one.
    """
    resolved = config.model_dump(mode="json")
    path = folder / RUN_FILE
    if path.exists():
        known = read_run(folder).get("config", {})
        changes = [line for line in differences(known, resolved) if line.split(".", 1)[0].strip() not in MAY_CHANGE]
        if changes and _has_steps(folder):
            raise ConfigError(
                f"{folder.name} was begun with other settings:\n  "
                + "\n  ".join(changes)
                + "\nRepeat the command with the recorded settings, or give a new folder with --out."
            )
        if not changes:
            return True
        shutil.rmtree(folder / "data", ignore_errors=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the run folder {folder}: {error.strerror}. Give another with --out.") from error
    record = {"schema": 1, "started": _now(), "config": resolved, **provenance()}
    aside = folder / f".partial-{RUN_FILE}"
    aside.write_text(json.dumps(record, indent=2) + "\n")
    aside.replace(path)
    return False


def read_run(folder: Path) -> dict[str, Any]:
    """The recorded `run.json`; ConfigError when the folder is no run."""
    try:
        return json.loads((folder / RUN_FILE).read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{folder} is not a run folder: cannot read {RUN_FILE} ({error}). Give a folder that "
            "`ropewalk train` wrote."
        ) from error


def read_config(folder: Path) -> RunConfig:
    """The recipe of a run; ConfigError when the folder is no run, or one of another version."""
    try:
        return RunConfig.model_validate(read_run(folder)["config"])
    except (KeyError, TypeError, ValidationError) as error:
        text = str(error).splitlines()[0]
        raise ConfigError(
            f"{folder / RUN_FILE} is no record of a run that this version can read ({text}). Make the run anew."
        ) from error


def _has_steps(folder: Path) -> bool:
    metrics = folder / "metrics.jsonl"
    return (metrics.exists() and metrics.stat().st_size > 0) or any((folder / "checkpoints").glob("step_*"))


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Dotted settings whose values differ, as `section.key: old -> new`."""
    lines = []
    for key in sorted({*old, *new}):
        was, now = old.get(key), new.get(key)
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            lines += differences(was, now, f"{prefix}{key}.")
        elif was != now:
            lines.append(f"{prefix}{key}: {was!r} -> {now!r}")
    return lines


def provenance() -> dict[str, Any]:
    """Versions, code state and hardware, with nothing that names a person or a machine."""
    names = ("torch", "transformers", "deepspeed", "peft", "datasets", "tokenizers", "safetensors", "numpy")
    return {
        "versions": {
            "ropewalk": __version__,
            "python": platform.python_version(),
            **{n: metadata.version(n) for n in names},
        },
        "git": git_state(),
        "hardware": hardware(),
    }


def git_state() -> dict[str, Any]:
    """Commit and dirty flag of the code that runs; nulls outside a git checkout."""
    root = Path(__file__).parent

    def git(*words: str) -> str | None:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    try:
        commit, status = git("rev-parse", "HEAD"), git("status", "--porcelain")
    except FileNotFoundError:
        commit = status = None
    return {"commit": commit, "dirty": None if status is None else bool(status)}


def hardware() -> dict[str, Any]:
    """Processor model, cores, memory and GPUs."""
    import os

    import torch

    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        cpu = lines[0] if lines else cpu
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None
    return {"cpu": cpu, "cores": os.cpu_count(), "memory_bytes": memory, "gpus": gpus}


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
