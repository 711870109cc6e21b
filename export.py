"""Checkpoint -> `export/`: merged weights, config in both schemas, tokenizer; written aside, re-opened, renamed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn
from transformers import AutoConfig
from transformers.utils.logging import disable_progress_bar

from .checkpoint import fsync_folder
from .engine import Engine
from .errors import RunError
from .model import ModelBundle, stock_model
from .positional.hf import both_schemas, verify_rotary


def export(engine: Engine, bundle: ModelBundle, folder: Path) -> Path | None:
    """Write the model as a plain Hugging Face folder and verify it. Collective; returns the folder on rank 0.

    Raises RunError when a tensor re-read from disk is missing, empty, not finite or not the one in memory, or when
    stock transformers would rotate differently from what was trained.
    """
    state = merged_state(engine, bundle.model)
    probe = probe_logits(bundle, engine)
    if not engine.world.leads:
        return None
    partial = folder.with_name(f".partial-{folder.name}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    model = stock_model(bundle.model)
    tied = {name for name in model.all_tied_weights_keys if name in state}
    disable_progress_bar()  # the run's own progress line says what happens
    try:
        model.save_pretrained(partial, state_dict={k: v for k, v in state.items() if k not in tied})
        config = both_schemas(model.config)
        config["use_cache"] = True
        config.pop("_name_or_path", None)
        (partial / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        bundle.tokenizer.model_max_length = bundle.target_window
        bundle.tokenizer.save_pretrained(partial)
        save_file(probe, folder.with_name(f"{folder.name}_probe.safetensors"))
        for path in partial.iterdir():
            path.chmod(0o644)  # safetensors keeps its files to their owner
    except (OSError, SafetensorError) as error:
        raise RunError(f"could not write {folder.name}: {error}") from error
    _verify(partial, {k: v for k, v in state.items() if k not in tied}, bundle)
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(partial, folder)
    fsync_folder(folder.parent)
    return folder


PROBE_TOKENS = 32
"""Tokens at each end of the window whose logits are left beside an export."""


def probe_logits(bundle: ModelBundle, engine: Engine) -> dict[str, torch.Tensor]:
    """Logits of the live model at the first and the last positions of the target window, to hold an export against.

    Tensors `input_ids`, `position_ids` (1, T) and `logits` (1, T, V) with T = 64. Collective: under ZeRO 3 every rank
    must run the forward pass.
    """
    model = stock_model(bundle.model)
    ends = [torch.arange(PROBE_TOKENS), torch.arange(bundle.target_window - PROBE_TOKENS, bundle.target_window)]
    position_ids_BT = torch.cat(ends)[None]
    random = torch.Generator().manual_seed(0)
    input_ids_BT = torch.randint(0, model.config.vocab_size, position_ids_BT.shape, generator=random)
    was_training = model.training
    model.eval()
    with torch.no_grad():
        logits_BTV = model(
            input_ids=input_ids_BT.to(engine.world.device),
            position_ids=position_ids_BT.to(engine.world.device),
            attention_mask=torch.ones_like(input_ids_BT).to(engine.world.device),  # the jump is not a packing border
            use_cache=False,
        ).logits
    model.train(was_training)
    return {"input_ids": input_ids_BT, "position_ids": position_ids_BT, "logits": logits_BTV.cpu().contiguous()}


def merged_state(engine: Engine, model: nn.Module) -> dict[str, torch.Tensor]:
    """The stock model's state dict with LoRA merged in, on the CPU of rank 0 (empty elsewhere). Collective."""
    from peft.tuners.lora import LoraLayer

    lora: dict[str, Any] = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
    state: dict[str, torch.Tensor] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        params = list(module.named_parameters(recurse=False))
        owner = lora.get(name.removesuffix(".base_layer")) if name.endswith(".base_layer") else None
        if not params or "lora_" in name:
            continue
        adapter = [p for n, p in owner.named_parameters() if "lora_" in n] if owner is not None else []
        with engine.gathered([param for _, param in params] + adapter), torch.no_grad():
            if not engine.world.leads:
                continue
            for key, param in params:
                value = param.detach().cpu().clone()
                if owner is not None and key == "weight":
                    value += owner.get_delta_weight(owner.active_adapters[0]).detach().cpu().to(value.dtype)
                state[_stock_name(f"{name}.{key}" if name else key)] = value
    return state


def _stock_name(name: str) -> str:
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".")


def _verify(folder: Path, state: dict[str, torch.Tensor], bundle: ModelBundle) -> None:
    seen: set[str] = set()
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as shard:
            for name in shard.keys():  # noqa: SIM118 - not a dict
                tensor = shard.get_tensor(name)
                seen.add(name)
                if name not in state:
                    raise RunError(f"export: {path.name} holds {name}, which the model does not have")
                if tensor.numel() == 0 or not torch.isfinite(tensor).all():
                    raise RunError(f"export: tensor {name} is empty or not finite")
                if not torch.equal(tensor, state[name]):
                    raise RunError(f"export: tensor {name} on disk is not the trained one")
    if missing := sorted(set(state) - seen):
        raise RunError(f"export: tensors missing on disk: {missing[:5]}")
    # A model with no weights suffices: the rotary buffers depend on the config alone.
    config = AutoConfig.from_pretrained(folder)
    config.num_hidden_layers = 0
    with torch.device("cpu"):
        skeleton = type(stock_model(bundle.model))._from_config(config)
    verify_rotary(skeleton, bundle.method, bundle.pretrained.base)
