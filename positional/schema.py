"""The two schemas in which a config.json says RoPE: plain dicts in, plain dicts out, no torch, no transformers.

RoPE lives in config.json alone (weights carry no frequencies): in transformers 5's `rope_parameters`, in version 4's
`rope_scaling` beside a top-level `rope_theta`, or in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ModelError

FULL_ATTENTION = "full_attention"
"""Layer type that is extended where RoPE is stated per layer type; local layers keep theirs."""

V4_NAMES = {"gpt_neox": ("rotary_emb_base", "rotary_pct")}
"""Model types whose version 4 configs name `rope_theta` and `partial_rotary_factor` otherwise."""

VLLM_ONLY = {"short_mscale", "long_mscale"}
"""The attention scale of `longrope` under the names that vLLM reads; transformers knows neither."""


def write_both(fields: Mapping[str, Any]) -> dict[str, Any]:
    """config.json fields with the RoPE in both schemas, equal in content. Nested RoPE stays as it is: version 4 has no
    such form.
    """
    fields, rope = dict(fields), fields["rope_parameters"]
    if is_nested(rope):
        return fields
    theta_name, partial_name = V4_NAMES.get(fields.get("model_type", ""), ("rope_theta", "partial_rotary_factor"))
    fields["rope_theta"] = fields[theta_name] = rope["rope_theta"]
    if rope["rope_type"] == "longrope":
        rope = {**rope, **dict.fromkeys(sorted(VLLM_ONLY), rope["attention_factor"])}
    fields["rope_parameters"] = dict(rope)
    scaled = rope["rope_type"] != "default"
    fields["rope_scaling"] = {key: value for key, value in rope.items() if key != "rope_theta"} if scaled else None
    if "partial_rotary_factor" in rope and rope["rope_type"] != "proportional":
        fields["partial_rotary_factor"] = fields[partial_name] = rope["partial_rotary_factor"]
    return fields


def unread_by_version_4(fields: Mapping[str, Any]) -> str | None:
    """Why a version 4 reader would rotate otherwise than this config.json means; None when it would not."""
    new = fields.get("rope_parameters")
    if not new:
        return None
    if is_nested(new):
        return "RoPE is stated per layer type in rope_parameters, which version 4 readers do not know"
    theta_name, _ = V4_NAMES.get(fields.get("model_type", ""), ("rope_theta", ""))
    missing = [] if fields.get(theta_name) == new.get("rope_theta") else [theta_name]
    kind = new.get("rope_type", "default")
    if kind == "proportional":
        return "rope type 'proportional' is unknown to version 4 readers"
    if kind != "default" and not fields.get("rope_scaling"):
        missing.append("rope_scaling")
    if not missing:
        return None
    return (
        f"RoPE is stated in rope_parameters alone: version 4 readers look for {' and '.join(missing)}, miss it, and "
        "fall back to their defaults without a word. Write both schemas (both_schemas)."
    )


def flat_rope(fields: Mapping[str, Any]) -> dict[str, Any]:
    """One flat RoPE dict with `rope_type`, out of either schema; ModelError when both are there and disagree."""
    new, old = fields.get("rope_parameters"), _renamed(fields.get("rope_scaling") or {})
    if new and is_nested(new):
        if not new.get(FULL_ATTENTION):
            raise ModelError(f"rope_parameters has layer types {sorted(new)} but no {FULL_ATTENTION!r} to extend")
        new = new[FULL_ATTENTION]
    theta_name, partial_name = V4_NAMES.get(fields.get("model_type", ""), ("rope_theta", "partial_rotary_factor"))
    top = {
        "rope_theta": fields.get("rope_theta", fields.get(theta_name)),
        "partial_rotary_factor": fields.get("partial_rotary_factor", fields.get(partial_name)),
    }
    top = {key: value for key, value in top.items() if value is not None}
    if not new:
        return {"rope_type": "default", **top, **old}
    new = {"rope_type": "default", **_renamed(new)}
    if new["rope_type"] == "proportional":
        top.pop("partial_rotary_factor", None)
    differing = [key for key in top if key in new and new[key] != top[key]]
    if old:
        keys = (new.keys() | old.keys()) - VLLM_ONLY - ({"rope_theta", "partial_rotary_factor"} - old.keys())
        differing += sorted(key for key in keys if new.get(key) != old.get(key))
    for key in differing:
        elsewhere = (
            f"rope_scaling.{key} = {old.get(key)!r}" if key in old or key not in top else f"{key} = {top[key]!r}"
        )
        raise ModelError(
            f"config.json states RoPE twice and differently: rope_parameters.{key} = {new.get(key)!r}, but "
            f"{elsewhere}. Make them equal, or keep one."
        )
    return {**top, **new}


def is_nested(rope: Mapping[str, Any]) -> bool:
    """Whether RoPE is stated per layer type."""
    return bool(rope) and all(value is None or isinstance(value, Mapping) for value in rope.values())


def _renamed(rope: Mapping[str, Any]) -> dict[str, Any]:
    """With the oldest spelling, `type` and `su`, brought up to date."""
    rope = dict(rope)
    if "type" in rope:
        rope.setdefault("rope_type", rope.pop("type"))
        rope.pop("type", None)
    if rope.get("rope_type") == "su":
        rope["rope_type"] = "longrope"
    return rope
