"""An export is the trained model: merged, read alike by either schema, checked on disk, never half there."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from ropewalk.config import RunConfig
from ropewalk.data import tokenizer_from_texts
from ropewalk.data.batch import Batch
from ropewalk.engine import Engine, World, zero3_construction
from ropewalk.errors import ModelError, RunError
from ropewalk.export import export
from ropewalk.model import ModelBundle, load_bundle, stock_model

WINDOW, TARGET, VOCAB_SIZE = 32, 128, 264


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random pretrained model with its tokenizer, weights large enough for logits that differ."""
    folder = tmp_path_factory.mktemp("base")
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=WINDOW,
        initializer_range=0.2,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer_from_texts(["the grey geese fly over the hills"], VOCAB_SIZE).save_pretrained(folder)
    return folder


def run_config(base: Path, **changes: Any) -> RunConfig:
    """Settings of a run from `base`; `changes` replace whole sections."""
    sections: dict[str, Any] = {
        "name": "small",
        "model": {"base": str(base)},
        "rope": {"method": "yarn:4", "original_window": WINDOW, "target_window": TARGET},
        "data": {"sources": [{"kind": "builtin", "name": "python-reference"}], "rows": [{"tokens": 24}]},
        "train": {"steps": 3, "tokens_per_step": 96, "micro_batch_tokens": 96, "lr": 0.02, "warmup_steps": 0},
    }
    return RunConfig.model_validate({**sections, **changes})


def trained(config: RunConfig, base: Path, world: World) -> tuple[Engine, ModelBundle]:
    """The run's model after its steps, on random tokens."""
    with zero3_construction(config):
        bundle = load_bundle(config, AutoTokenizer.from_pretrained(base))
    engine = Engine(config, bundle.model, world)
    for step in range(config.train.steps):
        random = torch.Generator().manual_seed(step)
        ids_BT = torch.randint(0, VOCAB_SIZE, (4, 25), generator=random)
        positions_BT = torch.arange(24).expand(4, 24).contiguous()
        engine.train_step([Batch(ids_BT[:, :-1], positions_BT, ids_BT[:, 1:], ("text",) * 4)], config.train.lr)
    return engine, bundle


def logits(model: torch.nn.Module) -> torch.Tensor:
    """What a model says of one full target window."""
    ids_BT = torch.randint(0, VOCAB_SIZE, (1, TARGET), generator=torch.Generator().manual_seed(9))
    with torch.no_grad():
        return model.eval()(input_ids=ids_BT, use_cache=False).logits


def load(folder: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(folder)


def with_config(folder: Path, out: Path, keep: set[str]) -> Path:
    """A copy of an export whose config.json says RoPE only under the names in `keep`."""
    out.mkdir()
    for file in folder.iterdir():
        (out / file.name).write_bytes(file.read_bytes())
    fields = json.loads((folder / "config.json").read_text())
    for name in {"rope_parameters", "rope_scaling", "rope_theta"} - keep:
        fields.pop(name)
    (out / "config.json").write_text(json.dumps(fields))
    return out


@pytest.mark.parametrize("method", ["none:4", "linear:4", "ntk:4", "yarn:4", "llama3:4", "by_parts:4"])
def test_either_schema_gives_the_trained_logits(one_process_world: World, base: Path, tmp_path: Path, method: str):
    """Both schemas together, version 5's alone, version 4's alone: stock transformers computes the same, exactly."""
    config = run_config(base, rope={"method": method, "original_window": WINDOW, "target_window": TARGET})
    engine, bundle = trained(config, base, one_process_world)
    live = logits(bundle.model)
    folder = export(engine, bundle, tmp_path / "export")
    assert folder is not None
    new = with_config(folder, tmp_path / "new", {"rope_parameters"})
    old = with_config(folder, tmp_path / "old", {"rope_scaling", "rope_theta"})
    for home in (folder, new, old):
        model = load(home)
        assert model.config.max_position_embeddings == TARGET
        assert torch.equal(logits(model), live), home.name


def test_rope_left_out_is_seen(one_process_world: World, base: Path, tmp_path: Path):
    """Negative control for the comparison above: the same weights without the method say something else."""
    engine, bundle = trained(run_config(base), base, one_process_world)
    folder = export(engine, bundle, tmp_path / "export")
    assert folder is not None
    bare = with_config(folder, tmp_path / "bare", {"rope_theta"})
    assert (logits(load(bare)) - logits(bundle.model)).abs().max() > 0.1


def test_files_of_an_export(one_process_world: World, base: Path, tmp_path: Path):
    """Readable by all, with tokenizer and window; the probe beside it holds what the export computes; nothing else."""
    engine, bundle = trained(run_config(base), base, one_process_world)
    (tmp_path / ".partial-export").mkdir()
    (tmp_path / ".partial-export" / "left-by-a-killed-process").touch()
    folder = export(engine, bundle, tmp_path / "export")
    assert folder is not None
    names = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in folder.iterdir()} == names
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o644}
    assert {path.name for path in tmp_path.iterdir()} == {"export", "export_probe.safetensors"}
    assert AutoTokenizer.from_pretrained(folder).model_max_length == TARGET
    probe = load_file(tmp_path / "export_probe.safetensors")
    model = load(folder).eval()
    with torch.no_grad():
        again = model(
            input_ids=probe["input_ids"],
            position_ids=probe["position_ids"],
            attention_mask=torch.ones_like(probe["input_ids"]),
            use_cache=False,
        ).logits
    assert torch.equal(again, probe["logits"])
    assert probe["position_ids"][0, -1] == TARGET - 1


