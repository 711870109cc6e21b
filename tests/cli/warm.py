"""`ropewalk` commands one after another, each in a process of its own that starts with the heavy libraries loaded.

Reads one JSON job a line, forks, runs the console entry point with the job's words, and prints the exit code. Started
by conftest.py; it spares each command the half a minute that loading torch and DeepSpeed takes on a busy machine.
"""

import gc
import json
import os
import sys
import traceback

import ropewalk.eval.command
import ropewalk.report
import ropewalk.train  # noqa: F401
from ropewalk.cli import main


def become(job: dict) -> None:
    """Make this process what a shell would have started for the job."""
    os.chdir(job["folder"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    printed = os.open(job["printed"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    sys.argv = ["ropewalk", *job["words"]]


def exit_code() -> int:
    """Run the entry point; the code Python would end with, its traceback printed as Python would."""
    try:
        main()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    gc.collect()
    gc.freeze()  # collecting in a fork would copy every page it shares with this process
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):
        child = os.fork()
        if not child:
            become(json.loads(line))
            code = exit_code()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # taking down the shared libraries once more would cost seconds
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
