"""The only door to a transformers config: reads its RoPE, writes the extended one, checks what a model rotates by.

Everything here returns new objects; `swap_rotary` alone changes the model it is given.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from torch import nn
from transformers.configuration_utils import PreTrainedConfig

from ..errors import MethodError, ModelError
from . import Method, format_method
from .base import BaseRope, Record
from .pretrained import NOTE, PretrainedRope, check_composition, note, read_fields
from .schema import FULL_ATTENTION, flat_rope, is_nested, unread_by_version_4, write_both

__all__ = [
    "PretrainedRope",
    "both_schemas",
    "extend_config",
    "read_rope",
    "swap_rotary",
    "unread_by_version_4",
    "verify_rotary",
]

LONGROPE_ONLY = {"phi3", "phi4_multimodal"}
"""Model types whose configs refuse every scaling but `longrope` (and silently rename `yarn` to it)."""

ROUNDING = 2.0**-23
"""Room for float32: an exponent, a power and a blend, each rounded once or twice, relative to the base frequency."""


def read_rope(config: PreTrainedConfig | Mapping[str, Any], original_window: int | None = None) -> PretrainedRope:
    """Read a config object or a raw config.json dict, in any form in use.

    `original_window` settles the pretrained window where the config leaves it open (a `linear` scaling does not say
    whether max_position_embeddings was raised). Raises ModelError for conflicts and for models without RoPE.
    """
    return read_fields(config if isinstance(config, Mapping) else config.to_dict(), original_window)


def extend_config(
    config: PreTrainedConfig,
    method: Method,
    target_window: int | None = None,
    *,
    replace_existing: bool = False,
    original_window: int | None = None,
) -> PreTrainedConfig:
    """A copy of `config` whose RoPE is the method's and whose window is the target window. `config` is left alone.

    The method is always stated against the *pretrained* window. A config that already carries a scaling is extended
    only when the same kind is asked for with at least its factor (the total is then unambiguous), or when
    `replace_existing` says to drop it; otherwise MethodError.
    """
    rope = read_rope(config, original_window)
    if rope.existing is not None and not replace_existing:
        check_composition(rope.existing, method, rope.base)
    window = target_window or method.target_window(rope.base)
    if method.length_dependent:
        window = rope.base.window  # its formula reads max_position_embeddings as the original length
    extended = copy.deepcopy(config)
    parameters = _stock_form(config, method, rope)
    nested = is_nested(config.rope_parameters)
    extended.rope_parameters = {**extended.rope_parameters, FULL_ATTENTION: parameters} if nested else parameters
    extended.max_position_embeddings = window
    extended.__dict__.pop("rope_theta", None)
    # Transformers lets a top-level original window override the one inside, so it must be right or absent. `linear`
    # has no place for it inside, and without it nobody can tell whether the window was already raised.
    extended.__dict__.pop("original_max_position_embeddings", None)
    if parameters["rope_type"] == "linear" or hasattr(extended, "original_max_position_embeddings"):
        setattr(extended, "original_max_position_embeddings", rope.base.window)  # noqa: B010  not a declared field
    setattr(extended, NOTE, note(method, rope.base))
    return extended


def _stock_form(config: PreTrainedConfig, method: Method, rope: PretrainedRope) -> dict[str, Any]:
    """The method's own stock type, or the general carrier where this config cannot say that type."""
    parameters = method.rope_parameters(rope.base)
    kind = parameters["rope_type"]
    current = flat_rope(config.to_dict())
    longrope_only = config.model_type in LONGROPE_ONLY and kind not in ("default", "longrope")
    partial_taken = kind == "proportional" and rope.partial_rotary_factor != 1.0
    # transformers looks for `truncate` beside the layer types, not inside one
    truncate_lost = is_nested(config.rope_parameters) and parameters.get("truncate") is False
    if longrope_only or partial_taken or truncate_lost:
        if method.length_dependent:
            raise MethodError(f"{config.model_type} configs cannot say {kind!r}: {format_method(method)} has no form")
        parameters = Record.rope_parameters(method, rope.base)
    if "partial_rotary_factor" in current and "partial_rotary_factor" not in parameters:
        parameters["partial_rotary_factor"] = rope.partial_rotary_factor
    return parameters


