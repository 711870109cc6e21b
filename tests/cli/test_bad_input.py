"""Bad input gets one clear message with what to set instead, exit code 2, and leaves nothing behind.

A full disk, signals and corrupt checkpoints are in tests/training/test_runs_that_survive.py; every kind of fault inside
a recipe is in tests/config/test_faults.py.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "rope_parameters": None, "vocab_size": 288}
BERT = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "rope_parameters": None, "rope_theta": None}
T5 = {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "rope_parameters": None}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
PLAIN = {"rope_scaling": None, "ropewalk": None}
MODELS: dict[str, dict] = {
    "gpt2": GPT2 | PLAIN | {"rope_theta": None},
    "bert": BERT | PLAIN,
    "t5": T5 | PLAIN | {"rope_theta": None},
    "few-ids": {"vocab_size": 200},
    "shorter": PLAIN | {"max_position_embeddings": 32},
    "llama3": PLAIN
    | {"max_position_embeddings": 128, "rope_parameters": {**LLAMA3, "original_max_position_embeddings": 64}},
    "linear": PLAIN
    | {
        "max_position_embeddings": 128,
        "original_max_position_embeddings": 64,
        "rope_parameters": {"rope_type": "linear", "rope_theta": 5e5, "factor": 2.0},
    },
    "two-thetas": {"rope_theta": 1e4},
    "no-type": {"model_type": None, "architectures": None},
}
LONG = ["rope.target_window=8192", "rope.method=yarn", "train.micro_batch_tokens=8192", "train.tokens_per_step=8192"]
HUB = "somebody/some-model"


@pytest.fixture(scope="module")
def place(workplace: Path, altered) -> Path:
    """The workplace with every model of MODELS, and folders that are neither a run nor a model."""
    for name, changes in MODELS.items():
        altered(name, **changes)
    cut = altered("cut") / "model.safetensors"
    cut.write_bytes(cut.read_bytes()[:1000])
    (altered("torn-config") / "config.json").write_text('{"model_type": "lla')
    (altered("no-weights") / "model.safetensors").unlink()
    for file in altered("no-tokenizer").glob("tokenizer*"):
        file.unlink()
    (workplace / "torn-run").mkdir()
    (workplace / "torn-run" / "run.json").write_text('{"schema": 1}')
    for name, old, new in [
        ("unknown-key", "steps: 2,", "steps: 2, learning_rat: 1,"),
        ("wrong-type", "steps: 2,", "steps: many,"),
        ("factor", "yarn:4", "yarn:0.5"),
        ("below", "target_window: 256", "target_window: 32"),
    ]:
        (workplace / f"{name}.yaml").write_text((workplace / "recipe.yaml").read_text().replace(old, new))
    return workplace


def all_files(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder but the token cache: path -> content, None for a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
        if ".cache" not in path.parts
    }


RECIPES = [
    (["check", "unknown-key.yaml"], ["unknown-key.yaml:11: train.learning_rat", "unknown key", "knows steps,"]),
    (["check", "wrong-type.yaml"], ["wrong-type.yaml:11: train.steps = 'many'", "whole number"]),
    (["check", "factor.yaml"], ["factor.yaml:3: rope.method = 'yarn:0.5'", "greater than or equal to 1"]),
    (["check", "below.yaml"], ["below.yaml:3: rope.target_window = 32", "rope.original_window = 64", "set it to 64"]),
    (["check", "nowhere.yaml"], ["nowhere.yaml does not exist", "give a YAML file"]),
    (["train", "nowhere.yaml"], ["nowhere.yaml does not exist", "give a YAML file"]),
    (["train", "unknown-key.yaml"], ["unknown-key.yaml:11: train.learning_rat", "knows steps,"]),
    (["train", "recipe.yaml", "rope.method=yarn:3"], ["rope.method = 'yarn:3'", "set the factor 4"]),
]  # fmt: skip
TEXTS = [
    (["data.sources.0.name=nowhere.txt"], ["data.sources 'nowhere.txt'", "no such file", "Give an existing file"]),
    (["data.sources.0.kind=jsonl"], ["texts/t0.txt:1 is not JSON", "one object a line"]),
    (["data.sources.0.kind=parquet"], ["texts/t0.txt is not a parquet file", "Set `kind`"]),
    (["data.sources.0={kind: builtin, name: nothing}"], ["builtin source 'nothing'", "stdlib"]),
    (["data.sources.0={kind: dataset, name: some/data}"], ["data.sources 'some/data'", "network"]),
    ([*LONG, "data.rows=[{tokens: 8000}]"], ["data.rows[0].tokens = 8000", "the longest has", "Lower tokens"]),
    (["data.rows=[{tokens: 64, text: 0, passkey: 1}]"], ["data.rows[0].tokens = 64", "at least 1", "Raise tokens"]),
]
BASES = [
    ("nowhere/at/all", ["nowhere/at/all does not exist", "hub id owner/name"]),
    (HUB, [HUB, "the model hub does not answer", "Check the name and the network"]),
    ("recipe.yaml", ["recipe.yaml is a file", "give the folder"]),
    ("texts", ["texts", "no config.json", "model folder"]),
    ("torn-config", ["torn-config", "not a valid JSON file"]),
    ("no-type", ["no-type", "model_type"]),
    ("gpt2", ["'gpt2'", "does not use RoPE", "RoPE models only"]),
    ("bert", ["'bert'", "does not use RoPE", "RoPE models only"]),
    ("t5", ["'t5'", "no causal language model", "such as a Llama"]),
    ("few-ids", ["few-ids", "ids up to 28", "200", "the tokenizer"]),
    ("two-thetas", ["two-thetas", "rope_theta = 500000.0, but rope_theta = 10000.0", "Make them equal"]),
    ("no-tokenizer", ["no-tokenizer", "holds no tokenizer", "model.tokenizer"]),
    ("no-weights", ["no-weights", "no file named model.safetensors", "safetensors weights"]),
    ("cut", ["cannot load weights of cut", "copy it anew"]),
]
SCALED = [
    ("shorter", ["original_window = 64", "max_position_embeddings 32", "Set original_window: 32"]),
    ("llama3", ["already carries llama3:2", "yarn:4 would drop it", "total factor", "rope.replace_existing: true"]),
    ("linear", ["already carries linear:2", "yarn:4 would drop it", "total factor", "rope.replace_existing: true"]),
]
EVAL = ["eval", "tiny", "--tasks", "passkey", "--lengths", "256", "--trials", "1"]
TARGETS = [
    (["eval", "torn-run", *EVAL[2:]], ["torn-run/run.json", "no record of a run"]),
    (["eval", "llama3", *EVAL[2:], "--methods", "yarn:8"], ["already carries llama3:2", "yarn:8 would drop it"]),
    ([*EVAL, "--methods", "yarm:8"], ["'yarm:8'", "did you mean 'yarn'?"]),
    ([*EVAL, "--methods", "none,linear:0.5"], ["'linear:0.5'", "greater than or equal to 1"]),
    ([*EVAL, "--methods", "linear:eight"], ["'linear:eight'", "valid number"]),
    ([*EVAL, "--methods", "yarn:8,beta=3"], ["'yarn:8,beta=3'", "no 'beta'", "beta_fast"]),
    ([*EVAL, "--steps", "3"], ["--steps needs a run folder", "tiny has no run.json"]),
    (["eval", "runs/tiny", *EVAL[2:], "--steps", "7"], ["no weights of step 7", "it has [2]"]),
    ([*EVAL, "--out", "recipe.yaml"], ["--out recipe.yaml is a file", "Give a folder"]),
    ([*EVAL, "--cache", "recipe.yaml"], ["--cache", "'recipe.yaml' is a file"]),
    ([*EVAL[:2], "--tasks", "paskey"], ["--tasks paskey", "passkey"]),
    ([*EVAL[:4], "--lengths", "1k"], ["--lengths 1k", "whole numbers"]),
    ([*EVAL, "--trials", "0"], ["--trials", "greater than or equal to 1"]),
    ([*EVAL[:2], "--tasks", "perplexity", "--lengths", "256"], ["tiny is no run", "--text stdlib"]),
    ([*EVAL[:2], "--tasks", "perplexity", "--lengths", "256", "--text", "nothing"], ["--text nothing", "stdlib"]),
    (["methods", "linaer:8"], ["'linaer:8'", "did you mean 'linear'?"]),
    (["methods", "yarn:0.5"], ["'yarn:0.5'", "factor = '0.5'", "greater than or equal to 1"]),
    (["methods", "yarn"], ["'yarn'", "give the factor", "yarn:8"]),
    (["methods", "yarn:8", "--head-dim", "7"], ["7 rotated dimensions", "must be even"]),
    (["report", "texts"], ["texts", "no run.json", "ropewalk train"]),
    (["report", "torn-run"], ["torn-run/run.json", "run record"]),
    (["report", "runs/tiny", "--out", "recipe.yaml"], ["--out recipe.yaml is a file", "Give a folder"]),
    (["train", "recipe.yaml", "--out", "base.yaml"], ["base.yaml", "Give another with --out"]),
    (["train", "base.yaml", "seed=9", "train.lr=0.5"], ["seed: 1 -> 9", "train.lr: 0.01 -> 0.5", "new folder"]),
]  # fmt: skip


def train(base: str) -> list[str]:
    return ["train", "recipe.yaml", f"model.base={base}"]


CASES = [
    *RECIPES,
    *((["train", "recipe.yaml", *overrides], said) for overrides, said in TEXTS),
    *((train(base), said) for base, said in [*BASES, *SCALED]),
    *((["eval", base, *EVAL[2:]], [said[0]]) for base, said in BASES),
    *TARGETS,
]


@pytest.mark.parametrize(("words", "said"), CASES, ids=[" ".join(words)[:70] for words, _ in CASES])
def test_it_is_refused_with_place_value_and_remedy(command, place: Path, words: list[str], said: list[str]) -> None:
    before = all_files(place)
    ended = command(place, *words)
    assert ended.code == 2, ended.printed
    assert "Traceback" not in ended.printed
    for part in said:
        assert part in " ".join(ended.printed.split()), ended.printed
    assert all_files(place) == before
    assert not list((place / ".cache").rglob("partial*"))
    assert ended.seconds < 15, "one that asks an absent hub again and again takes a minute"


def test_debug_shows_where_it_came_from(command, place: Path) -> None:
    ended = command(place, *train("gpt2"), "--debug")
    assert ended.code == 1
    assert "Traceback" in ended.printed
    assert "ModelError" in ended.printed


def test_a_fault_of_the_disk_is_told_without_a_traceback(command, place: Path) -> None:
    ended = command(place, "report", "runs/tiny", "--out", "/dev/null/report")
    assert ended.code == 1
    assert "Traceback" not in ended.printed
    assert ended.printed.startswith("error: ")
    assert "/dev/null/report" in ended.printed


def test_a_start_that_never_reached_a_step_may_be_made_with_other_settings(command, place: Path) -> None:
    """What a process killed while it prepared its data leaves: no step, so nothing to keep."""
    run = place / "runs" / "early"
    shutil.copytree(place / "runs" / "tiny", run)
    for name in ("checkpoints", "export"):
        shutil.rmtree(run / name)
    (run / "metrics.jsonl").write_text("")
    (run / "data" / "manifest.json").write_text("{")
    ended = command(place, "train", "base.yaml", "seed=9", "model.fresh.vocab_size=300", "--out", "runs/early")
    assert ended.code == 0, ended.printed
    assert json.loads((run / "run.json").read_text())["config"]["seed"] == 9
    assert json.loads((run / "export" / "config.json").read_text())["vocab_size"] == 300
    shutil.rmtree(run)


def test_a_report_on_a_run_without_scores_says_so(command, place: Path, tmp_path: Path) -> None:
    ended = command(place, "report", "runs/tiny", "--out", str(tmp_path / "report"))
    assert ended.code == 0, ended.printed
    cautions = json.loads((tmp_path / "report" / "report.json").read_text())["cautions"]
    assert any("tiny has no scores" in caution and "ropewalk eval" in caution for caution in cautions)


def test_a_process_of_its_own_from_the_shell(place: Path) -> None:
    """The same without the shared start of conftest.py."""
    command = [sys.executable, "-c", "from ropewalk.cli import main; main()", "check", "recipe.yaml", "factor.yaml"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "ok   recipe.yaml" in done.stdout
    assert "FAIL factor.yaml" in done.stdout
    assert done.stderr == ""
