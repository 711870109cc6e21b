"""Figures of a training step against hand-computed ones: learning rate, FLOPs, what is logged and what is left out."""

import json
import math
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ropewalk import metrics
from ropewalk.config import RunConfig
from ropewalk.engine import StepResult, learning_rate
from ropewalk.errors import RunError
from ropewalk.metrics import METRICS_FILE, StepLog, closing, peak_flops, train_flops


def run_config(to: tuple[str, ...] = (), **train: Any) -> RunConfig:
    section = {"steps": 10, "tokens_per_step": 96, "micro_batch_tokens": 96, "lr": 0.8, "warmup_steps": 2}
    return RunConfig.model_validate(
        {
            "name": "small",
            "model": {"base": "somewhere"},
            "rope": {"method": "yarn:4", "original_window": 32, "target_window": 128},
            "data": {"sources": [{"kind": "builtin", "name": "python-reference"}], "rows": [{"tokens": 24}]},
            "train": {**section, **train},
            "log": {"to": to},
        }
    )


def rates(**train: Any) -> list[float]:
    config = run_config(**train)
    return [learning_rate(config, step) for step in range(config.train.steps)]


def test_warm_up_then_constant() -> None:
    """The first step already learns; the last step of the warm-up has the full rate."""
    assert rates(warmup_steps=4, schedule="constant") == pytest.approx([0.2, 0.4, 0.6] + [0.8] * 7)
    assert rates(warmup_steps=0, schedule="constant") == [0.8] * 10


def test_linear() -> None:
    """From lr down by an equal amount a step, to where the step after the last would stand at min_lr_ratio."""
    down = [0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
    assert rates(schedule="linear") == pytest.approx([0.4, 0.8, *down])
    half = [0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5, 0.45]
    assert rates(schedule="linear", min_lr_ratio=0.5) == pytest.approx([0.4, 0.8, *half])
    assert learning_rate(run_config(schedule="linear", min_lr_ratio=0.5), 10) == pytest.approx(0.4)


def test_cosine() -> None:
    """Half a cosine: full, 1/2 + sqrt(2)/4, half, 1/2 - sqrt(2)/4 of the way at the quarters."""
    root = math.sqrt(2) / 4
    found = rates(schedule="cosine")
    assert found[:2] == pytest.approx([0.4, 0.8])
    assert [found[step] for step in (2, 4, 6, 8)] == pytest.approx([0.8, 0.8 * (0.5 + root), 0.4, 0.8 * (0.5 - root)])
    raised = rates(schedule="cosine", min_lr_ratio=0.25)
    assert [raised[step] for step in (2, 4, 6)] == pytest.approx([0.8, 0.2 + 0.6 * (0.5 + root), 0.2 + 0.6 * 0.5])
    assert learning_rate(run_config(schedule="cosine", min_lr_ratio=0.25), 10) == pytest.approx(0.2)
    assert rates(schedule="cosine", min_lr_ratio=1.0)[2:] == pytest.approx([0.8] * 8)


def tiny(tied: bool) -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=50,
            hidden_size=8,
            intermediate_size=12,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=32,
            tie_word_embeddings=tied,
        )
    )


@pytest.mark.parametrize("tied", [False, True])
def test_train_flops_by_hand(tied: bool) -> None:
    """6 x weights x tokens + 6 x layers x width x squares. The look-up of an untied embedding multiplies nothing.

    A layer: q 8x8, k and v 8x4, o 8x8, three 8x12, two norms of 8 = 496. Head 50x8, last norm 8.
    """
    weights = 2 * 496 + 8 + 400
    assert train_flops(tiny(tied), 0, 0) == 0
    assert train_flops(tiny(tied), 100, 0) == 6 * weights * 100
    assert train_flops(tiny(tied), 100, 2 * 50**2) == 6 * weights * 100 + 6 * 2 * 8 * 5000


def test_attention_flops_by_brute_force() -> None:
    """Causal: position t multiplies with t + 1 keys, once for scores and once for values, 2 FLOPs a product, and the
    backward pass costs twice the forward. The formula drops the half position a row, hence the tolerance 1/T.
    """
    num_layers, width, row_tokens = 2, 8, 400
    exact = sum(3 * num_layers * 2 * 2 * width * (t + 1) for t in range(row_tokens))
    assert train_flops(tiny(True), 0, row_tokens**2) == pytest.approx(exact, rel=1.01 / row_tokens)


def result(**changes: Any) -> StepResult:
    fields: dict[str, Any] = {
        "loss": 2.5,
        "loss_inside": 2.0,
        "loss_beyond": 3.0,
        "tokens": 96,
        "square_tokens": 96 * 24,
        "tokens_inside": 46,
        "tokens_beyond": 46,
        "grad_norm": 0.5,
        "applied": True,
    }
    return StepResult(**{**fields, **changes})


def written(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / METRICS_FILE).read_text().splitlines()]


