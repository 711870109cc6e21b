"""`ropewalk.extend`, the two-line API: what it returns rotates as asked, and what it cannot do it says."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from ropewalk import extend
from ropewalk.errors import MethodError, ModelError
from ropewalk.positional import BaseRope, Linear, parse_method

WINDOW, HEAD_DIM, THETA = 64, 16, 10000.0


def tiny(**changes: Any) -> LlamaConfig:
    fields: dict[str, Any] = {
        "vocab_size": 50,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": WINDOW,
        "initializer_range": 0.2,
        "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
    }
    return LlamaConfig(**{**fields, **changes})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A random model as a pretrained one lies on disk."""
    torch.manual_seed(1)
    LlamaForCausalLM(tiny()).save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def frequencies(model: PreTrainedModel) -> torch.Tensor:
    buffer = model.get_buffer("model.rotary_emb.inv_freq")
    assert buffer.dtype == torch.float32
    return buffer.double()


PAIRS = torch.arange(HEAD_DIM // 2, dtype=torch.float64)
PLAIN = THETA ** (-2 * PAIRS / HEAD_DIM)


@pytest.mark.parametrize("source", ["folder", "path", "config"])
def test_linear_divides_every_frequency(folder: Path, source: str) -> None:
    """By hand: theta_i = 10000^(-2i/16) / 8; the window is 8 x 64 tokens; the factor stands in the config."""
    given = {"folder": str(folder), "path": folder, "config": tiny()}[source]
    model = extend(given, "linear:8")
    assert isinstance(model, LlamaForCausalLM)
    torch.testing.assert_close(frequencies(model), PLAIN / 8, rtol=1e-6, atol=0)
    assert model.config.max_position_embeddings == 512
    assert model.config.rope_parameters == {"rope_type": "linear", "factor": 8.0, "rope_theta": THETA}


def test_ntk_raises_the_base(folder: Path) -> None:
    """By hand: theta becomes 10000 x 4^(16/14), so the slowest pair turns 4 times slower and the fastest as before."""
    model = extend(folder, "ntk:4")
    raised = THETA * 4 ** (16 / 14)
    torch.testing.assert_close(frequencies(model), raised ** (-2 * PAIRS / HEAD_DIM), rtol=2e-6, atol=0)
    assert frequencies(model)[-1].item() == pytest.approx(PLAIN[-1].item() / 4, rel=1e-6)
    assert model.config.rope_parameters["rope_theta"] == pytest.approx(raised)


@pytest.mark.parametrize("method", ["none:4", "yarn:4", "llama3:4", "by_parts:4", "abf:4,theta=500000", "dynamic:4"])
def test_frequencies_and_scale_are_the_records(folder: Path, method: str) -> None:
    """Text or record, the buffers are the record's own float64 figures to float32 rounding."""
    record = parse_method(method)
    wanted = record.rotary(BaseRope(THETA, HEAD_DIM, WINDOW))
    for given in (method, record):
        model = extend(folder, given)
        torch.testing.assert_close(
            frequencies(model), torch.tensor(wanted.inv_freq_F, dtype=torch.float64), rtol=2e-6, atol=0
        )
        scale = model.get_submodule("model.rotary_emb").attention_scaling
        assert scale == pytest.approx(wanted.attention_scale, rel=1e-6)


def test_weights_are_the_folders(folder: Path) -> None:
    """Nothing but RoPE changes; a config alone gives other, random weights of the same shapes."""
    before = LlamaForCausalLM.from_pretrained(folder).state_dict()
    after = extend(folder, "yarn:4").state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    fresh = extend(tiny(), "yarn:4").state_dict()
    assert fresh.keys() == before.keys()
    assert not torch.equal(fresh["lm_head.weight"], before["lm_head.weight"])


def test_extended_is_what_stock_builds_from_its_saved_folder(folder: Path, tmp_path: Path) -> None:
    """Save, then load with transformers alone: the same logits over the whole new window."""
    model = extend(folder, "yarn:4").eval()
    model.save_pretrained(tmp_path / "out")
    again = LlamaForCausalLM.from_pretrained(tmp_path / "out").eval()
    ids_BT = torch.randint(0, 50, (1, 4 * WINDOW), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        assert torch.equal(again(ids_BT).logits, model(ids_BT).logits)
        base = LlamaForCausalLM.from_pretrained(folder).eval()
        assert (base(ids_BT).logits - model(ids_BT).logits).abs().max() > 0.1  # negative control


def test_the_given_config_is_left_alone() -> None:
    config = tiny()
    before = json.dumps(config.to_dict(), sort_keys=True)
    extend(config, "linear:2")
    assert json.dumps(config.to_dict(), sort_keys=True) == before


def test_dtype(folder: Path) -> None:
    """Weights in bfloat16, rotary in float32; the default is the dtype the folder was saved in."""
    model = extend(folder, "yarn:4", dtype=torch.bfloat16)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    frequencies(model)
    assert {p.dtype for p in extend(folder, "yarn:4").parameters()} == {torch.float32}
    config = tiny(dtype="bfloat16")
    assert {p.dtype for p in extend(config, "yarn:4").parameters()} == {torch.bfloat16}


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("yran:8", "yarn"),
        ("yarn:0.5", "0.5"),
        ("yarn:eight", "eight"),
        ("yarn:8,beta_quick=3", "beta_quick"),
        ("", "method"),
    ],
)
def test_bad_methods(method: str, told: str) -> None:
    with pytest.raises(MethodError, match=told):
        extend(tiny(), method)


def test_bad_models(folder: Path, tmp_path: Path) -> None:
    """Each says which model, and what to give instead."""
    with pytest.raises(ModelError, match=r"nowhere does not exist. Give an existing folder or a hub id"):
        extend(tmp_path / "nowhere", "linear:2")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"empty holds no config\.json"):
        extend(tmp_path / "empty", "linear:2")
    with pytest.raises(ModelError, match="is a file; give the folder"):
        extend(folder / "config.json", "linear:2")
    with pytest.raises(ModelError, match="does not use RoPE"):
        extend(BertConfig(), "linear:2")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"cannot load weights of .*base"):
        extend(folder, "linear:2")


def test_broken_weights(folder: Path) -> None:
    """A cut file, and a config that disagrees with the weights."""
    fields = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**fields, "intermediate_size": 64}))
    with pytest.raises(ModelError, match=r"(weights do not fit|cannot load weights)"):
        extend(folder, "linear:2")
    (folder / "config.json").write_text(json.dumps({**fields, "num_hidden_layers": 3}))
    with pytest.raises(ModelError, match=r"Missing: \['model\.layers\.2\."):
        extend(folder, "linear:2")
    (folder / "config.json").write_text(json.dumps(fields))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelError, match=r"cannot load weights of .*base"):
        extend(folder, "linear:2")


def test_an_existing_scaling_is_not_dropped() -> None:
    """Extending twice: the same kind with a larger total factor, or an error that says so."""
    once = extend(tiny(), Linear(factor=2))
    twice = extend(once.config, "linear:8")
    torch.testing.assert_close(frequencies(twice), PLAIN / 8, rtol=1e-6, atol=0)
    assert twice.config.max_position_embeddings == 8 * WINDOW
    with pytest.raises(MethodError, match="already carries linear:2"):
        extend(once.config, "yarn:8")


def test_dtype_beside_a_config_is_refused() -> None:
    with pytest.raises(ModelError, match=r"set config\.dtype instead"):
        extend(tiny(), "linear:2", dtype=torch.bfloat16)
