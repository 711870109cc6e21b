"""Every form in which a config.json says RoPE: read right, composed with, or refused with the two values that clash."""

import copy
import math
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig, GPTNeoXConfig, LlamaConfig, Phi3Config

from ropewalk.errors import MethodError, ModelError
from ropewalk.positional import format_method, parse_method
from ropewalk.positional.hf import (
    both_schemas,
    extend_config,
    read_rope,
    swap_rotary,
    unread_by_version_4,
    verify_rotary,
)

HEADS: dict[str, Any] = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2}
YARN_4 = {"factor": 4.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_theta": 5e5, "rope_scaling": {"type": "yarn", **YARN_4}},
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "yarn", **YARN_4}},
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 5e5, **YARN_4}},
        {"rope_parameters": {"rope_type": "yarn", **YARN_4}, "rope_theta": 5e5},
        {
            "rope_parameters": {"rope_type": "yarn", "rope_theta": 5e5, **YARN_4},
            "rope_theta": 5e5,
            "rope_scaling": {"rope_type": "yarn", **YARN_4},
        },
        {
            "rope_parameters": {
                "full_attention": {"rope_type": "yarn", "rope_theta": 5e5, **YARN_4},
                "sliding_attention": None,
            }
        },
    ],
    ids=["v4, oldest spelling", "v4", "v5", "v5, theta outside", "both", "nested"],
)
def test_one_rope_in_every_schema(rope: dict) -> None:
    fields = {**HEADS, "max_position_embeddings": 256, **rope}
    before = copy.deepcopy(fields)
    found = read_rope(fields)
    assert (found.base.theta, found.base.head_dim, found.base.window) == (5e5, 32, 64)
    assert found.existing == parse_method("yarn:4")
    assert fields == before


@pytest.mark.parametrize(
    ("rope", "said"),
    [
        (
            {"rope_theta": 1e4, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
            "rope_theta = 500000.0, but rope_theta = 10000.0",
        ),
        (
            {
                "rope_parameters": {"rope_type": "yarn", "rope_theta": 5e5, **YARN_4},
                "rope_scaling": {"type": "linear", "factor": 4.0},
            },
            "rope_scaling.",
        ),
        (
            {
                "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
                "rope_scaling": {"type": "yarn", **YARN_4},
            },
            "rope_scaling.factor = 4.0",
        ),
        (
            {
                "rope_parameters": {"rope_type": "yarn", "rope_theta": 5e5, **YARN_4},
                "rope_scaling": {"rope_type": "yarn", **YARN_4, "attention_factor": 1.0},
            },
            "rope_parameters.attention_factor = None, but rope_scaling.attention_factor = 1.0",
        ),
        (
            {
                "rope_parameters": {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": 0.5},
                "partial_rotary_factor": 0.25,
            },
            "partial_rotary_factor = 0.5",
        ),
        (
            {"rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}},
            "no 'full_attention'",
        ),
        ({"rope_parameters": {"rope_type": "spiral", "rope_theta": 1e4}}, "'spiral'"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8}}, "low_freq_factor"),
        (
            {
                "rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 0.5},
                "original_max_position_embeddings": 64,
            },
            "0.5",
        ),
        (
            {
                "rope_parameters": {
                    "rope_type": "proportional",
                    "rope_theta": 1e4,
                    "factor": 8,
                    "partial_rotary_factor": 0.25,
                }
            },
            "proportional",
        ),
        ({}, "does not use RoPE"),
    ],
)
def test_conflicts_and_gaps_are_refused(rope: dict, said: str) -> None:
    with pytest.raises(ModelError) as fault:
        read_rope({**HEADS, "max_position_embeddings": 256, **rope})
    assert said in str(fault.value)


def test_the_pretrained_window_is_asked_for_where_the_config_leaves_it_open() -> None:
    fields = {
        **HEADS,
        "max_position_embeddings": 256,
        "rope_theta": 1e4,
        "rope_scaling": {"type": "linear", "factor": 4.0},
    }
    with pytest.raises(ModelError, match="original_window"):
        read_rope(fields)
    assert read_rope(fields, 64).base.window == 64
    assert read_rope(fields, 256).base.window == 256
    with pytest.raises(ModelError, match=r"original_window = 128, but config.json says the pretrained window is 64"):
        read_rope({**fields, "original_max_position_embeddings": 64}, 128)


def test_deepseeks_pair_of_scales_counts_only_when_both_are_set() -> None:
    fields = {**HEADS, "max_position_embeddings": 256, "rope_theta": 1e4}
    yarn = {"rope_type": "yarn", **YARN_4}
    for more, scale in [
        ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),
        ({"mscale": 1.0, "mscale_all_dim": 0}, 0.1 * math.log(4) + 1),
        ({"mscale": 0.707}, 0.1 * math.log(4) + 1),
        ({"mscale": 1.0, "mscale_all_dim": 0.5}, (0.1 * math.log(4) + 1) / (0.05 * math.log(4) + 1)),
    ]:
        found = read_rope({**fields, "rope_scaling": {**yarn, **more}})
        assert found.existing is not None
        assert found.existing.rotary(found.base).attention_scale == pytest.approx(scale)