def swap_rotary(model: nn.Module, config: PreTrainedConfig) -> None:
    """Give a loaded model the rotary modules that stock transformers builds from `config`, and its RoPE fields."""
    for parent, name, module in list(_rotary_modules(model)):
        device = next(module.buffers()).device
        setattr(parent, name, type(module)(config).to(device))
    own = cast(PreTrainedConfig, model.config)
    own.rope_parameters = copy.deepcopy(config.rope_parameters)
    own.max_position_embeddings = config.max_position_embeddings
    for key in ("original_max_position_embeddings", NOTE):
        own.__dict__.pop(key, None)
        if key in config.__dict__:
            setattr(own, key, copy.deepcopy(config.__dict__[key]))


def verify_rotary(model: nn.Module, method: Method, base: BaseRope) -> None:
    """Raise ModelError unless every rotary buffer is float32 and the method's, and so is the attention scale.

    Where RoPE is stated per layer type, the extended type is checked.
    """
    found = list(_rotary_modules(model))
    if not found:
        raise ModelError(f"{type(model).__name__} has no rotary module that stock transformers builds; not supported")
    for _, name, module in found:
        nested = f"{FULL_ATTENTION}_" if hasattr(module, f"{FULL_ATTENTION}_inv_freq") else ""
        actual_F = getattr(module, f"{nested}inv_freq")
        scale = float(getattr(module, f"{nested}attention_scaling", 1.0))
        _verify(f"{name}.{nested}inv_freq", actual_F, scale, method, base)


def _verify(name: str, actual_F: torch.Tensor, scale: float, method: Method, base: BaseRope) -> None:
    expected, label = method.rotary(base), format_method(method)
    if actual_F.dtype != torch.float32:
        raise ModelError(
            f"{name} is {actual_F.dtype}: RoPE needs float32 (at position 32,767 bfloat16 is off by whole turns). "
            "Load with dtype=... instead of casting the built model."
        )
    if len(actual_F) != len(expected.inv_freq_F):
        raise ModelError(f"{name} rotates {len(actual_F)} pairs, {label} gives {len(expected.inv_freq_F)}")
    pairs = zip(actual_F.tolist(), expected.inv_freq_F, base.inv_freq_F, strict=True)
    for pair, (actual, wanted, before) in enumerate(pairs):
        # Rounding the exponent of theta^-x costs in proportion to x ln theta.
        exponent = abs(math.log(min(before, wanted or before)))
        if not abs(actual - wanted) <= ROUNDING * (2 + exponent) * max(before, wanted):
            raise ModelError(
                f"{name}[{pair}] = {actual:.7g}, but {label} gives {wanted:.7g}: transformers does not rotate as asked"
            )
    if not math.isclose(scale, expected.attention_scale, rel_tol=1e-6):
        raise ModelError(f"{name} scales attention by {scale:.6g}, but {label} asks for {expected.attention_scale:.6g}")


def both_schemas(config: PreTrainedConfig) -> dict[str, Any]:
    """config.json with the RoPE in both schemas, `rope_parameters` (version 5) and `rope_scaling`, equal in content."""
    return write_both(config.to_dict())


def _rotary_modules(model: nn.Module) -> Iterator[tuple[nn.Module, str, Any]]:
    """(parent, attribute, module) of every rotary module that follows the config's RoPE."""
    for parent in model.modules():
        for name, child in parent.named_children():
            if any(hasattr(child, attribute) for attribute in ("inv_freq", f"{FULL_ATTENTION}_inv_freq")):
                yield parent, name, child
