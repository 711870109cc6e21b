"""The only door to a transformers config: reads its RoPE, writes the extended one, checks what a model rotates by.

RoPE lives in config.json alone (weights carry no frequencies), in one of two schemas: transformers 5's
`rope_parameters`, and version 4's `rope_scaling` beside a top-level `rope_theta`. Everything here returns new objects.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from transformers.configuration_utils import PreTrainedConfig

from ..errors import ModelError
from . import Method, MethodError, format_method
from .base import BaseRope, Record
from .dynamic import Dynamic
from .linear import Linear
from .llama3 import Llama3
from .longrope import LongRope
from .yarn import Yarn

FULL_ATTENTION = "full_attention"
"""Layer type that is extended where RoPE is stated per layer type; local layers keep theirs."""

ROUNDING = 1e-6
"""Relative difference allowed between a float32 buffer and the float64 reference: a few units in the last place."""


@dataclass(frozen=True)
class PretrainedRope:
    """What a config says of a model's RoPE."""

    base: BaseRope
    """As pretrained: before any scaling the config carries."""
    existing: Method | None
    """The scaling the config already carries, stated against `base.window`."""
    partial_rotary_factor: float


def read_rope(config: PreTrainedConfig | Mapping[str, Any], original_window: int | None = None) -> PretrainedRope:
    """Read a config object or a raw config.json dict, in any form in use.

    `original_window` settles the pretrained window where the config leaves it open (a `linear` scaling does not say
    whether max_position_embeddings was raised). Raises ModelError for conflicts and for models without RoPE.
    """
    fields = config if isinstance(config, Mapping) else config.to_dict()
    rope = _rope_dict(fields)
    theta = rope.get("rope_theta")
    if theta is None:
        raise ModelError(
            f"model type {fields.get('model_type')!r}: its config states no rope_theta, so it does not use RoPE or "
            "keeps it where stock transformers does not look. Ropewalk extends RoPE models only."
        )
    kind = rope.get("rope_type", rope.get("type", "default"))
    # `proportional` keeps the whole head and zeroes slow pairs; elsewhere the factor cuts the rotated dimensions.
    partial = float(rope.get("partial_rotary_factor") or fields.get("partial_rotary_factor") or 1.0)
    head_dim = fields.get("head_dim") or fields["hidden_size"] // fields["num_attention_heads"]
    rotated = head_dim if kind == "proportional" else int(head_dim * partial)
    window = _pretrained_window(fields, rope, kind, original_window)
    base = BaseRope(theta=float(theta), head_dim=rotated, window=window)
    return PretrainedRope(base, _existing(rope, kind), 1.0 if kind == "proportional" else partial)


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
        _check_composition(rope.existing, method, rope.base)
    parameters = method.rope_parameters(rope.base)
    if rope.partial_rotary_factor != 1.0:
        if parameters["rope_type"] == "proportional":  # it claims the key that partial rotary needs
            parameters = Record.rope_parameters(method, rope.base)
        parameters["partial_rotary_factor"] = rope.partial_rotary_factor
    window = target_window or method.target_window(rope.base)
    if method.length_dependent:
        window = rope.base.window  # its formula reads max_position_embeddings as the original length
    extended = copy.deepcopy(config)
    for key in ("original_max_position_embeddings", "rope_theta", "rope_scaling"):
        extended.__dict__.pop(key, None)  # a top-level original window would override the one inside
    current = config.rope_parameters
    nested = _is_nested(current)
    extended.rope_parameters = {**current, FULL_ATTENTION: parameters} if nested else parameters
    extended.max_position_embeddings = window
    return extended


def swap_rotary(model: nn.Module, config: PreTrainedConfig) -> None:
    """Give a loaded model the rotary modules that stock transformers builds from `config`, and its RoPE fields."""
    for parent, name, module in list(_rotary_modules(model)):
        device = module.inv_freq.device
        setattr(parent, name, type(module)(config=config, device=device))  # type: ignore[call-arg]
    own = cast(PreTrainedConfig, model.config)
    own.rope_parameters = copy.deepcopy(config.rope_parameters)
    own.max_position_embeddings = config.max_position_embeddings


def verify_rotary(model: nn.Module, method: Method, base: BaseRope) -> None:
    """Raise ModelError unless every rotary buffer is float32 and the method's, and so is the attention scale."""
    found = list(_rotary_modules(model))
    if not found:
        raise ModelError(f"{type(model).__name__} has no rotary module that stock transformers builds; not supported")
    expected = method.rotary(base)
    reference = torch.tensor(expected.inv_freq_F, dtype=torch.float64)
    label = format_method(method)
    for _, name, module in found:
        actual = module.inv_freq
        if actual.dtype != torch.float32:
            raise ModelError(
                f"{name}.inv_freq is {actual.dtype}: RoPE needs float32 (at position 32,767 bfloat16 is off by whole "
                "turns). Load with dtype=... instead of casting the built model."
            )
        actual = actual.detach().double().cpu()
        if actual.shape != reference.shape:
            raise ModelError(f"{name} rotates {len(actual)} pairs, {label} gives {len(reference)}")
        # The floor lets a carrier write a frequency of zero as one too slow to matter.
        error = (actual - reference).abs() / reference.clamp(min=1e-20)
        pair = int(error.argmax())
        if error[pair] > ROUNDING:
            raise ModelError(
                f"{name}.inv_freq[{pair}] = {actual[pair]:.6g}, but {label} gives {reference[pair]:.6g}: "
                "transformers does not rotate as asked"
            )
        scale = float(getattr(module, "attention_scaling", 1.0))
        if not math.isclose(scale, expected.attention_scale, rel_tol=1e-6):
            raise ModelError(
                f"{name} scales attention by {scale:.6g}, but {label} asks for {expected.attention_scale:.6g}"
            )


