"""Start several ranks of one run on this machine, pass the user's signals on, and end them together.

Rank 0 speaks to the terminal. What the others print is kept aside, and shown only when they are what failed: a fault in
the recipe is the same on every rank and needs saying once.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

USER_FAULT = 2
"""Exit code of a rank that was given something that cannot work."""
SETTLE_S = 2.0
"""How long ranks may take to end by themselves once one has failed."""
GRACE_S = 20.0
"""How long they may take after SIGTERM."""
SHOWN_LINES = 40
"""Last lines shown of a failed rank."""


def launch(ranks: int, words: Sequence[str]) -> int:
    """Run `ropewalk.train` with `words` on `ranks` processes; returns the exit code of the first that failed, or 0."""
    processes: list[subprocess.Popen[bytes]] = []
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="ropewalk-") as folder, signals_passed_to(processes):
        for rank in range(ranks):
            processes.append(start_rank(rank, ranks, port, words, Path(folder)))
        first = wait_for_first_failure(processes)
        if not first:
            return 0
        end_all(processes)
        if processes[0].returncode != USER_FAULT:
            for rank in first:
                show(rank, Path(folder))
        code = processes[first[0]].returncode
    return code if code > 0 else 128 - code


def start_rank(rank: int, ranks: int, port: int, words: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    """One process of the run. Its own session keeps a terminal's Ctrl-C from reaching it twice."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    environment = {
        "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // ranks)),
        **os.environ,
        **{key: str(value) for key, value in place.items()},
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    command = [sys.executable, "-m", "ropewalk.train", *words]
    if rank == 0:
        return subprocess.Popen(command, env=environment, start_new_session=True)
    with log_of(rank, folder).open("wb") as log:
        return subprocess.Popen(command, env=environment, start_new_session=True, stdout=log, stderr=log)


def free_port() -> int:
    """A TCP port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_first_failure(processes: Sequence[subprocess.Popen[bytes]]) -> list[int]:
    """Wait until all ranks have ended well, or one has not; returns the ranks that failed by then."""
    while True:
        running = [process.poll() is None for process in processes]
        failed = [rank for rank, process in enumerate(processes) if process.returncode]
        if failed or not any(running):
            return failed
        time.sleep(0.05)


def end_all(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End what still runs: a moment to do so alone, then SIGTERM, then SIGKILL."""
    for patience_s, act in ((SETTLE_S, signal.SIGTERM), (GRACE_S, signal.SIGKILL)):
        deadline = time.monotonic() + patience_s
        while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
            time.sleep(0.05)
        for process in processes:
            process.send_signal(act)  # does nothing to one that has ended
    for process in processes:
        process.wait()


def log_of(rank: int, folder: Path) -> Path:
    """Where the output of a rank above 0 is kept."""
    return folder / f"rank{rank}.log"


def show(rank: int, folder: Path) -> None:
    """Print the end of what a rank said; rank 0 has said it already."""
    if rank == 0:
        return
    lines = log_of(rank, folder).read_text(errors="replace").splitlines()
    for line in lines[-SHOWN_LINES:] or ["ended without a word"]:
        print(f"rank {rank}: {line}", file=sys.stderr)


@contextmanager
def signals_passed_to(processes: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Send SIGINT, SIGTERM and SIGHUP on to every rank, once each, so that they save and stop together."""

    def forward(number: int, frame: object) -> None:
        for process in processes:
            process.send_signal(number)

    wanted = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in wanted}
    for number in wanted:
        if before[number] is not signal.SIG_IGN:  # under nohup
            signal.signal(number, forward)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
