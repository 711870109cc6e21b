"""Faults that users met in other systems, each as an input and the right value (M1 to M8)."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig

from ropewalk.errors import MethodError, ModelError
from ropewalk.positional import BaseRope, parse_method
from ropewalk.positional.dynamic import Dynamic
from ropewalk.positional.hf import (
    both_schemas,
    extend_config,
    read_rope,
    swap_rotary,
    unread_by_version_4,
    verify_rotary,
)

SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 128,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
}


def llama(window: int, **rope: Any) -> Any:
    """One layer, one head of 128, theta 10,000."""
    parameters = {"rope_type": "default", "rope_theta": 1e4, **rope}
    return LlamaConfig(**SIZES, max_position_embeddings=window, rope_parameters=parameters)


def rotary_module(config: Any) -> Any:
    return AutoModelForCausalLM.from_config(config).model.rotary_emb


def test_M1_yarn_factor_4_at_a_window_of_40960_is_factor_4() -> None:
    config = llama(40960, rope_type="yarn", factor=4.0, original_max_position_embeddings=32768)
    found = read_rope(config)
    assert found.base.window == 32768
    assert found.existing == parse_method("yarn:4")
    rotary = parse_method("yarn:4").rotary(found.base)
    assert rotary.attention_scale == pytest.approx(1.138629, abs=1e-6)
    assert rotary.inv_freq_F[-1] * 4 == pytest.approx(found.base.inv_freq_F[-1], rel=1e-12)
    model = AutoModelForCausalLM.from_config(config)
    verify_rotary(model, parse_method("yarn:4"), found.base)
    with pytest.raises(ModelError):
        verify_rotary(model, parse_method("yarn:1.25"), found.base)


def test_M2_dynamic_ntk_follows_the_length_and_comes_back() -> None:
    base, method = BaseRope(1e4, 128, 4096), Dynamic(factor=8)
    assert method.theta_at(base, 8192) == pytest.approx(93194.4, rel=1e-5)
    assert method.theta_at(base, 32768) == pytest.approx(607778, rel=1e-5)
    assert method.theta_at(base, 4096) == 10000
    assert method.length_dependent
    assert not parse_method("yarn:8").length_dependent
    config = extend_config(llama(4096), method)
    assert config.max_position_embeddings == 4096, "its formula reads this as the original window"
    module = rotary_module(config)
    x = torch.zeros(1, 1, 128)
    for length in (8192, 32768, 4095, 8192):
        module(x, torch.arange(length)[None])
        expected = torch.tensor(method.rotary_at(base, length).inv_freq_F, dtype=torch.float64)
        assert torch.allclose(module.inv_freq.double(), expected, rtol=2e-5), length


def test_M2_a_text_of_exactly_the_window_after_a_long_one_needs_a_fresh_rotary() -> None:
    """transformers resets only below the window, so one of exactly 4,096 tokens would keep the long base."""
    base, method = BaseRope(1e4, 128, 4096), Dynamic(factor=8)
    config = extend_config(llama(4096), method)
    model = AutoModelForCausalLM.from_config(config)
    model.model.rotary_emb(torch.zeros(1, 1, 128), torch.arange(8192)[None])
    swap_rotary(model, config)
    model.model.rotary_emb(torch.zeros(1, 1, 128), torch.arange(4096)[None])
    verify_rotary(model, method, base)
    assert method.rotary_at(base, 4096).inv_freq_F == base.inv_freq_F


def test_M3_a_bfloat16_model_keeps_float32_frequencies(tmp_path: Path) -> None:
    method, base = parse_method("linear:8"), BaseRope(1e4, 128, 4096)
    AutoModelForCausalLM.from_config(extend_config(llama(4096), method)).save_pretrained(tmp_path)
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert model.lm_head.weight.dtype == torch.bfloat16
    verify_rotary(model, method, base)
    expected_F = 32767 * torch.tensor(method.rotary(base).inv_freq_F, dtype=torch.float64)

    def worst() -> float:
        cos, _ = model.model.rotary_emb(torch.zeros(1, 1, 128), torch.tensor([[32767]]))
        return float((cos[0, 0, :64].double() - expected_F.cos()).abs().max())

    assert worst() < 5e-3
    model.to(torch.bfloat16)  # the fault itself
    assert worst() > 0.5
    with pytest.raises(ModelError, match="RoPE needs float32"):
        verify_rotary(model, method, base)
    swap_rotary(model, model.config)  # the remedy
    verify_rotary(model, method, base)
    assert worst() < 5e-3


def test_M4_linear_divides_all_and_truncate_false_does_not_round() -> None:
    base = BaseRope(1e4, 128, 4096)
    freqs = parse_method("linear:8").rotary(base).inv_freq_F
    assert [w * 8 for w in freqs] == list(base.inv_freq_F)
    module = rotary_module(extend_config(llama(4096), parse_method("linear:8")))
    assert torch.equal(module.inv_freq * 8, rotary_module(llama(4096)).inv_freq)
    low, high = base.dim_at(32), base.dim_at(1)
    for text, ends in [("yarn:8", (math.floor(low), math.ceil(high))), ("yarn:8,truncate=False", (low, high))]:
        method = parse_method(text)
        ramp = [min(max((i - ends[0]) / (ends[1] - ends[0]), 0), 1) for i in range(64)]
        wanted = [w * (b / 8 + 1 - b) for w, b in zip(base.inv_freq_F, ramp, strict=True)]
        assert list(method.rotary(base).inv_freq_F) == pytest.approx(wanted, rel=1e-12)
        verify_rotary(AutoModelForCausalLM.from_config(extend_config(llama(4096), method)), method, base)


@pytest.mark.parametrize(
    "text", ["none:8", "linear:8", "ntk:8", "yarn:8", "llama3:8", "cope:8", "resonance:8", "yarn:8,ramp=turns"]
)
def test_M5_version_5_version_4_and_both_schemas_reload_bit_for_bit(text: str, tmp_path: Path) -> None:
    method, base = parse_method(text), BaseRope(1e4, 128, 4096)
    both = both_schemas(extend_config(llama(4096), method))
    v5 = {key: value for key, value in both.items() if key not in ("rope_scaling", "rope_theta")}
    v4 = {key: value for key, value in both.items() if key not in ("rope_parameters", "ropewalk")}
    found = []
    for name, fields in [("both", both), ("v5", v5), ("v4", v4)]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(fields))
        config = AutoConfig.from_pretrained(tmp_path / name)
        model = AutoModelForCausalLM.from_config(config)
        verify_rotary(model, method, base)
        found.append((model.model.rotary_emb.inv_freq, model.model.rotary_emb.attention_scaling))
        assert config.max_position_embeddings == 32768
    for inv_freq_F, scale in found[1:]:
        assert torch.equal(inv_freq_F, found[0][0])
        assert scale == found[0][1]
    assert unread_by_version_4(both) is None
    assert unread_by_version_4(v4) is None
    said = str(unread_by_version_4(v5))
    assert "rope_theta" in said
    assert ("rope_scaling" in said) == (method.name not in ("none", "ntk"))


def test_M6_the_ramp_depends_on_the_original_window_alone() -> None:
    method, base = parse_method("yarn:8"), BaseRope(1e4, 128, 4096)
    config = extend_config(llama(4096), method)
    for longer in (32768, 40960, 10**6):
        config.max_position_embeddings = longer
        again = LlamaConfig.from_dict(config.to_dict())
        assert read_rope(again).base == base
        verify_rotary(AutoModelForCausalLM.from_config(again), method, base)
    aside = extend_config(llama(4096), method, target_window=20000)
    assert aside.max_position_embeddings == 20000
    assert aside.rope_parameters == extend_config(llama(4096), method).rope_parameters


def test_M6_extending_again_does_not_multiply_twice() -> None:
    for text in ("linear:8", "yarn:8", "ntk:8", "llama3:8", "cope:8", "none:8"):
        once = extend_config(llama(4096), parse_method(text))
        twice = extend_config(once, parse_method(text))
        assert twice.to_dict() == once.to_dict(), text
        assert twice.max_position_embeddings == 32768


def test_M7_a_scaling_the_model_came_with_is_never_dropped_in_silence() -> None:
    llama3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    config = llama(131072, rope_type="llama3", **llama3)
    with pytest.raises(MethodError) as fault:
        extend_config(config, parse_method("linear:8"))
    for word in ("already carries llama3:8", "window of 8192", "linear:8 would drop it", "rope.replace_existing"):
        assert word in str(fault.value)
    for weaker in ("llama3:4", "none:32", "yarn:64"):
        with pytest.raises(MethodError, match="already carries llama3:8"):
            extend_config(config, parse_method(weaker))
    total = extend_config(config, parse_method("llama3:64"))
    assert total.rope_parameters["factor"] == 64
    assert total.max_position_embeddings == 64 * 8192
    dropped = extend_config(config, parse_method("linear:8"), replace_existing=True)
    assert dropped.rope_parameters["rope_type"] == "linear"
    assert dropped.max_position_embeddings == 8 * 8192


def test_M7_dynamic_1_is_no_identity_and_not_dropped_in_silence() -> None:
    assert Dynamic(factor=1).theta_at(BaseRope(1e4, 128, 4096), 8192) > 20000
    config = llama(4096, rope_type="dynamic", factor=1.0)
    with pytest.raises(MethodError, match="already carries dynamic:1"):
        extend_config(config, parse_method("linear:8"))
    same = llama(4096, rope_type="linear", factor=1.0)  # this one is
    extended = extend_config(same, parse_method("yarn:8"), original_window=4096)
    assert extended.rope_parameters["rope_type"] == "yarn"


@pytest.mark.parametrize("written_window", [4096, 2048])
def test_M8_linear_4_on_a_model_that_has_linear_2_is_4_of_the_pretrained_window(written_window: int) -> None:
    config = llama(written_window, rope_type="linear", factor=2.0)
    with pytest.raises(ModelError, match="State it: original_window"):
        extend_config(config, parse_method("linear:4"))
    extended = extend_config(config, parse_method("linear:4"), original_window=2048)
    base = BaseRope(1e4, 128, 2048)
    assert extended.max_position_embeddings == 8192
    assert read_rope(extended).base == base
    model = AutoModelForCausalLM.from_config(extended)
    verify_rotary(model, parse_method("linear:4"), base)
    for wrong in ("linear:8", "linear:2"):
        with pytest.raises(ModelError):
            verify_rotary(model, parse_method(wrong), base)
    with pytest.raises(MethodError, match=r"already carries linear:2 .* total factor \(at least 2\)"):
        extend_config(config, parse_method("linear:1.5"), original_window=2048)
