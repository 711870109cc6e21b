"""What a config.json says of a model's RoPE: its pretrained base, and the scaling it already carries.

A config that Ropewalk extended also carries a note of the method under the key `ropewalk`, which stock readers pass
over. The note counts only while it agrees with the RoPE beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from ..errors import MethodError, ModelError
from . import Method, format_method, parse_method
from .base import BaseRope, Record
from .dynamic import Dynamic
from .linear import Linear
from .llama3 import Llama3
from .longrope import LongRope
from .p_rope import PRope
from .schema import VLLM_ONLY, flat_rope
from .yarn import Yarn

NOTE = "ropewalk"
"""Key of the note that says what a stock form cannot: the method's name, and the base it was computed from."""


@dataclass(frozen=True)
class PretrainedRope:
    """What a config says of a model's RoPE."""

    base: BaseRope
    """As pretrained: before any scaling the config carries."""
    existing: Method | None
    """The scaling the config already carries, stated against `base.window`."""
    partial_rotary_factor: float


def read_fields(fields: Mapping[str, Any], original_window: int | None = None) -> PretrainedRope:
    """Read the fields of a config.json, in any form in use.

    `original_window` settles the pretrained window where the config leaves it open (a `linear` scaling does not say
    whether max_position_embeddings was raised). Raises ModelError for conflicts and for models without RoPE.
    """
    rope = flat_rope(fields)
    theta = rope.get("rope_theta")
    if theta is None:
        raise ModelError(
            f"model type {fields.get('model_type')!r}: its config states no rope_theta, so it does not use RoPE or "
            "keeps it where stock transformers does not look. Ropewalk extends RoPE models only."
        )
    kind = rope.get("rope_type", "default")
    # `proportional` keeps the whole head and zeroes slow pairs; elsewhere the factor cuts the rotated dimensions.
    partial = 1.0 if kind == "proportional" else float(rope.get("partial_rotary_factor") or 1.0)
    head_dim = fields.get("head_dim") or fields["hidden_size"] // fields["num_attention_heads"]
    noted = _noted(fields, rope, int(head_dim * partial))
    if noted is not None:
        if original_window not in (None, noted[1].window):
            raise ModelError(_two_windows(noted[1].window, original_window))
        return PretrainedRope(noted[1], noted[0], partial)
    window = _pretrained_window(fields, rope, kind, original_window)
    base = BaseRope(theta=float(theta), head_dim=int(head_dim * partial), window=window)
    longest = fields.get("max_position_embeddings") or window
    return PretrainedRope(base, _existing(rope, kind, longest / window), partial)


def check_composition(existing: Method, method: Method, base: BaseRope) -> None:
    """MethodError unless `method` may take the place of the scaling a config carries: the same kind, not weaker."""
    if _changes_nothing(existing, base):
        return
    shares = [m.share for m in (existing, method) if isinstance(m, PRope)]
    if existing.name == method.name and method.factor >= existing.factor and len(set(shares)) < 2:
        return
    raise MethodError(
        f"the model already carries {_short(existing)} against its pretrained window of {base.window}; "
        f"{_short(method)} would drop it. Ask for {existing.name} with the total factor (at least "
        f"{existing.factor:g}), or in a recipe set rope.replace_existing: true to start from the pretrained RoPE."
    )


def _changes_nothing(method: Method, base: BaseRope) -> bool:
    if method.length_dependent:
        return False  # even at factor 1 its base grows beyond the window
    found = method.rotary(base)
    pairs = zip(found.inv_freq_F, base.inv_freq_F, strict=True)
    return found.attention_scale == 1 and all(math.isclose(new, old, rel_tol=1e-12) for new, old in pairs)


def note(method: Method, base: BaseRope) -> dict[str, Any]:
    """What `extend_config` leaves in a config, so that the method and the pretrained RoPE can be told again."""
    return {"method": format_method(method), "rope_theta": base.theta, "original_window": base.window}


