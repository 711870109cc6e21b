"""Checkpoint -> `export/`: merged weights, config in both schemas, tokenizer; written aside, re-opened, then renamed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import torch
from safetensors import safe_open
from torch import nn
from transformers import AutoConfig

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
    if not engine.world.leads:
        return None
    partial = folder.with_name(f".partial-{folder.name}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    model = stock_model(bundle.model)
    tied = {name for name in model.all_tied_weights_keys if name in state}
    try:
        model.save_pretrained(partial, state_dict={k: v for k, v in state.items() if k not in tied})
        config = both_schemas(model.config)
        config["use_cache"] = True
        config.pop("_name_or_path", None)
        (partial / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        bundle.tokenizer.model_max_length = bundle.target_window
        bundle.tokenizer.save_pretrained(partial)
    except OSError as error:
        raise RunError(f"could not write {folder.name}: {error}") from error
    _verify(partial, {k: v for k, v in state.items() if k not in tied}, bundle)
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(partial, folder)
    fsync_folder(folder.parent)
    return folder


def merged_state(engine: Engine, model: nn.Module) -> dict[str, torch.Tensor]:
    """The stock model's state dict with LoRA merged in, on the CPU of rank 0 (empty elsewhere). Collective."""
    from peft.tuners.lora import LoraLayer

    lora = {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}
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