def test_a_line_a_step(tmp_path: Path) -> None:
    """Rates are per second of the step; what was not measured is absent: a bucket without tokens, and mfu on a CPU."""
    model = tiny(True)
    log = StepLog(run_config(), tmp_path, model, world_size=1, done=0)
    log.peak = None
    with closing(log):
        log.write(1, result(), lr=0.4, seconds=0.5, tokens_total=96)
        log.write(2, result(loss_beyond=None, tokens_beyond=0), lr=0.8, seconds=2.0, tokens_total=192)
    first, second = written(tmp_path)
    flops = 6 * 1400 * 96 + 6 * 2 * 8 * 96 * 24
    assert first.pop("peak_memory_bytes") > 1e6
    assert first == {
        "step": 1,
        "loss": 2.5,
        "loss_inside": 2.0,
        "loss_beyond": 3.0,
        "tokens_inside": 46,
        "tokens_beyond": 46,
        "grad_norm": 0.5,
        "lr": 0.4,
        "applied": True,
        "tokens": 96,
        "tokens_total": 96,
        "tokens_per_s": 192.0,
        "flops_per_s": flops / 0.5,
        "time_s": 0.5,
    }
    assert "loss_beyond" not in second
    assert second["tokens_beyond"] == 0
    assert second["tokens_per_s"] == 48.0


@pytest.mark.parametrize(
    ("name", "one"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA A100-SXM4-40GB", 312e12),
        ("NVIDIA GeForce RTX 4090", 165e12),
        ("Some GPU of next year", None),
    ],
)
def test_mfu_where_the_peak_is_known(monkeypatch, tmp_path: Path, name: str, one: float | None) -> None:
    """MFU = achieved FLOP/s over the peaks of all GPUs; absent, not zero, for a GPU without a known peak."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: name)
    monkeypatch.setattr(metrics, "peak_memory_bytes", lambda: 1)
    assert peak_flops(4) == (4 * one if one else None)
    log = StepLog(run_config(), tmp_path, tiny(True), world_size=4, done=0)
    with closing(log):
        log.write(1, result(), lr=0.4, seconds=0.5, tokens_total=96)
    (line,) = written(tmp_path)
    if one:
        assert line["mfu"] == pytest.approx(line["flops_per_s"] / (4 * one))
    else:
        assert "mfu" not in line


def test_no_peak_on_a_cpu(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert peak_flops(1) is None


def test_steps_run_again_stand_once(tmp_path: Path) -> None:
    """A resumed run forgets lines after its checkpoint, and a last line that a killed process left half written."""
    lines = [json.dumps({"step": step, "loss": float(step)}) for step in (1, 2, 3)]
    (tmp_path / METRICS_FILE).write_text("\n".join(lines) + '\n{"step": 4, "lo')
    with closing(log := StepLog(run_config(), tmp_path, tiny(True), world_size=1, done=2)):
        log.write(3, result(), lr=0.4, seconds=0.5, tokens_total=96)
    assert [(line["step"], line["loss"]) for line in written(tmp_path)] == [(1, 1.0), (2, 2.0), (3, 2.5)]


def test_tensorboard_gets_every_figure(tmp_path: Path) -> None:
    """The event file reads back as what metrics.jsonl says."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with closing(log := StepLog(run_config(to=("tensorboard",)), tmp_path, tiny(True), world_size=1, done=0)):
        log.write(1, result(), lr=0.4, seconds=0.5, tokens_total=96)
        log.write(2, result(loss=1.5), lr=0.8, seconds=0.5, tokens_total=192)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert set(events.Tags()["scalars"]) == written(tmp_path)[0].keys() - {"step"}
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(1, 2.5), (2, 1.5)]
    assert [event.value for event in events.Scalars("lr")] == pytest.approx([0.4, 0.8])


def test_a_tracker_with_init_log_finish(monkeypatch, tmp_path: Path) -> None:
    """Weights & Biases and trackio are called alike: begun with the recipe, told each step, ended at the end."""
    calls: list[tuple] = []
    fake = types.ModuleType("trackio")
    fake.init = lambda project, name, config: calls.append((project, name, config["train"]["lr"]))  # type: ignore[attr-defined]
    fake.log = lambda values, step: calls.append((step, values["loss"]))  # type: ignore[attr-defined]
    fake.finish = lambda: calls.append(("finish",))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "trackio", fake)
    with closing(log := StepLog(run_config(to=("trackio",)), tmp_path, tiny(True), world_size=1, done=0)):
        log.write(1, result(), lr=0.4, seconds=0.5, tokens_total=96)
    assert calls == [("ropewalk", "small", 0.8), (1, 2.5), ("finish",)]


def test_a_tracker_that_is_not_installed(monkeypatch, tmp_path: Path) -> None:
    """It says which setting and which command."""
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(
        RunError, match=r"log\.to names wandb, which is not installed .* `pip install ropewalk\[wandb\]`"
    ):
        StepLog(run_config(to=("wandb",)), tmp_path, tiny(True), world_size=1, done=0)
