"""The command line at work: a folder with texts, a trained run, and models that each have one thing wrong."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

RECIPE = """\
name: small
model: {base: tiny}
rope: {method: "yarn:4", original_window: 64, target_window: 256}
data:
  sources:
    - {kind: text, name: texts/*.txt}
  held_out: 0.3
  num_proc: 1
  rows:
    - {tokens: 64, positions: skip-wise}
train: {steps: 2, tokens_per_step: 128, micro_batch_tokens: 128, lr: 0.01, warmup_steps: 1}
"""
BASE_RECIPE = """\
name: tiny
model:
  fresh: {vocab_size: 288, hidden_size: 32, intermediate_size: 64, num_layers: 2, num_heads: 2, num_kv_heads: 1,
          rope_theta: 500000.0, head_dim: 32}
rope: {original_window: 64, target_window: 64}
data:
  sources:
    - {kind: text, name: texts/*.txt}
  num_proc: 1
  rows:
    - {tokens: 64}
train: {steps: 2, tokens_per_step: 128, micro_batch_tokens: 128, lr: 0.01, warmup_steps: 1}
"""


@dataclass(frozen=True)
class Ended:
    """A command that has ended: its exit code, all it printed, and how long it took."""

    code: int
    printed: str
    seconds: float


Command = Callable[..., Ended]


@pytest.fixture(scope="session")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """`command(folder, "train", "recipe.yaml")`: a real process each time. The model hub is out of its reach."""
    home = tmp_path_factory.mktemp("hub")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
        "HF_HOME": str(home),
        "HF_ENDPOINT": "http://127.0.0.1:9",  # nobody listens on the discard port
    }
    environment.pop("HF_HUB_OFFLINE", None)
    warm = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("warm.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert warm.stdin is not None
    assert warm.stdout is not None
    requests, answers = warm.stdin, warm.stdout
    assert answers.readline() == "ready\n"

    def run(folder: Path, *words: str) -> Ended:
        printed = home / "printed"
        started = time.monotonic()
        print(json.dumps({"folder": str(folder), "printed": str(printed), "words": words}), file=requests, flush=True)
        code = int(answers.readline())
        return Ended(code, printed.read_text(), time.monotonic() - started)

    yield run
    requests.close()
    warm.wait(timeout=60)


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory, command: Command) -> Path:
    """`recipe.yaml`, six texts in `texts/`, the model `tiny/` that the recipe extends, and its run `runs/tiny/`."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "texts").mkdir()
    for number in range(6):
        lines = [
            f"line {i} of text {number}: {i * 7 % 13} grey geese fly over {i * number % 17} hills" for i in range(60)
        ]
        (folder / "texts" / f"t{number}.txt").write_text("\n".join(lines))
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "base.yaml").write_text(BASE_RECIPE)
    ended = command(folder, "train", "base.yaml")
    assert ended.code == 0, ended.printed
    shutil.copytree(folder / "runs" / "tiny" / "export", folder / "tiny")
    return folder


@pytest.fixture(scope="session")
def altered(workplace: Path) -> Callable[..., Path]:
    """`altered("name", key=value)`: a copy of the model `tiny` whose config.json has other values; None removes one."""

    def make(name: str, **changes: Any) -> Path:
        folder = workplace / name
        if not folder.exists():
            shutil.copytree(workplace / "tiny", folder)
            path = folder / "config.json"
            fields = {**json.loads(path.read_text()), **changes}
            path.write_text(json.dumps({key: value for key, value in fields.items() if value is not None}))
        return folder

    return make
