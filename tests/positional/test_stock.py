"""What transformers rotates by, given our config, is what the method says: six families, every method and form."""

import copy
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, BertConfig, GPT2Config, Phi3Config
from transformers.configuration_utils import PreTrainedConfig

from ropewalk.errors import MethodError, ModelError
from ropewalk.positional import BaseRope, Method, Rotary, parse_method
from ropewalk.positional.hf import both_schemas, extend_config, read_rope, swap_rotary, verify_rotary

Texts = Callable[[BaseRope], str]
Methods = Callable[[BaseRope], list[Method]]


def build(config: Any) -> Any:
    return AutoModelForCausalLM.from_config(copy.deepcopy(config))


def rotary_of(model: torch.nn.Module) -> tuple[torch.Tensor, float]:
    """The one rotary module's buffer and attention scale, read without our own code."""
    found = [module for module in model.modules() if "inv_freq" in dict(module.named_buffers(recurse=False))]
    assert len(found) == 1
    return found[0].inv_freq, found[0].attention_scaling  # type: ignore[return-value]


def reloaded(fields: dict, folder: Path) -> Any:
    (folder / "config.json").write_text(json.dumps(fields))
    return AutoConfig.from_pretrained(folder)


def test_transformers_computes_our_frequencies(config: Any, method_text: Texts, tmp_path: Path) -> None:
    """From the config in memory, and from config.json in both schemas; and the file tells the method again."""
    before = config.to_dict()
    base = read_rope(config).base
    method = parse_method(method_text(base))
    if method.length_dependent and config.model_type == "phi3":
        with pytest.raises(MethodError, match="phi3 configs cannot say 'dynamic'"):
            extend_config(config, method)
        return
    extended = extend_config(config, method)
    assert config.to_dict() == before, "extend_config changed the config it was given"
    assert extended.max_position_embeddings == (64 if method.length_dependent else 64 * method.factor)
    reference = torch.tensor(method.rotary(base).inv_freq_F, dtype=torch.float64)
    for given in (extended, reloaded(both_schemas(extended), tmp_path)):
        model = build(given)
        verify_rotary(model, method, base)
        inv_freq_F, scale = rotary_of(model)
        assert torch.allclose(inv_freq_F.double(), reference, rtol=1e-5, atol=1e-12)
        assert scale == pytest.approx(method.rotary(base).attention_scale, rel=1e-6)
        again = read_rope(given)
        assert again.base == base
        assert again.existing == (None if method.name == "none" else method)


def test_the_note_alone_changes_nothing_for_stock_readers(config: Any, tmp_path: Path) -> None:
    extended = extend_config(config, parse_method("cope:8"))
    fields = both_schemas(extended)
    with_note = rotary_of(build(reloaded(fields, tmp_path)))
    assert fields.pop("ropewalk")["method"] == "cope:8"
    without = rotary_of(build(reloaded(fields, tmp_path)))
    assert torch.equal(with_note[0], without[0])


def test_a_perturbed_config_fails(config: Any, methods_for: Methods) -> None:
    """Negative control: one number of the written config is off by 0.1 %, and each method's check must see it."""
    base = read_rope(config).base
    for method in methods_for(base):
        if method.length_dependent and config.model_type == "phi3":
            continue
        extended = extend_config(config, method)
        rope = extended.rope_parameters
        if rope["rope_type"] == "longrope":
            rope["short_factor"] = [rope["short_factor"][0] * 1.001, *rope["short_factor"][1:]]
        elif rope["rope_type"] == "proportional":
            rope["factor"] = 1.001
        elif rope["rope_type"] in ("default", "dynamic"):
            rope["rope_theta"] *= 1.001
        elif rope["rope_type"] == "yarn":
            rope["attention_factor"] *= 1.001
        else:
            rope["factor"] *= 1.001
        with pytest.raises(ModelError, match=r"transformers does not rotate as asked|scales attention"):
            verify_rotary(build(extended), method, base)


