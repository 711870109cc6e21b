"""DeepSpeed behind a few verbs: start, train one step, save, load, gather. One process on a CPU takes the same path as
many GPUs (gloo instead of NCCL, ZeRO stage 0 to 3).

The loss rule: the loss of a micro batch is the sum of its token losses x c / (valid tokens of the whole optimizer step,
all ranks). DeepSpeed averages gradients over the c = data-parallel ranks, so the factor c makes the sum exact: the
gradient is that of the mean over all valid tokens, however unevenly they are spread. There is no second JSON: the
DeepSpeed dict comes from RunConfig alone.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import socket
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn

from .config import RunConfig
from .data.batch import Batch, attention_inputs
from .errors import ConfigError, RunError
from .loss import IGNORED, TokenLoss


@dataclass(frozen=True)
class StepResult:
    """What one optimizer step did, summed over all ranks."""

    loss: float
    """Mean over the valid tokens of the step, nats."""
    loss_inside: float | None
    """The same over tokens predicted from positions below the original window L; absent when there are none."""
    loss_beyond: float | None
    tokens: int
    """Input tokens, ignored labels included."""
    square_tokens: int
    """Sum of squared row lengths, which the cost of attention follows."""
    tokens_inside: int
    tokens_beyond: int
    grad_norm: float
    """Global 2-norm before clipping."""
    applied: bool
    """False when the step was skipped because a gradient was not finite."""


@dataclass(frozen=True)
class World:
    rank: int
    size: int
    device: torch.device

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes and prints."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait for all ranks. Collective."""
        if self.size > 1:
            dist.barrier()


def start_world() -> World:
    """Join the process group that a launcher described in the environment; alone when there is none."""
    launched = "RANK" in os.environ
    if not launched:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        alone = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ.update({key: str(value) for key, value in alone.items()})
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # said outright, DeepSpeed does not warn that it had to guess
    with quiet_deepspeed():
        import deepspeed

        if not dist.is_initialized():
            deepspeed.init_distributed(dist_backend="nccl" if torch.cuda.is_available() else "gloo", verbose=False)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    else:
        device = torch.device("cpu")
    return World(dist.get_rank(), dist.get_world_size(), device)


def deepspeed_config(config: RunConfig, micro_batches: int) -> dict[str, Any]:
    """The DeepSpeed dict of a run; `micro_batches` is the number one rank accumulates in a step."""
    zero: dict[str, Any] = {"stage": config.parallel.zero_stage}
    if config.parallel.offload_optimizer:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    if config.parallel.offload_parameters:
        zero["offload_param"] = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    return {
        "train_micro_batch_size_per_gpu": 1,  # nominal: DeepSpeed only multiplies it into figures we do not use
        "gradient_accumulation_steps": micro_batches,
        "zero_optimization": zero,
        # torch's AdamW steps on the host when the optimizer is offloaded; DeepSpeed's own needs a compiler at run time
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "gradient_clipping": config.train.clip_norm or 0.0,
        "bf16": {"enabled": config.model.dtype == "bfloat16"},
        "steps_per_print": 2**31,
    }


