"""Base folder or hub id + method -> an extended model, ready to train or use.

The method reaches the model only through its config, before construction, so what is trained is what stock
transformers builds from the exported config.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from .config import FreshModel, LoraFinetune, ModelSection, RunConfig
from .errors import ModelError
from .loading import load_config, load_weights
from .positional import Method, parse_method
from .positional.hf import PretrainedRope, extend_config, read_rope, verify_rotary


@dataclass(frozen=True)
class ModelBundle:
    """An extended model with what it was made from."""

    model: torch.nn.Module
    """A stock transformers causal LM, or a peft wrapper around one."""
    tokenizer: PreTrainedTokenizerBase
    pretrained: PretrainedRope
    method: Method
    target_window: int

    @property
    def stock_config(self) -> PreTrainedConfig:
        """The config stock transformers builds the model from."""
        return cast(PreTrainedConfig, self.model.config)

    def verify(self) -> None:
        """Raise ModelError unless the rotary buffers are float32 and the method's, to float32 rounding."""
        verify_rotary(stock_model(self.model), self.method, self.pretrained.base)


def stock_model(model: torch.nn.Module) -> PreTrainedModel:
    """The transformers model inside a peft wrapper, or the model itself."""
    return cast(PreTrainedModel, model.get_base_model() if hasattr(model, "peft_config") else model)  # type: ignore[operator]


def extend(
    source: str | Path | PreTrainedConfig,
    method: str | Method,
    *,
    dtype: torch.dtype | str = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> PreTrainedModel:
    """An extended transformers model: pretrained weights of a folder or hub id, or random ones from a config.

    `method` is `name:factor[,key=value...]` or a Method record. The model's window becomes factor x its pretrained
    window. Raises ModelError or MethodError when that cannot be done exactly.
    """
    method = parse_method(method) if isinstance(method, str) else method
    if isinstance(source, PreTrainedConfig):
        config, rope = source, read_rope(source)
        model = AutoModelForCausalLM.from_config(extend_config(config, method), trust_remote_code=trust_remote_code)
        if isinstance(dtype, torch.dtype):
            raise ModelError(
                "extend(config, ..., dtype=...): set config.dtype instead; casting a built model ruins RoPE"
            )
    else:
        section = ModelSection(base=str(source), revision=revision, trust_remote_code=trust_remote_code)
        config = load_config(section)
        rope = read_rope(config)
        model = load_weights(section, extend_config(config, method), dtype)
    verify_rotary(model, method, rope.base)
    return cast(PreTrainedModel, model)


def load_bundle(config: RunConfig, tokenizer: PreTrainedTokenizerBase) -> ModelBundle:
    """The model of a run, extended, in the run's dtype, with LoRA attached when the recipe asks for it."""
    section, method, target = config.model, config.method, config.rope.target_window
    torch.manual_seed(config.seed)
    dtype = getattr(torch, section.dtype)
    if section.fresh is not None:
        base_config = fresh_config(section.fresh, config.rope.original_window, tokenizer)
    else:
        base_config = load_config(section)
        if base_config.vocab_size < len(tokenizer):
            raise ModelError(
                f"model.base {section.base} has vocab_size {base_config.vocab_size} but its tokenizer makes ids up to "
                f"{len(tokenizer) - 1}. Set model.tokenizer to the tokenizer this model was trained with."
            )
    extended, rope = extended_config(config, base_config)
    extended._attn_implementation = section.attention
    if section.fresh is not None:
        extended.dtype = dtype
        model = AutoModelForCausalLM.from_config(extended, dtype=dtype)
    else:
        model = load_weights(section, extended, dtype)
    verify_rotary(model, method, rope.base)
    if isinstance(config.finetune, LoraFinetune):
        model = attach_lora(model, config.finetune)
    if config.train.activation_checkpointing:
        stock_model(model).gradient_checkpointing_enable({"use_reentrant": False})
        stock_model(model).enable_input_require_grads()
    model.train()
    return ModelBundle(model, tokenizer, rope, method, target)


def check_base(config: RunConfig) -> None:
    """Raise ModelError or MethodError unless `model.base` can be extended as asked. Reads its config alone."""
    if config.model.fresh is None:
        extended_config(config, load_config(config.model))


def extended_config(config: RunConfig, base_config: PreTrainedConfig) -> tuple[PreTrainedConfig, PretrainedRope]:
    """The config of a run's model, and the RoPE of the base it was made from."""
    asked = config.rope
    rope = read_rope(base_config, asked.original_window)
    extended = extend_config(
        base_config,
        config.method,
        asked.target_window,
        replace_existing=asked.replace_existing,
        original_window=rope.base.window,
    )
    return extended, rope


def fresh_config(shape: FreshModel, window: int, tokenizer: PreTrainedTokenizerBase) -> LlamaConfig:
    """The config of a small LLaMA that starts from random weights."""
    return LlamaConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.head_dim or shape.hidden_size // shape.num_heads,
        max_position_embeddings=window,
        initializer_range=shape.initializer_range,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        tie_word_embeddings=shape.tie_embeddings,
        bos_token_id=cast(int, tokenizer.bos_token_id),
        eos_token_id=cast(int, tokenizer.eos_token_id),
        pad_token_id=cast(int, tokenizer.pad_token_id),
    )


def attach_lora(model: PreTrainedModel, finetune: LoraFinetune) -> torch.nn.Module:
    """Wrap the model with LoRA; embeddings and norms train in place, with no copy, where the recipe says so."""
    from peft import LoraConfig, get_peft_model

    names = {name.rsplit(".", 1)[-1] for name, _ in model.named_modules()}
    unknown = [target for target in finetune.targets if target not in names]
    if unknown:
        raise ModelError(
            f"finetune.targets {unknown} are not modules of {type(model).__name__}; it has {sorted(names)}"
        )
    wrapped = get_peft_model(
        model,
        LoraConfig(
            r=finetune.rank,
            lora_alpha=cast(int, finetune.alpha),
            target_modules=list(finetune.targets),
            lora_dropout=0.0,
            task_type="CAUSAL_LM",
        ),
    )
    embedding = model.get_input_embeddings()
    for name, module in model.named_modules():
        is_norm = "norm" in name.rsplit(".", 1)[-1].lower()
        if (finetune.train_norms and is_norm) or (finetune.train_embeddings and module is embedding):
            for param in module.parameters(recurse=False):
                param.requires_grad_(True)
    return cast(torch.nn.Module, wrapped)
