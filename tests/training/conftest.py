"""A run small enough to start a dozen times in a test: a fresh model on text written here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RECIPE = """\
# What: a run for tests.
# Hardware: any.
# Result: none.
name: small
seed: 3
model:
  fresh: {vocab_size: 320, hidden_size: 32, intermediate_size: 64, num_layers: 2, num_heads: 4, num_kv_heads: 2}
rope: {method: "yarn:4", original_window: 64, target_window: 256}
data:
  sources:
    - {kind: text, name: texts/*.txt}
  held_out: 0.3
  num_proc: 1
  rows:
    - {tokens: 128, positions: skip-wise, text: 1.0}
    - {tokens: 256, text: 1.0}
train:
  steps: 12
  tokens_per_step: 512
  micro_batch_tokens: 256
  lr: 0.01
  warmup_steps: 2
  schedule: cosine
checkpoint: {every_steps: 3, keep: 2}
"""


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `recipe.yaml` and six texts."""
    tmp_path = tmp_path_factory.mktemp("work")
    (tmp_path / "texts").mkdir()
    for number in range(6):
        lines = [
            f"line {i} of text {number}: the {i * 7 % 13} grey geese fly over {i * number % 17} hills"
            for i in range(150)
        ]
        (tmp_path / "texts" / f"t{number}.txt").write_text("\n".join(lines))
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path


def start(folder: Path, *words: str, limit_file_bytes: int | None = None) -> subprocess.Popen:
    """`ropewalk WORDS` in `folder`, as a real process."""
    code = "from ropewalk.cli import main; main()"
    if limit_file_bytes:
        code = (
            "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
            f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit_file_bytes}, {limit_file_bytes})); {code}"
        )
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def finish(process: subprocess.Popen, timeout: float = 200) -> tuple[int, str]:
    """Exit code and everything printed."""
    out, err = process.communicate(timeout=timeout)
    return process.returncode, out + err