def both_schemas(config: PreTrainedConfig) -> dict[str, Any]:
    """config.json with the RoPE in both schemas, `rope_parameters` (version 5) and `rope_scaling`, equal in content."""
    fields = config.to_dict()
    rope = fields["rope_parameters"]
    if _is_nested(rope):
        return fields  # version 4 has no such form
    fields["rope_theta"] = rope["rope_theta"]
    if rope["rope_type"] == "default":
        fields["rope_scaling"] = None
    else:
        fields["rope_scaling"] = {key: value for key, value in rope.items() if key != "rope_theta"}
        if rope["rope_type"] == "longrope":
            scale = rope["attention_factor"]
            fields["rope_scaling"] |= {"short_mscale": scale, "long_mscale": scale}
            fields["rope_parameters"] = {**rope, "short_mscale": scale, "long_mscale": scale}
    if "partial_rotary_factor" in rope and rope["rope_type"] != "proportional":
        fields["partial_rotary_factor"] = rope["partial_rotary_factor"]
    return fields


def _rope_dict(fields: Mapping[str, Any]) -> dict[str, Any]:
    """One flat RoPE dict out of either schema; ModelError when both are there and disagree."""
    new, old = fields.get("rope_parameters"), fields.get("rope_scaling")
    if new and _is_nested(new):
        if FULL_ATTENTION not in new:
            raise ModelError(f"rope_parameters has layer types {sorted(new)} but no {FULL_ATTENTION!r} to extend")
        new = new[FULL_ATTENTION]
    theta = fields.get("rope_theta", fields.get("rotary_emb_base"))
    legacy = {**(old or {}), **({"rope_theta": theta} if theta is not None else {})}
    if "type" in legacy:
        legacy.setdefault("rope_type", legacy.pop("type"))
    if not new:
        return legacy
    merged = dict(new)
    ignored = {"short_mscale", "long_mscale"}
    for key, value in legacy.items():
        if key in merged and merged[key] != value and key not in ignored:
            raise ModelError(
                f"config.json states RoPE twice and differently: rope_parameters.{key} = {merged[key]!r}, but "
                f"{'rope_theta' if key == 'rope_theta' else f'rope_scaling.{key}'} = {value!r}. Make them equal."
            )
    if old and merged.get("rope_type", "default") == "default":
        raise ModelError("config.json has a rope_scaling, but rope_parameters says `default`. Make them equal.")
    merged.setdefault("rope_theta", theta)
    return merged


def _pretrained_window(fields: Mapping[str, Any], rope: Mapping[str, Any], kind: str, stated: int | None) -> int:
    longest = fields.get("max_position_embeddings")
    written = fields.get("original_max_position_embeddings") or rope.get("original_max_position_embeddings")
    if written:
        return int(written)
    if stated:
        return stated
    if longest is None:
        raise ModelError("config.json states no max_position_embeddings; say rope.original_window in the recipe")
    if kind == "linear":
        raise ModelError(
            f"config.json carries linear scaling x{rope.get('factor'):g} and max_position_embeddings {longest}, but not "
            "the pretrained window (original_max_position_embeddings). State it: original_window."
        )
    return int(longest)


def _existing(rope: Mapping[str, Any], kind: str) -> Method | None:
    factor = float(rope.get("factor") or 1.0)
    scale = rope.get("attention_factor")
    match kind:
        case "default" | "proportional":
            return None
        case "linear":
            return Linear(factor=factor)
        case "dynamic":
            return Dynamic(factor=factor)
        case "llama3":
            return Llama3(factor=factor, low=rope["low_freq_factor"], high=rope["high_freq_factor"])
        case "longrope":
            return LongRope(factor=factor, divisors=tuple(rope["long_factor"]), attention_factor=scale)
        case "yarn":
            names = {"beta_fast": "beta_fast", "beta_slow": "beta_slow", "truncate": "truncate"}
            given = {ours: rope[theirs] for ours, theirs in names.items() if rope.get(theirs) is not None}
            scale = _yarn_scale(rope) if scale is None else scale
            return Yarn(factor=factor, attention_factor=scale, **given)
    raise ModelError(f"config.json has rope type {kind!r}, which stock transformers does not know")


def _yarn_scale(rope: Mapping[str, Any]) -> float | None:
    """DeepSeek's pair of keys, which counts only when both are set and not zero."""
    numerator, denominator = rope.get("mscale"), rope.get("mscale_all_dim")
    if not numerator or not denominator:
        return None
    log = math.log(rope["factor"])
    return (0.1 * numerator * log + 1) / (0.1 * denominator * log + 1)


def _check_composition(existing: Method, method: Method, base: BaseRope) -> None:
    if existing.factor == 1.0:
        return
    if existing.name == method.name and method.factor >= existing.factor:
        return
    raise MethodError(
        f"the model already carries {format_method(existing)} against its pretrained window of {base.window}; "
        f"{format_method(method)} would drop it. Ask for {existing.name} with the total factor (at least "
        f"{existing.factor:g}), or set rope.replace_existing: true to start from the pretrained RoPE."
    )


def _is_nested(rope: Mapping[str, Any]) -> bool:
    return bool(rope) and all(isinstance(value, Mapping) for value in rope.values())


def _rotary_modules(model: nn.Module) -> Iterator[tuple[nn.Module, str, Any]]:
    """(parent, attribute, module) of every rotary module that follows the config's RoPE."""
    for parent in model.modules():
        for name, child in parent.named_children():
            if isinstance(getattr(child, "inv_freq", None), torch.Tensor):
                yield parent, name, child
