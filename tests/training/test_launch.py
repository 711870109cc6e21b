"""Several processes started by either launcher do what one does; their faults and stops are told once, and well."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close
from typer.testing import CliRunner

import ropewalk.launch
from ropewalk.cli import app, main
from ropewalk.launch import free_port, launch
from ropewalk.train import main as train_main

from ..conftest import environment_put_back
from .conftest import finish, start

TRAIN = Path(ropewalk.launch.__file__).with_name("train.py")
EIGHT_STEPS = ("recipe.yaml", "train.steps=8")
TWO_RANKS = ("train", *EIGHT_STEPS, "parallel.zero_stage=2", "--ranks", "2")


def rows(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def alone(workplace: Path) -> Path:
    """The run by one process: this one."""
    run = workplace / "runs" / "alone"
    with environment_put_back(), pytest.MonkeyPatch.context() as patch:
        patch.chdir(workplace)
        train_main([*EIGHT_STEPS, "--out", str(run)])
    return run


@pytest.fixture(scope="module")
def two_ranks(workplace: Path) -> Path:
    """The run by `--ranks 2`, optimizer state and gradients shared out."""
    code, printed = finish(start(workplace, *TWO_RANKS, "--out", "runs/two"))
    assert code == 0, printed
    return workplace / "runs" / "two"


def same_run(one: Path, two: Path, tolerance: float = 1e-5) -> None:
    """Losses, norms, counts and exported weights are equal, but for float32 sums in another order."""
    for first, second in zip(rows(one), rows(two), strict=True):
        for key in ("loss", "loss_inside", "loss_beyond", "grad_norm"):
            assert second[key] == pytest.approx(first[key], rel=tolerance), key
        for key in ("step", "lr", "tokens", "tokens_inside", "tokens_beyond", "tokens_total"):
            assert second[key] == first[key], key
        # Rows of a step differ in length, so this holds only when their squares are summed over the ranks.
        work = [row["flops_per_s"] * row["time_s"] for row in (first, second)]
        assert work[1] == pytest.approx(work[0], rel=1e-9)
    weights = [load_file(run / "export" / "model.safetensors") for run in (one, two)]
    assert weights[0].keys() == weights[1].keys()
    for name, weight in weights[0].items():
        assert_close(weights[1][name], weight, rtol=100 * tolerance, atol=10 * tolerance)


def test_two_ranks_equal_one_process(alone: Path, two_ranks: Path) -> None:
    same_run(alone, two_ranks)


@pytest.mark.slow
def test_two_ranks_stopped_and_resumed_equal_two_never_stopped(workplace: Path, two_ranks: Path) -> None:
    """The launcher gets one SIGTERM: both ranks save. The command that is told, as it stands, goes on, bit for bit."""
    run = workplace / "runs" / "in parts"
    process = start(workplace, *TWO_RANKS, "--out", "runs/in parts")
    deadline = time.monotonic() + 120
    while not ((run / "metrics.jsonl").exists() and rows(run)):  # both ranks are in the loop
        assert time.monotonic() < deadline
        assert process.poll() is None, finish(process)
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    code, printed = finish(process)
    assert code == 0, printed
    assert "Traceback" not in printed
    told = re.search(r"Go on with:\n  ropewalk (.*)", printed)
    assert told, printed
    assert not (run / "export").exists()
    script = f"exec {sys.executable} -c 'from ropewalk.cli import main; main()' {told[1]}"
    resumed = subprocess.run(["bash", "-c", script], cwd=workplace, capture_output=True, text=True, timeout=200)
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming after step" in resumed.stderr
    assert [row["loss"] for row in rows(run)] == [row["loss"] for row in rows(two_ranks)]
    same_run(two_ranks, run, tolerance=0)


def test_deepspeed_launcher_equals_one_process(workplace: Path, alone: Path) -> None:
    """DeepSpeed's own launcher needs no GPU and no ssh on one machine: `--num_gpus` counts processes."""
    launcher = [str(Path(sys.executable).with_name("deepspeed")), "--num_gpus", "2", "--master_port", str(free_port())]
    done = subprocess.run(
        [*launcher, str(TRAIN), *EIGHT_STEPS, "--out", "runs/deepspeed"],
        cwd=workplace,
        capture_output=True,
        text=True,
        timeout=200,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    same_run(alone, workplace / "runs" / "deepspeed")


def fake_ranks(monkeypatch: pytest.MonkeyPatch, folder: Path, body: str) -> None:
    """Let `python -m ropewalk.train` be a script of a few lines, so that faults of ranks cost no start of torch."""
    python = folder / "python"
    script = folder / "rank.py"
    script.write_text("import os, signal, sys, time\nrank = int(os.environ['RANK'])\n" + body)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(ropewalk.launch.sys, "executable", str(python))


def test_a_fault_of_all_ranks_is_told_once(monkeypatch, tmp_path: Path, capfd) -> None:
    """As a wrong recipe is: code 2, one message, no traceback of a launcher."""
    fake_ranks(monkeypatch, tmp_path, "print('error: no such thing', file=sys.stderr); sys.exit(2)")
    assert launch(3, []) == 2
    assert capfd.readouterr().err == "error: no such thing\n"


def test_a_fault_of_one_rank_ends_the_others_and_is_shown(monkeypatch, tmp_path: Path, capfd) -> None:
    """Rank 1 fails alone while rank 0 holds out against SIGTERM, as one does that waits for a lost peer."""
    monkeypatch.setattr(ropewalk.launch, "SETTLE_S", 0.1)
    monkeypatch.setattr(ropewalk.launch, "GRACE_S", 0.1)
    body = """
if rank == 1:
    print('error: the disk of rank 1 is full', file=sys.stderr)
    sys.exit(1)
signal.signal(signal.SIGTERM, lambda *_: None)
while True:
    time.sleep(0.01)
"""
    fake_ranks(monkeypatch, tmp_path, body)
    assert launch(2, []) == 1
    assert capfd.readouterr().err == "rank 1: error: the disk of rank 1 is full\n"


def test_ranks_meet_in_one_world(monkeypatch, tmp_path: Path) -> None:
    """Each has its own rank, and all have one size, address and port, their words and a session of their own."""
    body = """
names = ['RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT']
open(os.path.join(os.path.dirname(__file__), f'{rank}.txt'), 'w').write(
    ' '.join([os.environ[name] for name in names] + sys.argv[1:] + [str(os.getsid(0) == os.getpid())]))
"""
    fake_ranks(monkeypatch, tmp_path, body)
    assert launch(2, ["r.yaml", "--out", "x"]) == 0
    zero, one = ((tmp_path / f"{rank}.txt").read_text().split() for rank in (0, 1))
    assert zero[:4] == ["0", "0", "2", "127.0.0.1"]
    assert one[:3] == ["1", "1", "2"]
    assert zero[3:] == one[3:]
    assert zero[5:] == ["-m", "ropewalk.train", "r.yaml", "--out", "x", "True"]


def test_a_signal_reaches_each_rank_once(monkeypatch, tmp_path: Path, capfd) -> None:
    body = """
caught = []
signal.signal(signal.SIGINT, lambda *_: caught.append(1))
open(f'{__file__}.{rank}', 'w').close()
if rank == 0:
    while not os.path.exists(f'{__file__}.1'):
        time.sleep(0.01)
    os.kill(os.getppid(), signal.SIGINT)
deadline = time.monotonic() + 20
while not caught and time.monotonic() < deadline:
    time.sleep(0.01)
time.sleep(0.3)
sys.exit(0 if len(caught) == 1 else 3)
"""
    fake_ranks(monkeypatch, tmp_path, body)
    before = signal.getsignal(signal.SIGINT)
    assert launch(2, []) == 0, capfd.readouterr()
    assert signal.getsignal(signal.SIGINT) is before


def test_ranks_get_the_command_and_debug(monkeypatch, workplace: Path) -> None:
    """What the user typed is handed on, to be told back, and so is --debug."""
    given: list = []
    monkeypatch.setattr(ropewalk.launch, "launch", lambda ranks, words: given.extend([ranks, *words]) or 0)
    recipe = str(workplace / "recipe.yaml")
    words = ["train", recipe, "seed=4", "--cache", "my cache", "--ranks", "3"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert given[0] == 3
    assert "--debug" not in given
    assert given[given.index("--typed") + 1] == f"ropewalk train {recipe} seed=4 --cache 'my cache' --ranks 3"
    given.clear()
    monkeypatch.setattr(sys, "argv", ["ropewalk", *words, "--debug"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert "--debug" in given