def test_a_cast_model_fails(config: Any) -> None:
    method = parse_method("yarn:8") if config.model_type != "phi3" else parse_method("linear:8")
    base = read_rope(config).base
    model = build(extend_config(config, method))
    verify_rotary(model, method, base)
    model.to(torch.bfloat16)
    with pytest.raises(ModelError, match=r"inv_freq is torch\.bfloat16: RoPE needs float32"):
        verify_rotary(model, method, base)
    model.to(torch.float32)  # the right dtype again, the frequencies lost
    with pytest.raises(ModelError, match="does not rotate as asked"):
        verify_rotary(model, method, base)


def test_another_method_than_the_config_says_fails(config: Any) -> None:
    base = read_rope(config).base
    model = build(extend_config(config, parse_method("linear:8")))
    for other in ("linear:8.001", "none:8", "yarn:8", "ntk:8", "yarn:8,attention_factor=1"):
        with pytest.raises(ModelError, match="does not rotate as asked"):
            verify_rotary(model, parse_method(other), base)


def test_stock_readers_are_not_warned(
    config: Any, method_text: Texts, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """transformers finds no key in `rope_parameters` that it does not know."""
    method = parse_method(method_text(read_rope(config).base))
    if method.length_dependent:
        return
    fields = extend_config(config, method).to_dict()
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    try:
        reloaded(fields, tmp_path)
    finally:
        logger.removeHandler(caplog.handler)
    assert not [line for line in caplog.messages if "rope_parameters" in line and "Unrecognized" in line]


def test_swapping_there_and_back_gives_the_same_logits(config: Any, methods_for: Methods) -> None:
    torch.manual_seed(0)
    base = read_rope(config).base
    model = build(config).eval()
    ids_BT = torch.randint(0, 50, (1, 100))
    with torch.no_grad():
        before_BTV = model(ids_BT).logits
        for method in methods_for(base):
            if method.length_dependent:
                continue
            extended = extend_config(config, method)
            swap_rotary(model, extended)
            verify_rotary(model, method, base)
            assert read_rope(model.config).existing == (None if method.name == "none" else method)  # type: ignore[arg-type]
            fresh = build(extended).eval()
            fresh.load_state_dict(model.state_dict())
            swapped_BTV = model(ids_BT).logits
            assert torch.equal(swapped_BTV, fresh(ids_BT).logits)
            if method.rotary(base) != Rotary(base.inv_freq_F):
                assert not torch.equal(swapped_BTV, before_BTV)
        swap_rotary(model, config)
        assert torch.equal(model(ids_BT).logits, before_BTV)
    assert model.config.to_dict() == config.to_dict() | {"dtype": model.config.to_dict()["dtype"]}  # type: ignore[union-attr]


def test_zero_frequencies_do_not_turn(llama: Any) -> None:
    """The divisor 1e30 that stands for a frequency of zero: less than a float's last place over a million tokens."""
    base = read_rope(llama).base
    inv_freq_F, _ = rotary_of(build(extend_config(llama, parse_method("cope:8"))))
    assert 0 <= float(inv_freq_F[-1]) * 1e6 < 1e-20
    assert parse_method("cope:8").rotary(base).inv_freq_F[-1] == 0


def test_phi3_is_told_every_scaling_as_longrope() -> None:
    """Its config renames `yarn` and refuses the rest; and its own default of 4,096 must not move our window."""
    config = Phi3Config(hidden_size=64, num_attention_heads=2, num_hidden_layers=1, vocab_size=50, pad_token_id=0)
    config.max_position_embeddings = config.original_max_position_embeddings = 2048
    extended = extend_config(config, parse_method("llama3:4"))
    assert extended.rope_parameters["rope_type"] == "longrope"
    assert extended.rope_parameters["original_max_position_embeddings"] == 2048
    assert type(extended).from_dict(extended.to_dict()).original_max_position_embeddings == 2048


@pytest.mark.parametrize("config_type", [GPT2Config, BertConfig])
def test_models_without_rope_are_refused(config_type: type[PreTrainedConfig]) -> None:
    with pytest.raises(ModelError, match="does not use RoPE"):
        read_rope(config_type())


def test_a_model_without_a_rotary_module_is_refused() -> None:
    with pytest.raises(ModelError, match="no rotary module"):
        verify_rotary(torch.nn.Linear(2, 2), parse_method("none"), BaseRope(1e4, 8, 64))
