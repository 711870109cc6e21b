"""The two demonstrations, made of nothing but the commands a user types: `ropewalk train`, `eval` and `report`.

Runs that do not depend on each other share the machine's cores, one thread each: models this small gain nothing from
a second thread.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .errors import RunError
from .recipe_file import resolve_path


@dataclass(frozen=True)
class Arm:
    """One run of the demonstration: its recipe, the steps after which passkeys are asked, the tasks at the end."""

    recipe: str
    steps: tuple[int, ...]
    last_tasks: str


@dataclass(frozen=True)
class Target:
    """What the demonstration must reach; a claim that is printed as met or short."""

    text: str
    figure: float | None
    met: bool


TEXT_TASKS = "perplexity,nll-by-position"
DEMO_ARMS = (
    Arm("demo-linear-8x", (25, 50, 100, 200, 400), TEXT_TASKS),
    Arm("demo-direct-8x", (25, 50, 100, 200), TEXT_TASKS),
    Arm("demo-yarn-8x", (25, 50, 100, 200), TEXT_TASKS),
    Arm("demo-linear-8x-text", (25, 50, 100), TEXT_TASKS),
)
SHORT_STEPS = (2, 4)


def run_demo(out: Path, short: bool, cache: Path) -> None:
    """Extend the tiny base 8 times by linear and yarn, beside direct fine-tuning; measure, verify, report, judge.

    `short` proves the parts work: few steps and trials, no targets. Raises RunError when a part or a target fails.
    """
    started = time.monotonic()
    arms = DEMO_ARMS if not short else tuple(Arm(a.recipe, SHORT_STEPS, a.last_tasks) for a in DEMO_ARMS[:3])
    passkey = ["--tasks", "passkey", "--trials", "1" if short else "4"]
    common = ["--lengths", "256,512,2048" if short else "256,512,1024,2048", "--cache", cache]

    def measure_arm(arm: Arm) -> None:
        run = out / arm.recipe
        overrides = [f"train.steps={arm.steps[-1]}", f"checkpoint.export_steps={list(arm.steps[:-1])}"]
        overrides += ["train.warmup_steps=1"] if short else []
        _ropewalk("train", f"recipes/{arm.recipe}.yaml", *overrides, "--out", run, "--cache", cache)
        _ropewalk("eval", run, "--steps", ",".join(map(str, arm.steps)), *passkey, *common)
        _ropewalk("eval", run, "--tasks", arm.last_tasks, *common)

    def measure_base(first_arm: Future[None]) -> None:
        first_arm.result()  # its run folder holds the data that the base is measured on
        untrained = [out / arms[0].recipe, "--steps", "0", "--methods", "none;ntk:8;linear:8;yarn:8"]
        _ropewalk("eval", *untrained, *passkey, *common)
        _ropewalk("eval", *untrained, "--tasks", TEXT_TASKS, *common)

    with ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as lanes:
        jobs = [lanes.submit(measure_arm, arm) for arm in arms]
        jobs.append(lanes.submit(measure_base, jobs[0]))
        for job in jobs:
            job.result()
    for arm in arms:
        verify_export(out / arm.recipe)
    page = out / "report"
    _ropewalk("report", *[out / arm.recipe for arm in arms], "--out", page, "--title", "Tiny base, 256 to 2048 tokens")
    print(f"\nfinished in {time.monotonic() - started:.0f} s; open {page / 'report.html'}")
    if not short:
        _judge(demo_targets(page / "report.json"))


REAL_ARMS = ("smollm2-135m-linear-32k-cpu", "smollm2-135m-yarn-32k-cpu", "smollm2-135m-direct-32k-cpu")


def run_demo_real(out: Path, cache: Path) -> None:
    """SmolLM2-135M from 8,192 to 32,768 tokens by linear and yarn, beside direct fine-tuning, on novels."""
    started = time.monotonic()
    _ropewalk("fetch-smollm2", "--cache", cache)
    for recipe in REAL_ARMS:
        _ropewalk("train", f"recipes/{recipe}.yaml", "--out", out / recipe, "--cache", cache, threads=0)
    first = out / REAL_ARMS[0]
    common = ["--cache", cache]
    _ropewalk("eval", first, "--steps", "0", "--methods", "none;linear:4;yarn:4", "--tasks", "gap", *common, threads=0)
    for recipe in REAL_ARMS:
        _ropewalk("eval", out / recipe, "--tasks", "gap", *common, threads=0)
    long = ["--tasks", "nll-by-position", "--lengths", "16384"]
    _ropewalk("eval", first, "--steps", "0", "--methods", "none", *long, *common, threads=0)
    _ropewalk("eval", out / REAL_ARMS[1], *long, *common, threads=0)
    passkey = ["--tasks", "passkey", "--lengths", "12288,16384", "--trials", "1"]
    _ropewalk("eval", first, "--steps", "0", "--methods", "none", *passkey, *common, threads=0)
    for recipe in REAL_ARMS[:2]:
        _ropewalk("eval", out / recipe, *passkey, *common, threads=0)
    page = out / "report"
    title = "SmolLM2-135M, 8,192 to 32,768 tokens"
    _ropewalk("report", *[out / recipe for recipe in REAL_ARMS], "--out", page, "--title", title)
    print(f"\nfinished in {time.monotonic() - started:.0f} s; open {page / 'report.html'}")
    _judge(demo_real_targets(page / "report.json"))


def demo_targets(report_json: Path) -> list[Target]:
    """The promises of the tiny demonstration, read from its own report."""
    report = json.loads(report_json.read_text())
    targets = []
    for method, limit in (("yarn:8", 100), ("linear:8", 400)):
        steps = [
            row["trained"]
            for row in report["k_max"]
            if row["method"] == method and row["threshold"] == 0.9 and row["k_max"] == 2048 and "text" not in row["arm"]
        ]
        first = min(steps, default=None)
        met = first is not None and first <= limit
        targets.append(Target(f"{method}: steps until k_max at 90 % = 2048 (at most {limit})", first, met))
    base = _perplexity(report, "none", 0, 256)
    for method, limit in (("yarn:8", 1.05), ("linear:8", 1.15)):
        last = max(row["trained"] for row in report["perplexity"] if row["method"] == method)
        ratio = _perplexity(report, method, last, 2048) / base
        text = f"{method}: perplexity with 2,048 tokens of context over the base's with 256 (at most {limit})"
        targets.append(Target(text, round(ratio, 3), ratio <= limit))
    return targets


def demo_real_targets(report_json: Path) -> list[Target]:
    """The promises of the demonstration on real weights, read from its own report."""
    rows = json.loads(report_json.read_text())["gap"]
    base = next(r["value"] for r in rows if r["method"] == "none" and r["trained"] == 0 and r["gap"] == 0)
    targets = []
    for method, limit in (("yarn:4", 1.05), ("linear:4", 1.5)):
        last = max(r["trained"] for r in rows if r["method"] == method)
        worst = max(r["value"] for r in rows if r["method"] == method and r["trained"] == last) / base
        text = f"{method}: worst perplexity over all gaps, over the base's at gap 0 (at most {limit})"
        targets.append(Target(text, round(worst, 3), worst <= limit))
    return targets


STOCK_CHECK = """
import sys, torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
assert not any(name.split(".")[0] == "ropewalk" for name in sys.modules)
probe = load_file(sys.argv[2])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
with torch.no_grad():
    logits = model(input_ids=probe["input_ids"], position_ids=probe["position_ids"],
                   attention_mask=torch.ones_like(probe["input_ids"]), use_cache=False).logits
