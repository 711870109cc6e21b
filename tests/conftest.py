"""What tests of several folders share."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

WORLD_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "DS_ACCELERATOR")


@contextmanager
def environment_put_back() -> Iterator[None]:
    """Whatever a world of one process writes into the environment of the test process is taken back out at the end."""
    before = {name: os.environ.pop(name, None) for name in WORLD_NAMES}
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


@pytest.fixture(scope="module")
def one_process_world() -> Iterator:
    """A `World` of this process alone, for engines that a module's tests make. Start no process of ours beside it."""
    from ropewalk.engine import start_world

    with environment_put_back():
        yield start_world()