def _noted(fields: Mapping[str, Any], rope: Mapping[str, Any], head_dim: int) -> tuple[Method | None, BaseRope] | None:
    """Method and base of our own note, while it still fits the RoPE beside it; a config edited since is read afresh."""
    left = fields.get(NOTE)
    if not isinstance(left, Mapping):
        return None
    try:
        method = parse_method(left["method"])
        base = BaseRope(float(left["rope_theta"]), head_dim, int(left["original_window"]))
        forms = [method.rope_parameters(base), Record.rope_parameters(method, base)]
    except (KeyError, TypeError, ValueError, MethodError):
        return None
    # Partial rotary stands beside any method; only in `proportional` is it the method's own share.
    ours = VLLM_ONLY if rope.get("rope_type") == "proportional" else VLLM_ONLY | {"partial_rotary_factor"}
    found = {key: value for key, value in rope.items() if key not in ours}
    for form in forms:
        if found == form:
            return (None if method.name == "none" else method), base
    return None


def _pretrained_window(fields: Mapping[str, Any], rope: Mapping[str, Any], kind: str, stated: int | None) -> int:
    longest = fields.get("max_position_embeddings")
    written = fields.get("original_max_position_embeddings") or rope.get("original_max_position_embeddings")
    if kind == "default" and written and longest:
        written = min(written, longest)  # Phi-3 configs carry the key by default, whatever their window
    if written:
        if stated not in (None, int(written)):
            raise ModelError(_two_windows(int(written), stated))
        return int(written)
    if stated and longest and stated > longest:
        raise ModelError(
            f"original_window = {stated}, but config.json says max_position_embeddings {longest}, so the model was "
            f"pretrained at no more. Set original_window: {longest}."
        )
    if stated:
        return stated  # some configs promise more than the model was pretrained at
    if longest is None:
        raise ModelError("config.json states no max_position_embeddings; say rope.original_window in the recipe")
    if kind == "linear":
        raise ModelError(
            f"config.json carries linear scaling x{rope.get('factor', 1):g} and max_position_embeddings {longest}, but "
            "not the pretrained window (original_max_position_embeddings). State it: original_window."
        )
    return int(longest)


def _two_windows(written: int, stated: int | None) -> str:
    return f"original_window = {stated}, but config.json says the pretrained window is {written}. Make them equal."


def _existing(rope: Mapping[str, Any], kind: str, ratio: float) -> Method | None:
    """The scaling a stock form states; `ratio` is longest / pretrained window, for forms that leave the factor out."""
    factor = float(rope["factor"] if rope.get("factor") is not None else max(ratio, 1.0))
    scale = rope.get("attention_factor")
    try:
        match kind:
            case "default":
                return None
            case "linear":
                return Linear(factor=float(rope["factor"]))
            case "dynamic":
                return Dynamic(factor=float(rope["factor"]))
            case "llama3":
                return Llama3(factor=factor, low=rope["low_freq_factor"], high=rope["high_freq_factor"])
            case "longrope":
                return LongRope(factor=factor, divisors=tuple(rope["long_factor"]), attention_factor=scale)
            case "proportional":
                return _proportional(float(rope.get("factor") or 1.0), float(rope.get("partial_rotary_factor") or 1.0))
            case "yarn":
                given = {key: rope[key] for key in ("beta_fast", "beta_slow", "truncate") if rope.get(key) is not None}
                scale = _yarn_scale(rope, factor) if scale is None else scale
                return Yarn(factor=factor, attention_factor=scale, **given)
    except (KeyError, ValidationError, TypeError) as error:
        fault = f"no {error}" if isinstance(error, KeyError) else str(error).replace("\n", " ")
        raise ModelError(f"config.json: RoPE of type {kind!r} is not complete: {fault}") from error
    raise ModelError(f"config.json has rope type {kind!r}, which Ropewalk does not know")


def _proportional(factor: float, share: float) -> Method | None:
    if share == 1:
        return Linear(factor=factor) if factor != 1 else None
    if factor != 1:
        raise ModelError(f"config.json has `proportional` RoPE with factor {factor:g}; only factor 1 is supported")
    return PRope(share=share)


def _yarn_scale(rope: Mapping[str, Any], factor: float) -> float | None:
    """DeepSeek's pair of keys, which counts only when both are set and not zero."""
    numerator, denominator = rope.get("mscale"), rope.get("mscale_all_dim")
    if not numerator or not denominator:
        return None
    log = math.log(factor)
    return (0.1 * numerator * log + 1) / (0.1 * denominator * log + 1)


def _short(method: Method) -> str:
    text = format_method(method)
    return text if len(text) <= 60 else f"{method.name}:{method.factor:g} (with its own list)"