def test_phi3_long_without_a_factor_is_the_ratio_of_its_windows() -> None:
    """Phi-3's 128k model: lists, a top-level original window, and no factor; it is a scaling of 32, not of 1."""
    lists = {"short_factor": [1.0] * 16, "long_factor": [1.0 + i for i in range(16)]}
    config = Phi3Config(
        hidden_size=64,
        num_attention_heads=2,
        max_position_embeddings=131072,
        original_max_position_embeddings=4096,
        rope_parameters={"rope_type": "longrope", "rope_theta": 1e4, **lists},
    )
    found = read_rope(config)
    assert found.base.window == 4096
    assert found.existing is not None
    assert found.existing.factor == 32
    assert found.existing.rotary(found.base).attention_scale == pytest.approx(
        math.sqrt(1 + math.log(32) / math.log(4096))
    )
    with pytest.raises(MethodError, match=r"already carries longrope:32.*original|already carries longrope:32"):
        extend_config(config, parse_method("linear:64"))


def test_a_model_pretrained_with_p_rope_keeps_its_still_pairs() -> None:
    """Gemma 4's form: interpolation would set the still pairs turning, so it is refused."""
    rope = {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25}
    config = LlamaConfig(hidden_size=64, num_attention_heads=2, max_position_embeddings=64, rope_parameters=rope)
    assert read_rope(config).existing == parse_method("p_rope:1,share=0.25")
    for other in ("linear:8", "p_rope:8,share=0.5"):
        with pytest.raises(MethodError, match="already carries p_rope"):
            extend_config(config, parse_method(other))
    assert extend_config(config, parse_method("p_rope:8,share=0.25")).rope_parameters == rope


def test_a_scaling_of_nothing_is_no_obstacle(llama: Any) -> None:
    llama.rope_parameters = {
        "rope_type": "yarn",
        "rope_theta": 5e5,
        "factor": 1.0,
        "original_max_position_embeddings": 64,
    }
    assert extend_config(llama, parse_method("linear:8")).rope_parameters["factor"] == 8


def test_replacing_a_scaling_is_possible_when_said_aloud(llama: Any) -> None:
    first = extend_config(llama, parse_method("ntk:8"))
    with pytest.raises(MethodError, match=r"already carries ntk:8 against its pretrained window of 64"):
        extend_config(first, parse_method("linear:8"))
    second = extend_config(first, parse_method("linear:8"), replace_existing=True)
    assert second.rope_parameters == extend_config(llama, parse_method("linear:8")).rope_parameters


def test_a_note_that_no_longer_fits_is_passed_over(llama: Any) -> None:
    extended = extend_config(llama, parse_method("yarn:8"))
    extended.rope_parameters["beta_fast"] = 16.0
    found = read_rope(extended)
    assert found.existing == parse_method(f"yarn:8,beta_fast=16,attention_factor={0.1 * math.log(8) + 1!r}")
    extended.ropewalk = {"method": "nonsense:8"}
    assert read_rope(extended) == found


@pytest.mark.parametrize(
    "text", ["linear:8", "yarn:8", "yarn:8,truncate=False", "ntk:8", "cope:8", "p_rope:8", "llama3:8"]
)
def test_rope_stated_per_layer_type(text: str) -> None:
    """Gemma 3: the full-attention layers are extended, the sliding ones keep theirs bit for bit."""
    config: Any = Gemma3TextConfig(
        vocab_size=50,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=6,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=64,
    )
    base, method = read_rope(config).base, parse_method(text)
    assert (base.theta, base.head_dim, base.window) == (1e6, 32, 64)
    extended = extend_config(config, method)
    assert extended.rope_parameters["sliding_attention"] == config.rope_parameters["sliding_attention"]
    assert extended.max_position_embeddings == 512
    reloaded = Gemma3TextConfig.from_dict(both_schemas(extended))
    assert read_rope(reloaded).existing == method
    model = AutoModelForCausalLM.from_config(config)
    local_F = model.model.rotary_emb.sliding_attention_inv_freq.clone()
    swap_rotary(model, reloaded)
    verify_rotary(model, method, base)
    assert torch.equal(model.model.rotary_emb.sliding_attention_inv_freq, local_F)
    with pytest.raises(ModelError, match="full_attention_inv_freq"):
        verify_rotary(model.to(torch.bfloat16), method, base)
    assert "per layer type" in str(unread_by_version_4(both_schemas(extended)))


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("text", ["linear:8", "yarn:8", "p_rope:8", "resonance:8"])
def test_partial_rotary(share: float, text: str) -> None:
    """Methods see the rotated dimensions only; the share survives the writing in both schemas."""
    config = GPTNeoXConfig(
        vocab_size=50,
        hidden_size=128,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        rotary_pct=share,  # type: ignore[call-arg]
    )
    base, method = read_rope(config).base, parse_method(text)
    assert base.head_dim == 64 * share
    fields = both_schemas(extend_config(config, method))
    assert fields["rotary_emb_base"] == 1e4
    again = read_rope(fields)
    assert (again.base, again.existing) == (base, method)
    model = AutoModelForCausalLM.from_config(GPTNeoXConfig.from_dict(fields))
    verify_rotary(model, method, base)


def test_version_4_names_of_gpt_neox_are_read() -> None:
    fields = {"model_type": "gpt_neox", "hidden_size": 128, "num_attention_heads": 2, "max_position_embeddings": 2048}
    base = read_rope({**fields, "rotary_emb_base": 10000, "rotary_pct": 0.25}).base
    assert (base.theta, base.head_dim, base.window) == (1e4, 16, 2048)


def test_the_written_text_of_a_read_scaling_can_be_asked_for_again(llama: Any) -> None:
    llama.rope_parameters = {"rope_type": "yarn", "rope_theta": 5e5, **YARN_4, "beta_fast": 16, "truncate": False}
    existing = read_rope(llama).existing
    assert existing is not None
    assert format_method(existing) == "yarn:4,beta_fast=16,truncate=False"
    assert extend_config(llama, parse_method("yarn:8")).max_position_embeddings == 512
