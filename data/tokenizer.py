"""The tokenizer as data sees it: an identity for caches, a check against the model, and training a fresh one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import RunConfig
from ..errors import DataError
from .sources import Selection

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase

BOS, EOS = "<bos>", "<eos>"


def tokenizer_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """SHA-256 of everything that decides which ids a text becomes; passing states such as truncation do not count."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        state = json.loads(backend.to_str()) | {"truncation": None, "padding": None}
    else:
        state = {"class": type(tokenizer).__name__, "vocab": tokenizer.get_vocab()}
    state = {"state": state, "bos": tokenizer.bos_token_id, "eos": tokenizer.eos_token_id}
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def check_vocabulary(config: RunConfig, tokenizer: PreTrainedTokenizerBase) -> None:
    """DataError when the tokenizer makes ids the model has no embedding for (where recipe or folder say)."""
    if config.model.fresh is not None:
        vocab_size, where = config.model.fresh.vocab_size, "model.fresh.vocab_size"
    else:
        path = Path(config.model.base or "").expanduser() / "config.json"
        vocab_size = json.loads(path.read_text()).get("vocab_size") if path.is_file() else None
        where = f"vocab_size of {config.model.base}"
    if vocab_size is not None and len(tokenizer) > vocab_size:
        raise DataError(
            f"the tokenizer makes ids up to {len(tokenizer) - 1}, but {where} = {vocab_size}. "
            "Set model.tokenizer to the tokenizer this model was trained with."
        )


def train_tokenizer(config: RunConfig, folder: Path, cache_dir: Path) -> PreTrainedTokenizerFast:
    """Train the tokenizer of a fresh model on the run's own training sources, and save it in `folder`."""
    assert config.model.fresh is not None
    sources = [source for source in config.data.sources if source.use != "held-out"]
    texts = (document.text for source in sources for document in Selection(source, cache_dir))
    tokenizer = tokenizer_from_texts(texts, config.model.fresh.vocab_size)
    partial = folder.with_name(folder.name + ".partial")
    tokenizer.save_pretrained(str(partial))
    partial.rename(folder)
    return tokenizer


def tokenizer_from_texts(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE with at most `vocab_size` ids, each digit a token of its own, the same for the same texts.

    It has a bos, put before every text it tokenises with special tokens, and an eos, which only ends generated text.
    DataError when `vocab_size` leaves no room for the 256 bytes and the two.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    smallest = len(pre_tokenizers.ByteLevel.alphabet()) + 2
    if vocab_size < smallest:
        raise DataError(f"a vocabulary of {vocab_size} is too small: bytes and special tokens alone are {smallest}.")
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, backend.token_to_id(BOS))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=BOS, eos_token=EOS, clean_up_tokenization_spaces=False
    )
