"""Exactly one bos at position 0, however the tokenizer handles it (public report E3)."""

import pytest
from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerFast

from ropewalk.data.bos import bos_ids, plain_ids, with_bos
from ropewalk.data.passkey import PasskeyTemplate
from ropewalk.errors import DataError


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