def lora(**flags: bool) -> dict[str, Any]:
    return {"kind": "lora", "rank": 4, "alpha": 8, **flags}


@pytest.mark.parametrize("zero_stage", [0, 2, 3])
def test_lora_merged_equals_unmerged(one_process_world: World, base: Path, tmp_path: Path, zero_stage: int):
    """The exported plain model computes what base and adapters side by side compute, to float32 rounding."""
    config = run_config(base, finetune=lora(), parallel={"zero_stage": zero_stage})
    engine, bundle = trained(config, base, one_process_world)
    folder = export(engine, bundle, tmp_path / "export")
    assert folder is not None
    with engine.gathered(list(bundle.model.parameters())):
        assert any(name.endswith("lora_B.default.weight") and p.any() for name, p in bundle.model.named_parameters())
        unmerged = logits(bundle.model)
    merged = load(folder)
    assert set(merged.state_dict()) == set(load(base).state_dict())
    assert_close(logits(merged), unmerged, rtol=1e-5, atol=1e-4)
    # Negative control: the adapters matter.
    untrained = stock_model(load_bundle(run_config(base), bundle.tokenizer).model)
    assert (logits(untrained) - unmerged).abs().max() > 0.1


@pytest.mark.parametrize("embeddings", [False, True])
@pytest.mark.parametrize("norms", [False, True])
def test_lora_trains_embeddings_and_norms_when_asked(
    one_process_world: World, base: Path, tmp_path: Path, embeddings: bool, norms: bool
):
    """Exactly the asked tensors of the export differ from the base's; all others are the base's, bit for bit."""
    config = run_config(base, finetune=lora(train_embeddings=embeddings, train_norms=norms))
    engine, bundle = trained(config, base, one_process_world)
    folder = export(engine, bundle, tmp_path / "export")
    assert folder is not None
    before, after = load_file(base / "model.safetensors"), load_file(folder / "model.safetensors")
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    targets = {name for name in before if "self_attn" in name}
    tables = {"model.embed_tokens.weight"}
    scales = {name for name in before if "norm" in name}
    assert len(targets) == 8
    assert len(scales) == 5
    assert changed == targets | (tables if embeddings else set()) | (scales if norms else set())


@pytest.mark.parametrize("finetune", [{"kind": "full"}, lora()], ids=["full", "lora"])
def test_bfloat16(one_process_world: World, base: Path, tmp_path: Path, finetune: dict[str, Any]):
    """The export keeps the dtype of training; full weights give the same logits, merged ones within rounding."""
    config = run_config(base, finetune=finetune, model={"base": str(base), "dtype": "bfloat16"})
    engine, bundle = trained(config, base, one_process_world)
    folder = export(engine, bundle, tmp_path / "export")
    assert folder is not None
    model = load(folder)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert model.get_buffer("model.rotary_emb.inv_freq").dtype == torch.float32
    live = logits(bundle.model).float()
    if finetune["kind"] == "full":
        assert torch.equal(logits(model).float(), live)
    else:
        assert (logits(model).float() - live).norm() < 0.05 * live.norm()


def test_a_tensor_that_is_not_finite_is_not_exported(one_process_world: World, base: Path, tmp_path: Path):
    """The fault names the tensor, and the export made before stays as it was."""
    engine, bundle = trained(run_config(base), base, one_process_world)
    folder = export(engine, bundle, tmp_path / "export")
    assert folder is not None
    before = (folder / "model.safetensors").read_bytes()
    with torch.no_grad():
        stock_model(bundle.model).get_parameter("model.norm.weight")[3] = float("nan")
    with pytest.raises(RunError, match=r"model\.norm\.weight is empty or not finite"):
        export(engine, bundle, folder)
    assert (folder / "model.safetensors").read_bytes() == before


def test_rotary_that_is_not_the_methods_is_not_exported(one_process_world: World, base: Path, tmp_path: Path):
    """A config that would make stock transformers rotate otherwise than was trained is refused."""
    engine, bundle = trained(run_config(base), base, one_process_world)
    stock_model(bundle.model).config.rope_parameters["factor"] = 2.0
    with pytest.raises(ModelError, match="does not rotate as asked"):
        export(engine, bundle, tmp_path / "export")
    assert not (tmp_path / "export").exists()