print(float((logits - probe["logits"]).abs().max()))
"""
"""Run alone in a fresh process: stock transformers against the logits that training left behind."""


def verify_export(run: Path) -> float:
    """Load `run/export` in a fresh process with stock transformers only; returns the largest logit difference.

    Raises RunError when it is not 0 (float32 runs on this machine must agree exactly).
    """
    done = subprocess.run(
        [sys.executable, "-I", "-c", STOCK_CHECK, str(run / "export"), str(run / "export_probe.safetensors")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        raise RunError(f"{run.name}/export does not load in stock transformers: {done.stderr.strip()[-500:]}")
    difference = float(done.stdout.split()[-1])
    print(f"{run.name}: export in a fresh process, stock transformers: largest logit difference {difference:g}")
    if difference != 0:
        raise RunError(f"{run.name}/export gives other logits than the trained model (by {difference:g})")
    return difference


def _perplexity(report: dict, method: str, trained: int, length: int) -> float:
    return next(
        row["value"]
        for row in report["perplexity"]
        if row["method"] == method and row["trained"] == trained and row["length"] == length
    )


def _judge(targets: Sequence[Target]) -> None:
    for target in targets:
        print(f"{'ok   ' if target.met else 'short'} {target.text}: {target.figure}")
    short = [target.text for target in targets if not target.met]
    if short:
        raise RunError(f"{len(short)} of {len(targets)} targets were not met; the report shows what was measured")


def _ropewalk(*words: object, threads: int = 1) -> None:
    """One `ropewalk` command in a process of its own, its output shown; RunError when it fails."""
    names = [str(resolve_path(str(word))) if str(word).startswith("recipes/") else str(word) for word in words]
    environment = dict(os.environ)
    if threads:
        environment["OMP_NUM_THREADS"] = str(threads)
    code = "from ropewalk.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *names], env=environment, check=False)
    if done.returncode:
        raise RunError(f"`ropewalk {' '.join(names)}` failed with exit code {done.returncode}")
