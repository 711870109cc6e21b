"""Every kind of fault in a recipe is told with its place, field, value and remedy; sound recipes are left alone."""

from pathlib import Path

import pytest

from ropewalk.config import RunConfig
from ropewalk.errors import ConfigError
from ropewalk.recipe_file import load

SOUND = """\
name: sound
model: {base: some/model}
rope: {method: linear, original_window: 256, target_window: 2048}
data:
  sources: [{kind: builtin, name: stdlib}]
  rows:
    - {tokens: 256, positions: skip-wise}
    - {tokens: 2048}
train: {steps: 100, tokens_per_step: 4096, micro_batch_tokens: 2048, lr: 1e-4}
"""
FRESH = (
    "model={fresh: {vocab_size: 512, hidden_size: 64, intermediate_size: 64, "
    "num_layers: 2, num_heads: 4, num_kv_heads: 2}}"
)


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    path = tmp_path / "r.yaml"
    path.write_text(SOUND, encoding="utf-8")
    return path


def faults(path: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, overrides)
    return str(caught.value)


def test_the_sound_recipe_is_read(sound: Path) -> None:
    config = load(sound)
    assert config.train.lr == 1e-4
    assert config.method.factor == 8  # type: ignore[union-attr]
    assert load(sound, [FRESH]).model.fresh is not None


@pytest.mark.parametrize(
    ("override", "field", "remedy"),
    [
        ("train.stepz=3", "train.stepz", "did you mean steps?"),
        ("lr=3", "lr", "it belongs to train.lr"),
        ("train.max_grad_norm=3", "train.max_grad_norm", "here it is train.clip_norm"),
        ("train.steps='100'", "train.steps", "must be a whole number"),
        ("train.steps=true", "train.steps", "must be a whole number"),
        ("train.steps=10.0", "train.steps", "must be a whole number"),
        ("train.steps=0", "train.steps", "greater than 0"),
        ("train.lr=.nan", "train.lr", "must be"),
        ("train.lr=.inf", "train.lr", "must be finite"),
        ("train.activation_checkpointing=yes", "train.activation_checkpointing", "true or false"),
        ("train.schedule=cosinus", "train.schedule", "did you mean cosine?"),
        ("train.betas=[1]", "train.betas", "unknown key"),
        ("name=a/b", "name", "may hold letters"),
        ("data.sources=[]", "data.sources", "give at least one entry"),
        ("data.rows.0.text=0.5", "data.rows.0", "must add up to 1"),
        ("data.rows.0={tokens: 9, first_step: 5, last_step: 5}", "data.rows.0", "is not after first_step"),
        ("finetune={rank: 4}", "finetune", "needs `kind`"),
        ("finetune={kind: lora, rnk: 4}", "finetune.rnk", "did you mean rank?"),
        ("parallel.offload_parameters=true", "parallel", "needs zero_stage 3"),
        ("model.fresh.vocab_size=3", "model.fresh.hidden_size", "missing"),
        ("model.base=null", "model", "set exactly one of"),
        # between fields
        ("rope.target_window=128", "rope.target_window", "below rope.original_window = 256"),
        ("rope.method=linear:4", "rope.method", "set the factor 8"),
        ("rope.method=none:4", "rope.method", "set the factor 8"),
        ("rope.method=resonance:4,of=yarn", "rope.method", "set the factor 8"),
        ("rope.method=linaer:8", "rope.method", "linear"),
        ("rope.method=dynamic:8", "rope.method", "neither trained nor published"),
        ("rope.method=linear:0.5", "rope.method", "0.5"),
        ("model.attention=flash_attention_2", "model.attention", "bfloat16"),
        ("train.warmup_steps=100", "train.warmup_steps", "set at most 99"),
        ("train.tokens_per_step=5000", "train.tokens_per_step", "set for example 4096"),
        ("checkpoint.export_steps=[50, 101]", "checkpoint.export_steps.1", "after the last step"),
        ("train.micro_batch_tokens=1024", "data.rows.1.tokens", "does not fit"),
        ("data.rows.1={tokens: 2049}", "data.rows.1.tokens", "longer than rope.target_window = 2048"),
        ("data.rows.1.positions=skip-wise", "data.rows.1.positions", "no room for a jump"),
        ("data.rows.1.first_step=100", "data.rows.1.first_step", "never used"),
        ("data.rows.1.last_step=101", "data.rows.1.last_step", "after train.steps"),
        ("data.rows=[{tokens: 64, first_step: 3}]", "data.rows", "no rows for step 0"),
        ("data.rows=[{tokens: 64, last_step: 7}]", "data.rows", "no rows for step 7"),
        ("data.rows=[{tokens: 64, last_step: 7}, {tokens: 64, first_step: 9}]", "data.rows", "no rows for step 7"),
        ("data.sources.0.use=held-out", "data.sources", "none is left to train on"),
        ("data.sources.0.max_chars=0", "data.sources.0.max_chars", "greater than 0"),
        ("data.sources.0={kind: text, name: x, min_chars: 9, max_chars: 8}", "data.sources.0.max_chars", "min_chars"),
        ("eval.passkey.lengths=[2048, 4096]", "eval.passkey.lengths.1", "eval.beyond_target"),
        ("eval.perplexity={lengths: [256, 2048]}", "eval.perplexity.stride", "below the shortest length"),
        ("eval.gap.gaps=[0, 1024, 1025]", "eval.gap.gaps.2", "beyond rope.target_window = 2048"),
    ],
)
def test_fault_is_told_with_field_and_remedy(sound: Path, override: str, field: str, remedy: str) -> None:
    text = faults(sound, override)
    lines = [line.strip() for line in text.splitlines() if f"{field}:" in line or f"{field} = " in line]
    assert any(remedy in line for line in lines), text
    assert all(line.startswith(("override", str(sound))) for line in lines)


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ([FRESH, "finetune={kind: lora}"], "finetune.kind"),
        ([FRESH, "model.tokenizer=a/b"], "model.tokenizer"),
        ([FRESH, "rope.replace_existing=true"], "rope.replace_existing"),
        ([FRESH, "model.fresh.num_heads=5"], "model.fresh"),
        ([FRESH, "model.fresh.num_kv_heads=3"], "model.fresh"),
        ([FRESH, "model.fresh.head_dim=15"], "model.fresh"),
        (["data.held_out=0", "eval.gap.gaps=[0]"], "eval.gap"),
    ],
)
def test_faults_of_several_fields(sound: Path, overrides: list[str], field: str) -> None:
    assert f"{field}:" in (text := faults(sound, *overrides)) or f"{field} = " in text


