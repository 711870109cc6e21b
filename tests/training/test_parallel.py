"""Gradients, norms and clipping do not depend on how the work is spread: ranks x ZeRO stage x accumulation."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

WORKER = Path(__file__).with_name("rank_worker.py")


STAGES = (0, 1, 2, 3)
CLIPS = (None, 0.5)


def case(zero_stage: int, clip: float | None, dtype: str = "float32") -> dict:
    """A run of three steps of four micro batches."""
    shape = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_layers": 2}
    return {
        "name": f"stage{zero_stage}-clip{clip}-{dtype}",
        "model": {"fresh": {**shape, "num_heads": 4, "num_kv_heads": 2}, "dtype": dtype},
        "rope": {"method": "yarn:4", "original_window": 16, "target_window": 64},
        "data": {
            "sources": [{"kind": "builtin", "name": "python-reference"}],
            "rows": [{"tokens": 24, "positions": "skip-wise"}],
        },
        "train": {
            "steps": 3,
            "tokens_per_step": 192,
            "micro_batch_tokens": 48,
            "lr": 0.01,
            "warmup_steps": 0,
            "clip_norm": clip,
            "loss_chunk_tokens": 20,
            "eps": 1e-3,  # Adam divides by sqrt(v) + eps: a small eps would turn rounding of tiny gradients into steps
        },
        "parallel": {"zero_stage": zero_stage},
    }


class Outcome:
    """What the worker left of one case."""

    def __init__(self, folder: Path, name: str) -> None:
        self.rows: list[dict] = json.loads((folder / f"{name}.json").read_text())
        self.weights: dict[str, torch.Tensor] = torch.load(folder / f"{name}.pt", weights_only=True)


def run(folder: Path, ranks: int, cases: list[dict]) -> dict[str, Outcome]:
    (folder / "cases.json").write_text(json.dumps(cases))
    launcher = [sys.executable]
    if ranks > 1:
        launcher += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    done = subprocess.run(
        [*launcher, str(WORKER), str(folder / "cases.json"), str(folder)],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {item["name"]: Outcome(folder, item["name"]) for item in cases}


@pytest.fixture(scope="module")
def one_process(tmp_path_factory) -> dict[str, Outcome]:
    return run(tmp_path_factory.mktemp("one"), 1, [case(0, clip) for clip in CLIPS] + [case(0, None, "bfloat16")])


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory) -> dict[str, Outcome]:
    cases = [case(stage, clip) for stage in STAGES for clip in CLIPS]
    return run(tmp_path_factory.mktemp("two"), 2, [*cases, *(case(stage, None, "bfloat16") for stage in (0, 2, 3))])


@pytest.mark.parametrize("clip", CLIPS, ids=["unclipped", "clipped"])
@pytest.mark.parametrize("zero_stage", STAGES)
def test_two_ranks_equal_one(one_process, two_ranks, zero_stage: int, clip: float | None):
    one, two = one_process[case(0, clip)["name"]], two_ranks[case(zero_stage, clip)["name"]]
    for alone, shared in zip(one.rows, two.rows, strict=True):
        assert shared["loss"] == pytest.approx(alone["loss"], rel=1e-6)
        assert shared["grad_norm"] == pytest.approx(alone["grad_norm"], rel=2e-6)
        assert shared["tokens"] == alone["tokens"]
    assert one.weights.keys() == two.weights.keys()
    for name, weight in one.weights.items():
        torch.testing.assert_close(two.weights[name], weight, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("zero_stage", [0, 2, 3])
def test_bfloat16_keeps_rotary_float32_and_follows(one_process, two_ranks, zero_stage: int):
    """Case M3: the worker asserts float32 rotary buffers after the engine's start; the loss is close to float32's."""
    exact, rough = one_process[case(0, None)["name"]], two_ranks[case(zero_stage, None, "bfloat16")["name"]]
    assert all(weight.dtype == torch.bfloat16 for weight in rough.weights.values())
    for alone, shared in zip(exact.rows, rough.rows, strict=True):
        assert shared["loss"] == pytest.approx(alone["loss"], rel=2e-2)


def test_clipping_clips(one_process):
    """Negative control: the clipped run ends elsewhere than the unclipped one, with the same first norm."""
    free, clipped = one_process[case(0, None)["name"]], one_process[case(0, 0.5)["name"]]
    assert free.rows[0]["grad_norm"] > 0.5
    assert clipped.rows[0]["grad_norm"] == pytest.approx(free.rows[0]["grad_norm"], rel=1e-6)
    assert any(not torch.allclose(clipped.weights[name], weight, atol=1e-4) for name, weight in free.weights.items())
