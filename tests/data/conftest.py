"""Small tokenizers of the three families, a small corpus, and a recipe to change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from ropewalk.config import RunConfig
from ropewalk.data.builtin import python_reference
from ropewalk.data.tokenizer import tokenizer_from_texts

LLAMA3_SPLIT = "|".join(
    (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def reference_text(tmp_path_factory) -> str:
    """465,000 characters of English prose, code and tables that every Python has."""
    return python_reference(tmp_path_factory.mktemp("none"))[0].text


@pytest.fixture(scope="session")
def tokenizer(reference_text) -> PreTrainedTokenizerFast:
    """What a fresh model gets: bos added by the post-processor, single digits."""
    return tokenizer_from_texts([reference_text[:200_000]], 1024)


@pytest.fixture(scope="session")
def families(reference_text, tokenizer) -> dict[str, PreTrainedTokenizerFast]:
    """Ours, one that groups digits and trims offsets (Llama 3), one on spaces as marks (Llama 2), one by likelihood."""
    text = [reference_text[:150_000]]
    bytes_trainer = trainers.BpeTrainer(
        vocab_size=900,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>"],
        show_progress=False,
    )
    llama3 = Tokenizer(models.BPE())
    llama3.decoder = decoders.ByteLevel()
    llama3.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    llama3.train_from_iterator(text, bytes_trainer)
    llama3.post_processor = processors.ByteLevel(trim_offsets=True)

    llama2 = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    llama2.pre_tokenizer = pre_tokenizers.Metaspace()
    llama2.train_from_iterator(
        text, trainers.BpeTrainer(vocab_size=900, special_tokens=["<unk>", "<s>"], show_progress=False)
    )
    llama2.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    llama2.decoder = decoders.Metaspace()
    llama2.pre_tokenizer = None  # as Llama 2's own: one string of marks and letters, no words

    unigram = Tokenizer(models.Unigram())
    unigram.decoder = decoders.Metaspace()
    unigram.normalizer = normalizers.NFKC()
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    unigram.train_from_iterator(
        text,
        trainers.UnigramTrainer(
            vocab_size=600, special_tokens=["<unk>", "<s>"], unk_token="<unk>", show_progress=False
        ),
    )
    wrapped = {
        name: PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>")
        for name, backend in (("llama3", llama3), ("llama2", llama2), ("unigram", unigram))
    }
    return {"ours": tokenizer, **wrapped}


def recipe(sources: list[dict[str, Any]], rows: list[dict[str, Any]], **changes: Any) -> RunConfig:
    """A RunConfig over given sources and rows; `changes` replace whole sections or add to data (held_out=...)."""
    data = {"sources": sources, "rows": rows, "held_out": changes.pop("held_out", 0.0)}
    base: dict[str, Any] = {
        "name": "t",
        "model": {
            "fresh": {
                "vocab_size": 1024,
                "hidden_size": 16,
                "intermediate_size": 32,
                "num_layers": 1,
                "num_heads": 2,
                "num_kv_heads": 2,
            }
        },
        "rope": {"method": "none", "original_window": 64, "target_window": 512},
        "data": data,
        "train": {
            "steps": 40,
            "tokens_per_step": 1024,
            "micro_batch_tokens": 256,
            "lr": 1e-3,
            "warmup_steps": 1,
        },
    }
    return RunConfig.model_validate(base | changes)


@pytest.fixture(scope="session")
def make_recipe():
    """The function `recipe`, for tests in files that cannot import this one."""
    return recipe
