"""Faults that users met in other systems (E1, E2, E5), from the command line to what lies on disk."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

PASSKEY = ["--tasks", "passkey", "--lengths", "128,192", "--trials", "2"]


def rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "passkey.jsonl").read_text().splitlines()]


def test_E1_two_methods_in_one_folder_both_run_and_a_second_pass_measures_nothing(command, workplace, tmp_path) -> None:
    scores = tmp_path / "scores"

    def evaluate(methods: str) -> list[dict]:
        ended = command(workplace, "eval", "tiny", *PASSKEY, "--methods", methods, "--out", str(scores))
        assert ended.code == 0, ended.printed
        return rows(scores)

    one = evaluate("linear:4")
    both = evaluate("yarn:4")
    assert both[: len(one)] == one
    assert {row["method"] for row in both[len(one) :]} == {"yarn:4"}
    assert len(both) == 2 * len(one)
    assert len({row["rotary_hash"] for row in both}) == 2
    assert len({row["weights_hash"] for row in both}) == 1
    assert evaluate("linear:4,yarn:4") == both
    more = evaluate("none")  # negative control: what is not there yet is measured
    assert len(more) == 3 * len(one)


@pytest.mark.parametrize("length", [2, 64])
def test_E2_a_length_below_the_fixed_parts_is_told_with_the_least_length(command, workplace, tmp_path, length) -> None:
    words = ["eval", "tiny", "--tasks", "passkey", "--lengths", f"256,{length}", "--out", str(tmp_path / "scores")]
    ended = command(workplace, *words)
    assert ended.code == 2
    assert f"{length} tokens is too short" in ended.printed
    least = int(ended.printed.split("Ask for at least ")[1].split()[0])
    assert length < least < 128
    assert not (tmp_path / "scores").exists()
    assert command(workplace, *words[:4], "--lengths", f"{least + 5}", *words[6:]).code == 0


@pytest.fixture(scope="module")
def export(command, workplace: Path) -> Path:
    """A model of base 500,000 extended by YaRN x4, as `train` leaves it."""
    ended = command(workplace, "train", "recipe.yaml", "--out", "runs/yarn")
    assert ended.code == 0, ended.printed
    return workplace / "runs" / "yarn" / "export"


def test_E5_a_reader_of_version_4_finds_base_and_scaling(export: Path) -> None:
    fields = json.loads((export / "config.json").read_text())
    new = fields["rope_parameters"]
    assert fields["rope_theta"] == new["rope_theta"] == 500000
    assert fields["rope_scaling"] == {key: value for key, value in new.items() if key != "rope_theta"}
    assert new["rope_type"] == "yarn"
    assert (new["factor"], new["original_max_position_embeddings"]) == (4, 64)
    assert fields["max_position_embeddings"] == 256


def test_E5_that_reader_rotates_as_transformers_does(export: Path) -> None:
    """YaRN as version 4 readers compute it, from the top-level base and `rope_scaling` alone."""
    import torch
    from transformers import AutoModelForCausalLM

    fields = json.loads((export / "config.json").read_text())
    theta, scaling, dim = fields["rope_theta"], fields["rope_scaling"], fields["head_dim"]

    def pair_at(turns: float) -> float:
        window = scaling["original_max_position_embeddings"]
        return dim * math.log(window / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(pair_at(scaling.get("beta_fast") or 32)), 0)
    high = min(math.ceil(pair_at(scaling.get("beta_slow") or 1)), dim - 1)
    expected = []
    for pair in range(dim // 2):
        blend = min(max((pair - low) / ((high - low) or 0.001), 0), 1)
        expected.append(theta ** (-2 * pair / dim) * (blend / scaling["factor"] + 1 - blend))
    rotary = AutoModelForCausalLM.from_pretrained(export).model.rotary_emb
    torch.testing.assert_close(rotary.inv_freq, torch.tensor(expected), rtol=1e-6, atol=0)
    assert rotary.attention_scaling == pytest.approx(0.1 * math.log(4) + 1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rope_theta": 10000.0}, "rope_theta = 10000.0"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, "rope_scaling."),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64}},
            "rope_scaling.",
        ),
    ],
)
def test_E5_two_schemas_that_disagree_are_refused(command, workplace, export: Path, tmp_path, changes, said) -> None:
    """Transformers itself takes one of them without a word."""
    for file in export.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    fields = json.loads((export / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**fields, **changes}))
    for words in (["eval", str(tmp_path), *PASSKEY], ["train", "recipe.yaml", f"model.base={tmp_path}"]):
        ended = command(workplace, *words)
        assert ended.code == 2, ended.printed
        assert "states RoPE twice and differently" in ended.printed
        assert said in ended.printed
        assert "Make them equal" in ended.printed
