"""Exactly one bos at position 0, however the tokenizer handles it (public report E3)."""

import numpy as np
import pytest
from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerFast

from ropewalk.config import Source
from ropewalk.data import RowSampler, prepare
from ropewalk.data.bos import bos_ids, plain_ids, with_bos
from ropewalk.data.passkey import PasskeyTemplate
from ropewalk.errors import DataError
from ropewalk.eval.perplexity import windows
from ropewalk.eval.texts import source_texts, spread_places


def variant(tokenizer, *, bos: str | None, template: str | None) -> PreTrainedTokenizerFast:
    """The same vocabulary with another post-processor and another idea of its bos."""
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    special = [(name, backend.token_to_id(name)) for name in ("<bos>", "<eos>")]
    backend.post_processor = template and processors.TemplateProcessing(single=template, special_tokens=special)
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=bos, eos_token="<eos>")


@pytest.mark.parametrize("template", [None, "<bos> $A", "<bos> $A <eos>", "$A <eos>"])
def test_one_bos_in_every_prompt(tokenizer, template):
    tokenizer = variant(tokenizer, bos="<bos>", template=template)
    (bos,) = bos_ids(tokenizer)
    prompt = PasskeyTemplate(tokenizer).build(200, 0.5, "12345")
    assert bos == tokenizer.bos_token_id
    assert prompt.input_ids[0] == bos
    assert (prompt.input_ids == bos).sum() == 1
    assert tokenizer.eos_token_id not in prompt.input_ids.tolist()
    assert with_bos(tokenizer, tokenizer("some words")["input_ids"]).count(bos) == 1
    assert with_bos(tokenizer, [bos, bos, 5]) == [bos, 5]


def test_no_bos_where_there_is_none(tokenizer):
    tokenizer = variant(tokenizer, bos=None, template=None)
    assert bos_ids(tokenizer) == []
    assert with_bos(tokenizer, [4, 5]) == [4, 5]
    first = PasskeyTemplate(tokenizer).build(200, 0.5, "12345").input_ids[0]
    assert first == plain_ids(tokenizer, "One passkey")[0]


def test_a_tokenizer_that_opens_texts_with_something_else_is_refused(tokenizer):
    with pytest.raises(DataError, match="bos token"):
        bos_ids(variant(tokenizer, bos="<bos>", template="<eos> $A"))


@pytest.mark.parametrize("bos", ["<bos>", None])
@pytest.mark.parametrize("template", [None, "<bos> $A", "<bos> $A <eos>"])
def test_one_bos_in_every_training_row_and_every_window(tokenizer, make_recipe, tmp_path, bos, template):
    """Rows of all three kinds and the windows of perplexity: one at position 0, or none at all without a bos token."""
    mark, tokenizer = tokenizer.bos_token_id, variant(tokenizer, bos=bos, template=template if bos else None)
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text(f"Text {number} of geese over hills. " * 200)
    source = {"kind": "text", "name": str(tmp_path / "*.txt")}
    config = make_recipe([source], [{"tokens": 128, "text": 0.4, "passkey": 0.3, "repeat": 0.3}])
    sampler = RowSampler(config, prepare(config, tokenizer, tmp_path / "data", tmp_path / "cache"), tokenizer)
    batches = [sampler.micro_batch(step, index) for step in range(3) for index in range(4)]
    assert {kind for batch in batches for kind in batch.kinds_B} == {"text", "passkey", "repeat"}
    texts = source_texts([Source.model_validate(source)], tokenizer, tmp_path)
    opening = bos_ids(tokenizer)
    asked = [windows(texts, spread_places(texts, 96, 32, 6), 32, length, opening) for length in (64, 128)]
    for rows in [*(batch.input_ids_BT.numpy() for batch in batches), *asked]:
        places = np.argwhere(rows == mark).tolist()
        assert places == ([[row, 0] for row in range(len(rows))] if bos else [])