@pytest.mark.parametrize(
    "overrides",
    [
        ["rope.method=none"],
        ["rope.method=none", "rope.target_window=4096"],
        ["rope.method=yarn:8,beta_fast=16"],
        ["rope.method=none:8"],
        ["rope.method=abf:8,theta=1e6"],
        ["train.micro_batch_tokens=4096"],
        ["checkpoint.export_steps=[100]"],
        ["train.warmup_steps=99"],
        ["data.rows=[{tokens: 64, last_step: 7}, {tokens: 64, first_step: 7}]"],
        ["eval.passkey.lengths=[4096]", "eval.beyond_target=true"],
        ["eval.gap.gaps=[0, 1024]"],
        ["finetune={kind: lora}", "model.dtype=bfloat16", "model.attention=flash_attention_2"],
        ["train.clip_norm=null"],
        ["train.steps=1_000"],
    ],
)
def test_what_is_allowed_stays_allowed(sound: Path, overrides: list[str]) -> None:
    assert isinstance(load(sound, overrides), RunConfig)


def test_all_faults_at_once_each_at_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(
        SOUND.replace("linear,", "linear:4,").replace("tokens: 256", "tokns: 256").replace("lr: 1e-4", "lr: fast")
        + "seed: x\n",
        encoding="utf-8",
    )
    text = faults(path, "log.project=3")
    assert "6 problems" in text
    for place in (
        "bad.yaml:3: rope.method",
        "bad.yaml:7: data.rows.0.tokns",
        "bad.yaml:7: data.rows.0.tokens: missing",
        "bad.yaml:9: train.lr = 'fast'",
        "bad.yaml:10: seed = 'x'",
        "override 'log.project=3': log.project = 3",
    ):
        assert place in text


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", "1", "is empty"),
        ("- a\n", "1", "is no mapping"),
        ("name: x\nname: y\n", "1: name", "written again at"),
        ("a:\n  b: 1\n  b: 2\n", "2: a.b", "written again at"),
        ("name: [1\n", "2", "not valid YAML"),
        ("name: !!python/object:os.system x\n", "1", "tag"),
        ("a: &a {b: *a}\n", "1", "contains itself"),
        ("? [a]\n: 1\n", "1", "a key must be a word"),
        ("name: x\n---\nname: y\n", "2", "not valid YAML"),
        ('a: "\\ud800"\n', "1", "half a character"),
        ("a: &a {b: 1}\nc:\n  <<: *a\n", "2", "unknown key"),
    ],
)
def test_bad_writing(tmp_path: Path, text: str, place: str, words: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(text, encoding="utf-8")
    message = faults(path)
    assert f"r.yaml:{place}" in message
    assert words in message


def test_unreadable_files(tmp_path: Path) -> None:
    assert "does not exist" in faults(tmp_path / "none.yaml")
    assert "is a folder" in faults(tmp_path)
    (tmp_path / "bytes.yaml").write_bytes(b"name: \xff\xfe\x00")
    assert "Save it as UTF-8" in faults(tmp_path / "bytes.yaml")


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.lr", "write section.key=value"),
        ("=3", "write section.key=value"),
        ("train..lr=3", "write section.key=value"),
        ("data.rows.2.tokens=3", "list with 2 entries, 0 to 1"),
        ("data.rows.first.tokens=3", "list with 2 entries"),
        ("train.lr.x=3", "has no key 'x'"),
        ("train.lr=[1", "not valid YAML"),
    ],
)
def test_overrides_that_cannot_be_placed(sound: Path, override: str, words: str) -> None:
    text = faults(sound, override)
    assert text.startswith(f"override {override!r}")
    assert words in text


def test_overrides_are_laid_in_order_and_over_list_entries(sound: Path) -> None:
    config = load(sound, ["data.rows.1.weight=3", "train.lr=2", "train.lr=3e-5", "eval.gap.gaps=[0]"])
    assert [plan.weight for plan in config.data.rows] == [1, 3]
    assert config.train.lr == 3e-5
    assert config.eval.gap is not None
    assert config.eval.gap.gaps == (0,)
