"""Step metrics: one JSON line a step, a live progress line, and the named trackers beside them."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from transformers import PreTrainedModel

from .config import RunConfig
from .engine import StepResult
from .errors import RunError

METRICS_FILE = "metrics.jsonl"

Send = Callable[[int, dict[str, float]], object]
"""Takes a step and its values by name."""

PEAK_FLOPS = {"A100": 312e12, "H100": 989e12, "H200": 989e12, "B200": 2250e12, "L40S": 362e12, "4090": 165e12}
"""Dense bf16 peak of one GPU, FLOP/s, by a word in its name (vendor data sheets). MFU is absent for others."""


def train_flops(model: PreTrainedModel, tokens: int, square_tokens: int) -> float:
    """Model FLOPs of forward and backward: 6 x weights x tokens, plus causal attention 6 x layers x width x T^2.

    `square_tokens` is the sum of squared row lengths; recomputation is not counted (model, not hardware, FLOPs).
    """
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    width = config.num_attention_heads * head_dim
    sizes = {id(p): p.ds_numel if hasattr(p, "ds_numel") else p.numel() for p in model.parameters()}  # type: ignore[attr-defined]
    num_weights = sum(sizes.values())
    if not config.tie_word_embeddings:  # a look-up is no multiplication; a tied table is used once as the head
        num_weights -= config.vocab_size * config.hidden_size
    return 6.0 * num_weights * tokens + 6.0 * config.num_hidden_layers * width * square_tokens


def peak_flops(num_gpus: int) -> float | None:
    """Summed peak of the GPUs in use, FLOP/s; None where it is not known (CPUs, unlisted GPUs)."""
    if not torch.cuda.is_available():
        return None
    name = torch.cuda.get_device_name()
    return next((peak * num_gpus for word, peak in PEAK_FLOPS.items() if word in name), None)


def peak_memory_bytes() -> int:
    """Largest allocation so far on this GPU, or resident memory of this process on a CPU."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


class StepLog:
    """Writes each step's metrics, on rank 0 only, and shows progress with rate and time left."""

    def __init__(self, config: RunConfig, folder: Path, model: PreTrainedModel, world_size: int, done: int) -> None:
        self.config, self.folder, self.model = config, folder, model
        self.peak = peak_flops(world_size)
        self._drop_after(done)
        self._file = (folder / METRICS_FILE).open("a", buffering=1)
        self._trackers = [_tracker(name, config, folder) for name in config.log.to]
        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn(f"[bold]{config.name}[/bold]"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]} · {task.fields[rate]} tok/s ·"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            transient=False,
        )
        self._task = self._progress.add_task("train", total=config.train.steps, completed=done, loss="–", rate="–")
        if self._console.is_terminal:
            self._progress.start()
        self._last_line = time.monotonic()

    def write(self, step: int, result: StepResult, lr: float, seconds: float, tokens_total: int) -> None:
        """Log optimizer step `step` (1-based) that took `seconds`."""
        flops_per_s = train_flops(self.model, result.tokens, result.square_tokens) / seconds
        record: dict[str, Any] = {
            "step": step,
            "loss": result.loss,
            "loss_inside": result.loss_inside,
            "loss_beyond": result.loss_beyond,
            "tokens_inside": result.tokens_inside,
            "tokens_beyond": result.tokens_beyond,
            "grad_norm": result.grad_norm,
            "lr": lr,
            "applied": result.applied,
            "tokens": result.tokens,
            "tokens_total": tokens_total,
            "tokens_per_s": result.tokens / seconds,
            "flops_per_s": flops_per_s,
            "mfu": flops_per_s / self.peak if self.peak else None,
            "peak_memory_bytes": peak_memory_bytes(),
            "time_s": seconds,
        }
        record = {key: value for key, value in record.items() if value is not None}
        self._file.write(json.dumps(record) + "\n")
        for send, _ in self._trackers:
            send(step, {key: float(value) for key, value in record.items() if key != "step"})
        rate = f"{record['tokens_per_s']:,.0f}"
        self._progress.update(self._task, completed=step, loss=f"{result.loss:.3f}", rate=rate)
        if not self._console.is_terminal:
            self._plain_line(step, result, rate)

    def say(self, text: str) -> None:
        """Print a line without tearing the progress bar."""
        self._console.print(text, highlight=False, soft_wrap=True)

    def close(self) -> None:
        self._progress.stop()
        self._file.close()
        for _, finish in self._trackers:  # they write in the background: the last steps are not there before this
            finish()

    def _plain_line(self, step: int, result: StepResult, rate: str) -> None:
        """Where there is no terminal: a line every ten seconds and at the end."""
        now = time.monotonic()
        if now - self._last_line < 10 and step != self.config.train.steps:
            return
        self._last_line = now
        left = self._progress.tasks[0].time_remaining
        eta = f", about {left:.0f} s left" if left else ""
        self.say(
            f"{self.config.name}: step {step}/{self.config.train.steps}, loss {result.loss:.3f}, {rate} tok/s{eta}"
        )

    def _drop_after(self, done: int) -> None:
        """Forget lines of steps that will be run again, so that each step stands once."""
        path = self.folder / METRICS_FILE
        if not path.exists():
            return
        kept = []
        for line in path.read_text().splitlines():
            try:
                if json.loads(line)["step"] <= done:
                    kept.append(line)
            except ValueError:
                continue  # the last line of a process that was killed while writing
        aside = path.with_name(f".partial-{METRICS_FILE}")
        aside.write_text("".join(line + "\n" for line in kept))
        aside.replace(path)


@contextmanager
def closing(log: StepLog | None) -> Iterator[None]:
    try:
        yield
    finally:
        if log is not None:
            log.close()


def _tracker(name: str, config: RunConfig, folder: Path) -> tuple[Send, Callable[[], object]]:
    """What sends a step's values to the named tracker, and what ends it; RunError when it cannot start."""
    try:
        if name == "tensorboard":
            from torch.utils.tensorboard import SummaryWriter

            writer = SummaryWriter(str(folder / "tensorboard"))

            def write(step: int, values: dict[str, float]) -> None:
                for key, value in values.items():
                    writer.add_scalar(key, value, step)

            return write, writer.close
        import importlib

        client = importlib.import_module(name)  # wandb and trackio share this interface
        client.init(project=config.log.project, name=config.name, config=config.model_dump(mode="json"))
        return lambda step, values: client.log(values, step=step), client.finish
    except ImportError as error:
        raise RunError(
            f"log.to names {name}, which is not installed ({error}). Run `pip install ropewalk[{name}]` or remove it."
        ) from error