class Engine:
    """A model under training."""

    def __init__(self, config: RunConfig, model: nn.Module, world: World) -> None:
        import deepspeed

        self.config, self.world = config, world
        per_step = config.train.tokens_per_step // config.train.micro_batch_tokens
        if per_step % world.size:
            raise ConfigError(
                f"train.tokens_per_step / train.micro_batch_tokens = {per_step} micro batches a step cannot be shared "
                f"by {world.size} ranks. Set train.tokens_per_step to a multiple of "
                f"{config.train.micro_batch_tokens * world.size}."
            )
        self.micro_batches = per_step // world.size
        section = config.train
        trainable = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(
            trainable,
            lr=section.lr,
            betas=(section.beta1, section.beta2),
            eps=section.eps,
            weight_decay=section.weight_decay,
        )
        with quiet_deepspeed():
            self._engine, self.optimizer, _, _ = deepspeed.initialize(
                model=TokenLoss(model, section.loss_chunk_tokens),
                optimizer=optimizer,  # type: ignore[arg-type]
                config=deepspeed_config(config, self.micro_batches),
            )
        self.model = model

    def train_step(self, batches: Sequence[Batch], lr: float) -> StepResult:
        """One optimizer step on this rank's micro batches; every rank must call it with equally many."""
        assert len(batches) == self.micro_batches
        valid = sum(int((batch.labels_BT != IGNORED).sum()) for batch in batches)
        num_valid = int(self.sum_over_ranks([valid])[0])
        if num_valid == 0:
            raise RunError("no token of this step carries a label, so there is nothing to learn; check data.rows")
        for group in cast(torch.optim.Optimizer, self.optimizer).param_groups:
            group["lr"] = lr
        sums = torch.zeros(6, dtype=torch.float64)  # as in _bucket
        norm = None
        for index, batch in enumerate(batches):
            nll_BT = self._engine(*self._inputs(batch))
            loss = nll_BT.sum() * (self.world.size / num_valid)
            self._engine.backward(loss, scale_wrt_gas=False)
            sums += self._bucket(nll_BT.detach(), batch)
            if index == len(batches) - 1 and self._stage_zero_float32:
                norm = self._local_grad_norm()  # DeepSpeed clips here but does not report
            self._engine.step()
        inside, beyond, num_inside, num_beyond, tokens, squares = self.sum_over_ranks(sums.tolist())
        grad_norm = norm if norm is not None else float(cast(float, self._engine.get_global_grad_norm()))
        return StepResult(
            loss=(inside + beyond) / num_valid,
            loss_inside=inside / num_inside if num_inside else None,
            loss_beyond=beyond / num_beyond if num_beyond else None,
            tokens=int(tokens),
            square_tokens=int(squares),
            tokens_inside=int(num_inside),
            tokens_beyond=int(num_beyond),
            grad_norm=grad_norm,
            applied=bool(self._engine.was_step_applied()),
        )

    def sum_over_ranks(self, values: Sequence[float]) -> list[float]:
        """Each value summed over all ranks, in float64. Collective."""
        total = torch.tensor(values, dtype=torch.float64, device=self.world.device)
        if self.world.size > 1:
            dist.all_reduce(total)
        return total.tolist()

    def any_rank(self, flag: bool) -> bool:
        """Whether any rank says yes, so that all of them act alike. Collective."""
        return self.sum_over_ranks([float(flag)])[0] > 0

    def save(self, folder: Path) -> None:
        """Write weights and optimizer state under `folder`. Collective."""
        with quiet_deepspeed():
            self._engine.save_checkpoint(str(folder), tag="engine", save_latest=False)

    def load(self, folder: Path) -> None:
        """Read back what `save` wrote, on the same number of ranks. Collective."""
        with quiet_deepspeed():
            path, _ = self._engine.load_checkpoint(str(folder), tag="engine")
        if path is None:
            raise RunError(f"{folder}: DeepSpeed found no checkpoint in it")

    @contextlib.contextmanager
    def gathered(self, params: Sequence[nn.Parameter]) -> Iterator[None]:
        """Inside, `params` are whole on every rank, also under ZeRO 3. Collective."""
        if self.config.parallel.zero_stage < 3:
            yield
            return
        import deepspeed

        with deepspeed.zero.GatheredParameters(list(params)):
            yield

    def _inputs(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        inputs = attention_inputs(batch)
        mask = inputs["attention_mask"]
        device = self.world.device
        return (
            inputs["input_ids"].to(device),
            inputs["position_ids"].to(device),
            batch.labels_BT.to(device),
            None if mask is None else mask.to(device),
        )

    def _bucket(self, nll_BT: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Loss inside and beyond L, tokens inside and beyond, all tokens, squared row lengths."""
        nll_BT = nll_BT.double().cpu()
        valid_BT = batch.labels_BT != IGNORED
        beyond_BT = valid_BT & (batch.position_ids_BT >= self.config.rope.original_window)
        inside_BT = valid_BT & ~beyond_BT
        values = [nll_BT[inside_BT].sum(), nll_BT[beyond_BT].sum(), inside_BT.sum(), beyond_BT.sum()]
        num_rows, num_tokens = batch.input_ids_BT.shape
        return torch.tensor([*map(float, values), num_rows * num_tokens, num_rows * num_tokens**2], dtype=torch.float64)

    @property
    def _stage_zero_float32(self) -> bool:
        return self.config.parallel.zero_stage == 0 and self.config.model.dtype == "float32"

    def _local_grad_norm(self) -> float:
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        return float(nn.utils.get_total_norm(grads))


@contextlib.contextmanager
def zero3_construction(config: RunConfig) -> Iterator[None]:
    """Under ZeRO 3, weights loaded inside are partitioned as they arrive, so that no rank holds the whole model."""
    if config.parallel.zero_stage < 3 or config.model.fresh is not None:
        yield
        return
    from transformers.integrations.deepspeed import HfDeepSpeedConfig, unset_hf_deepspeed_config

    _alive = HfDeepSpeedConfig(deepspeed_config(config, 1))  # transformers holds only a weak reference
    try:
        yield
    finally:
        del _alive
        unset_hf_deepspeed_config()


def learning_rate(config: RunConfig, step: int) -> float:
    """The rate of optimizer step `step` (0-based): linear warm-up, then constant, linear or cosine to min_lr_ratio."""
    section = config.train
    if step < section.warmup_steps:
        return section.lr * (step + 1) / section.warmup_steps
    done = (step - section.warmup_steps) / max(section.steps - section.warmup_steps, 1)
    match section.schedule:
        case "constant":
            return section.lr
        case "linear":
            shape = 1 - done
        case "cosine":
            shape = 0.5 * (1 + math.cos(math.pi * done))
    return section.lr * (section.min_lr_ratio + (1 - section.min_lr_ratio) * shape)


@contextlib.contextmanager
def quiet_deepspeed() -> Iterator[None]:
    """Keep DeepSpeed's information lines and torch's deprecation notes about its calls off the user's screen."""
    import logging

    logger = logging.getLogger("DeepSpeed")
    level = logger.level
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logger.setLevel(level)
