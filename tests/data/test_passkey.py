"""Passkey prompts: exact lengths, one bos, the key where it was asked for, disjoint keys."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.data.passkey import PasskeyTemplate, evaluation_key, is_evaluation_key, training_key
from ropewalk.errors import DataError

FAMILIES = ["ours", "llama3", "llama2", "unigram"]


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=40, deadline=None)
@given(extra=st.integers(0, 600), depth=st.floats(0, 1), key=st.from_regex(r"[1-9][0-9]{4}", fullmatch=True))
def test_the_length_is_exact_and_the_key_is_there(families, family, extra, depth, key):
    tokenizer = families[family]
    template = PasskeyTemplate(tokenizer)
    length = template.shortest_tokens(5) + 3 + extra  # some keys of a digit-grouping tokenizer are a little longer
    prompt = template.build(length, depth, key)
    ids = prompt.input_ids.tolist()
    assert prompt.input_ids.dtype == np.int64
    assert len(ids) + len(prompt.answer_ids) == length
    assert [i for i, token in enumerate(ids) if token == tokenizer.bos_token_id] == [0]
    needle = tokenizer.decode(ids[prompt.needle_start : prompt.needle_end])
    assert needle.count(key) == 2
    assert tokenizer.decode(prompt.answer_ids).strip() == key
    outside = ids[: prompt.needle_start] + ids[prompt.needle_end :]
    assert key not in tokenizer.decode(outside)


def test_depth_moves_the_needle_token_by_token(tokenizer):
    template = PasskeyTemplate(tokenizer)
    starts = [template.build(400, depth, "12345").needle_start for depth in (0.0, 0.25, 0.5, 0.75, 1.0)]
    room = starts[-1] - starts[0]
    assert room == 400 - template.shortest_tokens(5)
    assert [round(room * d) for d in (0.0, 0.25, 0.5, 0.75, 1.0)] == [start - starts[0] for start in starts]


@pytest.mark.parametrize("length", [64, 256, 2048])
def test_public_report_lengths(tokenizer, length):
    template = PasskeyTemplate(tokenizer)
    shortest = template.shortest_tokens(5)
    if length < shortest:
        with pytest.raises(DataError, match=str(shortest)):
            template.build(length, 0.5, "12345")
    else:
        prompt = template.build(length, 0.5, "12345")
        assert len(prompt.input_ids) + len(prompt.answer_ids) == length


def test_too_short_is_an_error_that_says_how_long(tokenizer):
    template = PasskeyTemplate(tokenizer)
    shortest = template.shortest_tokens(5)
    assert len(template.build(shortest, 1.0, "90817").input_ids) > 0
    with pytest.raises(DataError, match=f"at least {shortest}"):
        template.build(shortest - 1, 0.5, "90817")


def test_the_fixed_parts_are_short(tokenizer):
    assert PasskeyTemplate(tokenizer).shortest_tokens(5) < 80


def test_our_tokenizer_answers_one_digit_a_token(tokenizer):
    prompt = PasskeyTemplate(tokenizer).build(200, 0.3, "40721")
    assert [tokenizer.decode([token]) for token in prompt.answer_ids] == list("40721")


@pytest.mark.parametrize("key", ["", "12a45", "١٢٣", "-1234"])
def test_a_key_is_a_number(tokenizer, key):
    with pytest.raises(DataError, match="not a number"):
        PasskeyTemplate(tokenizer).build(200, 0.5, key)


@pytest.mark.parametrize("digits", [1, 2, 5, 30])
def test_training_and_evaluation_keys_never_meet(digits):
    rng = np.random.default_rng(3)
    training = {training_key(rng, digits) for _ in range(500)}
    evaluation = {evaluation_key(seed, index, digits) for seed in range(2) for index in range(250)}
    assert training.isdisjoint(evaluation)
    assert all(len(key) == digits and key[0] != "0" for key in training | evaluation)
    assert not any(map(is_evaluation_key, training))
    assert all(map(is_evaluation_key, evaluation))


def test_evaluation_keys_depend_on_seed_and_index_alone():
    assert [evaluation_key(7, i, 5) for i in range(20)] == [evaluation_key(7, i, 5) for i in range(20)]
    assert len({evaluation_key(7, i, 5) for i in range(50)}) > 45
    assert evaluation_key(7, 0, 5) != evaluation_key(8, 0, 5)
