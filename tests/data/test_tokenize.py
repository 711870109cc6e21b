"""Tokenising in pieces gives what one call gives, in linear time (public report T8)."""

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ropewalk.data import tokenize as module
from ropewalk.data.bos import plain_ids
from ropewalk.data.tokenize import DocumentTokenizer, cuts

FAMILIES = ["ours", "llama3", "llama2", "unigram"]
WORDS = st.sampled_from(
    [
        "the ",
        "a",
        " b",
        "\n",
        "\n\n",
        "  ",
        "\t",
        "\r\n",
        "12",
        "345",
        ".",
        "...",
        "don't ",
        "é",
        "日本語",
        "🙂",
        "aaaa",
        "▁",
        "x = [",
        "\u00a0",
    ]
)


def in_pieces(tokenizer, text: str, piece_chars: int) -> list[int]:
    with DocumentTokenizer(tokenizer, 2, piece_chars) as documents:
        return next(documents.map([text])).tolist()


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=60, deadline=None)
@given(parts=st.lists(WORDS, max_size=200), piece_chars=st.integers(1, 60))
@example(parts=["a b"] * 400, piece_chars=1)
@example(parts=["aaaa"] * 400, piece_chars=7)
def test_pieces_equal_one_call(families, family, parts, piece_chars):
    text = "".join(parts)
    assert in_pieces(families[family], text, piece_chars) == plain_ids(families[family], text)


@pytest.mark.parametrize("family", FAMILIES)
def test_real_text_is_cut_and_equal(families, family, reference_text, monkeypatch):
    text = reference_text[:200_000]
    calls = []
    real = module._tokenize_piece
    monkeypatch.setattr(module, "_tokenize_piece", lambda *args: calls.append(args[2:]) or real(*args))
    assert in_pieces(families[family], text, 4_000) == plain_ids(families[family], text)
    # It was really cut; only tokenizers with tokens across line ends (as these two toys have) join pieces again.
    num_pieces = len(cuts(text, 4_000)) - 1
    assert num_pieces >= 30
    assert len(calls) == num_pieces or family in ("llama2", "unigram")


def test_where_pieces_disagree_they_are_joined(tokenizer, reference_text, monkeypatch):
    text = reference_text[:20_000]
    monkeypatch.setattr(module, "_agree", lambda left, right: False)
    assert in_pieces(tokenizer, text, 500) == plain_ids(tokenizer, text)


def test_cuts_cover_the_text_and_bad_cuts_would_show(tokenizer, monkeypatch):
    text = "alpha beta\ngamma delta " * 500
    places = cuts(text, 100)
    assert places[0] == 0
    assert places[-1] == len(text)
    assert all(later - earlier >= 100 for earlier, later in pairwise(places[:-1]))
    # control: blind cuts inside words, trusted without a check, give other tokens
    monkeypatch.setattr(module, "cuts", lambda text, piece_chars: [*range(0, len(text), 97), len(text)])
    monkeypatch.setattr(module, "_agree", lambda left, right: True)
    assert in_pieces(tokenizer, text, 100) != plain_ids(tokenizer, text)


def test_documents_come_in_order_and_apart(tokenizer, reference_text):
    texts = [reference_text[start : start + size] for start, size in ((0, 9000), (9000, 3), (9003, 0), (9003, 50_000))]
    with DocumentTokenizer(tokenizer, 2, 2_000) as documents:
        found = list(documents.map(texts))
    assert [ids.tolist() for ids in found] == [plain_ids(tokenizer, text) for text in texts]
    assert all(ids.dtype == np.int64 for ids in found)


def test_truncation_set_by_someone_else_does_not_cut(tokenizer, reference_text):
    text = reference_text[:5_000]
    whole = plain_ids(tokenizer, text)
    tokenizer.backend_tokenizer.enable_truncation(10)
    try:
        assert in_pieces(tokenizer, text, 1_000) == whole
    finally:
        tokenizer.backend_tokenizer.no_truncation()


@pytest.mark.slow
def test_time_grows_linearly(tokenizer, reference_text):
    """Four times the text takes about four times as long; the work per piece is bounded, so the bound is generous."""

    def seconds(text: str) -> float:
        started = time.process_time()
        in_pieces(tokenizer, text, module.PIECE_CHARS)
        return time.process_time() - started

    small = min(seconds(reference_text * 4) for _ in range(2))
    assert seconds(reference_text * 16) < 4 * 1.6 * small
