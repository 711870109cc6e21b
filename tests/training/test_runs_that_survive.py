"""Resumed = never stopped, bit for bit; a fault says what to do and loses nothing. Real processes, real signals."""

import json
import signal
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from .conftest import finish, start

pytestmark = pytest.mark.slow


def weights(run: Path) -> dict:
    return load_file(run / "export" / "model.safetensors")


def same(one: Path, two: Path) -> bool:
    a, b = weights(one), weights(two)
    return a.keys() == b.keys() and all(a[name].equal(b[name]) for name in a)


def wait_for(path: Path, process, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        assert process.poll() is None, finish(process)
        time.sleep(0.02)


@pytest.fixture(scope="module")
def unbroken(workplace: Path) -> Path:
    code, printed = finish(start(workplace, "train", "recipe.yaml", "--out", "runs/unbroken"))
    assert code == 0, printed
    return workplace / "runs" / "unbroken"


def test_stopped_killed_and_resumed_equals_unbroken(workplace: Path, unbroken: Path):
    run = workplace / "runs" / "broken"
    words = ("train", "recipe.yaml", "--out", "runs/broken")

    process = start(workplace, *words)
    wait_for(run / "checkpoints" / "step_000003" / "COMPLETE.json", process)
    process.send_signal(signal.SIGTERM)
    code, printed = finish(process)
    assert code == 0, printed
    assert "Go on with" in printed or "done" in printed

    process = start(workplace, *words)
    wait_for(run / "checkpoints" / "step_000006" / "COMPLETE.json", process)
    process.kill()
    finish(process)
    assert not (run / "export").exists()

    # The newest checkpoint gets a flipped byte: the one before must serve, and say so.
    newest = sorted((run / "checkpoints").glob("step_*"))[-1]
    victim = next(newest.rglob("*.pt"))
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    code, printed = finish(start(workplace, *words))
    assert code == 0, printed
    assert f"{newest.name} is damaged" in printed

    assert same(run, unbroken)
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 13))
    losses = [
        [json.loads(line)["loss"] for line in (r / "metrics.jsonl").read_text().splitlines()] for r in (run, unbroken)
    ]
    assert losses[0] == losses[1]


def test_another_seed_is_not_equal(workplace: Path, unbroken: Path):
    """Negative control for the comparison above."""
    code, printed = finish(start(workplace, "train", "recipe.yaml", "seed=4", "--out", "runs/other"))
    assert code == 0, printed
    assert not same(workplace / "runs" / "other", unbroken)


def test_other_settings_are_refused(workplace: Path, unbroken: Path):
    code, printed = finish(start(workplace, "train", "recipe.yaml", "train.lr=0.5", "--out", "runs/unbroken"))
    assert code == 2
    assert "train.lr: 0.01 -> 0.5" in printed
    assert "Traceback" not in printed


def test_full_disk_keeps_the_last_checkpoint(workplace: Path):
    """Files may not grow past a limit: the first checkpoint fails, nothing half-written counts, a later run works."""
    words = ("train", "recipe.yaml", "--out", "runs/full")
    code, printed = finish(start(workplace, *words, limit_file_bytes=60_000))
    assert code == 1, printed
    assert "could not save a checkpoint" in printed
    assert "Traceback" not in printed
    assert not list((workplace / "runs" / "full" / "checkpoints").glob("step_*"))
    code, printed = finish(start(workplace, *words))
    assert code == 0, printed
