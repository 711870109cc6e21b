"""Fake but lifelike run folders: base, linear, yarn and direct fine-tuning at steps 0, 25, 50, 100, 200, 400."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from ropewalk.eval.score import Score, append_scores, wilson
from ropewalk.report import ReportNotes, build_report

L, TARGET = 256, 2048
LENGTHS = (256, 512, 1024, 1536, 2048)
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
GAPS = (0, 512, 1024, 1792)
BUCKETS = ((0, 15), (16, 63), (64, 255), (256, 511), (512, 1023), (1024, 2047))
STEPS = {"linear:8": (25, 50, 100, 200, 400), "yarn:8": (25, 50, 100, 200), "none": (25, 50, 100, 200, 400)}
ARMS = {"linear:8": "demo-linear-8x", "yarn:8": "demo-yarn-8x", "none": "demo-direct-8x"}
HALF_WAY = {"linear:8": 120, "yarn:8": 30, "none": 140}
"""Steps after which about half of the keys at the far end are found."""


def recipe(name: str, method: str, steps: int, base: str = "/home/someone/models/tiny-base") -> dict:
    rows = [
        {"tokens": 256, "positions": "skip-wise", "weight": 1, "text": 0.5, "passkey": 0.4, "repeat": 0.1},
        {"tokens": 2048, "positions": "dense", "weight": 1, "text": 0.5, "passkey": 0.4, "repeat": 0.1},
    ]
    return {
        "name": name,
        "seed": 1,
        "model": {"base": base},
        "rope": {"method": method, "original_window": L, "target_window": TARGET},
        "data": {"sources": [{"kind": "builtin", "name": "stdlib"}], "rows": rows},
        "train": {
            "steps": steps,
            "tokens_per_step": 4096,
            "micro_batch_tokens": 2048,
            "lr": 1e-3,
            "warmup_steps": 10,
        },
    }


def write_run(folder: Path, method: str) -> Path:
    """One run folder with run.json, metrics.jsonl and eval/ (its own scores and those of the untrained method)."""
    name, steps = ARMS[method], max(STEPS[method])
    folder.mkdir(parents=True)
    record = {
        "schema": 1,
        "started": "2026-11-30T12:00:00+00:00",
        "config": recipe(name, method, steps),
        "versions": {"ropewalk": "0.1.0", "torch": "2.13.0", "transformers": "5.24.0"},
        "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
        "hardware": {"cpu": "Some CPU @ 2.5 GHz", "cores": 2, "memory_bytes": 25769803776, "gpus": []},
    }
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(step) + "\n" for step in metrics(method, steps)))
    scores = model_scores(method, "untrained", 0)
    for trained in STEPS[method]:
        scores += model_scores(method, name, trained)
    append_scores(folder / "eval" / "passkey.jsonl", [s for s in scores if s.task == "passkey"])
    append_scores(folder / "eval" / "text.jsonl", [s for s in scores if s.task != "passkey"])
    return folder


def metrics(method: str, steps: int) -> list[dict]:
    rng = np.random.default_rng(len(method))
    far = {"linear:8": 3.2, "yarn:8": 1.4, "none": 4.2}[method]
    return [
        {
            "step": step,
            "loss": 2.6 + far * math.exp(-step / 40) + rng.normal(0, 0.08),
            "loss_inside": 2.5 + 0.6 * far * math.exp(-step / 30) + rng.normal(0, 0.08),
            "loss_beyond": 2.4 + far * math.exp(-step / 50) + rng.normal(0, 0.12),
            "tokens": 4090,
            "tokens_total": 4090 * step,
            "tokens_per_s": 8000 + rng.normal(0, 200),
            "flops_per_s": 4.1e10,
            "peak_memory_bytes": 900 * 2**20,
            "time_s": 0.51,
        }
        for step in range(1, steps + 1)
    ]


def model_scores(method: str, arm: str, trained: int) -> list[Score]:
    """All scores of one model: passkey grid, perplexity, gap probe, loss by position."""
    rng = np.random.default_rng(sum(map(ord, method + arm)) + trained)
    common = {
        "method": method,
        "arm": arm,
        "trained_steps": trained,
        "seed": 7,
        "model": "tiny-base",
        "weights_hash": f"w-{arm}-{trained}",
        "rotary_hash": f"r-{method}",
        "tokenizer_hash": "t",
        "dtype": "float32",
    }
    scores = []
    for length in LENGTHS:
        for depth in DEPTHS:
            correct = int(rng.binomial(10, found_rate(method, trained, length, depth)))
            low, high = wilson(correct, 10)
            scores.append(
                Score(
                    task="passkey",
                    protocol="landmark",
                    metric="accuracy",
                    length=length,
                    depth=depth,
                    value=correct / 10,
                    low=low,
                    high=high,
                    n=10,
                    correct=correct,
                    **common,
                )
            )
        ppl = text_ppl(method, trained, length)
        scores.append(around("perplexity", "press", "ppl", length, ppl, {"stride": 64}, common))
    for gap in GAPS:
        ppl = text_ppl(method, trained, 256 + gap)
        scores.append(around("gap", "jump", "ppl", gap + 256, ppl, {"gap": gap}, common))
    for first, last in BUCKETS:
        nll = math.log(text_ppl(method, trained, last + 1)) + 1.5 / math.sqrt(last + 1)
        scores.append(around("nll_by_position", "one-pass", "nll", 2048, nll, {"first": first, "last": last}, common))
    return scores


def around(task: str, protocol: str, metric: str, length: int, value: float, extra: dict, common: dict) -> Score:
    low, high = 0.96 * value, 1.05 * value
    return Score(
        task=task,
        protocol=protocol,
        metric=metric,
        length=length,
        value=value,
        low=low,
        high=high,
        n=40,
        extra=extra,
        **common,
    )


def found_rate(method: str, trained: int, length: int, depth: float) -> float:
    if method == "none" and length <= L:
        return 0.99
    distance = length * (1 - depth) / TARGET
    learnt = 1 / (1 + math.exp(-(trained - HALF_WAY[method] * (0.5 + distance)) / (0.12 * HALF_WAY[method])))
    return 0.0 if trained == 0 else min(1.0, learnt * 1.0)


def text_ppl(method: str, trained: int, length: int) -> float:
    base = 14.0 - 0.6 * math.log2(max(length, 16) / L)
    left = math.exp(-trained / 60)
    harm = {
        "none": 1 + 12 * left * max(0, math.log2(length / L)),
        "linear:8": 1 + 7 * left + 0.08,
        "yarn:8": 1 + 0.5 * left,
    }[method]
    return base * harm


@pytest.fixture(scope="session")
def fake_runs(tmp_path_factory) -> list[Path]:
    """Three run folders; the untrained base's scores are in the direct run's."""
    root = tmp_path_factory.mktemp("runs")
    return [write_run(root / ARMS[method], method) for method in STEPS]


@pytest.fixture(scope="session")
def built(fake_runs, tmp_path_factory) -> Path:
    """The folder of a report on the three fake runs."""
    out = tmp_path_factory.mktemp("report")
    notes = ReportNotes(
        cautions=("A note on <few> trials.",), sections={"retrieval": "Seen in /home/someone/notes.txt."}
    )
    build_report(fake_runs, out, "Tiny base & friends", notes)
    return out


@pytest.fixture(scope="session")
def make_scores():
    return model_scores


@pytest.fixture(scope="session")
def make_run():
    return write_run
