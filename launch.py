"""Start several ranks on this machine through torchrun, and pass the user's signals on to it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence


def launch(ranks: int, words: Sequence[str]) -> int:
    """Run `ropewalk.train` with `words` on `ranks` processes; returns the exit code. Prints the command it runs."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={ranks}",
        "-m",
        "ropewalk.train",
        *words,
    ]
    shown = shlex.join(["torchrun", *command[3:]])
    print(f"running: {shown}", file=sys.stderr)
    environment = dict(os.environ)
    environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // ranks)))
    process = subprocess.Popen(command, env=environment)
    # torchrun passes SIGTERM and SIGINT to every rank, which save together; a terminal's Ctrl-C reaches them already.
    before = {
        number: signal.signal(number, lambda n, _: process.send_signal(n)) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
