"""Names, numbers and paths as the page writes them."""

from __future__ import annotations

from itertools import pairwise
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.report.canvas import line_styles, spaced_log_ticks
from ropewalk.report.collect import without_paths
from ropewalk.report.schema import DataRow
from ropewalk.report.words import (
    arm_labels,
    arm_suffixes,
    byte_size,
    compact_tokens,
    duration,
    method_title,
    number,
    retrieval_sentence,
)

NAME = st.text("abcdefgXYZ0123456789._-", min_size=1, max_size=8).filter(lambda name: name.strip(".-") != "")


@given(st.lists(NAME, min_size=2, max_size=6))
def test_absolute_paths_keep_only_their_last_name(parts):
    path = "/" + "/".join(parts)
    assert without_paths(path) == parts[-1]
    assert without_paths({"a": [f"see {path}"]}) == {"a": [f"see {parts[-1]}"]}
    assert without_paths("~" + path) == parts[-1]


@given(st.lists(NAME, min_size=1, max_size=5))
def test_relative_paths_and_addresses_are_left_alone(parts):
    relative = "/".join(parts)
    assert without_paths(relative) == relative
    assert without_paths(f"https://example.org/{relative}") == f"https://example.org/{relative}"


@pytest.mark.parametrize("text", ["and/or", "tokens / second", "1/2", "a 256 / 2,048 split", "x → y"])
def test_prose_is_left_alone(text):
    assert without_paths(text) == text


def test_windows_paths_are_cut():
    assert without_paths(r"C:\Users\someone\models\tiny") == "tiny"


@pytest.mark.parametrize(
    ("method", "title"),
    [
        ("none", "none"),
        ("linear:8", "linear (PI) ×8"),
        ("yarn:8,beta_fast=16", "YaRN ×8 (beta_fast=16)"),
        ("abf:theta=500000", "ABF theta=500000"),
    ],
)
def test_method_titles(method, title):
    assert method_title(method) == title


def test_labels_tell_all_arms_apart():
    arms = [
        ("linear:8", "a"),
        ("linear:8", "b"),
        ("none", "c"),
        ("none", "a"),
        ("none", "untrained"),
        ("ntk:8", "untrained"),
    ]
    labels = arm_labels(arms, {"a": "linear", "b": "linear", "c": "none"}, {})
    assert len(set(labels.values())) == len(arms)
    assert labels["none", "untrained"] == "base model"
    assert "direct" not in labels["none", "a"]  # the weights of a linear run, read with none: no direct fine-tuning


def test_no_two_arms_look_the_same():
    arms = [
        ("linear:8", "a"),
        ("linear:8", "b"),
        ("none", "c"),
        ("none", "untrained"),
        ("cope:8", "d"),
        ("by_parts:8", "e"),
    ]
    assert len({(s.colour, s.dash) for s in line_styles(arms).values()}) == len(arms)
    assert len({s.marker for s in line_styles(arms).values()}) == len(arms)


def test_numbers():
    assert [number(v) for v in (1234.5, 123.4, 12.34, 1.234)] == ["1,234", "123", "12.3", "1.23"]
    assert [duration(s) for s in (4.2, 59.4, 60, 125, 7260)] == ["4.2 s", "59 s", "1 min", "2 min 5 s", "2 h 1 min"]
    assert [compact_tokens(t) for t in (256, 1024, 1536, 32768, 3000)] == ["256", "1k", "1.5k", "32k", "3,000"]
    assert byte_size(900 * 2**20) == "900 MiB"
    assert byte_size(3 * 2**29) == "1.5 GiB"


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30), st.floats(0.05, 0.3))
def test_ticks_keep_the_ends_and_their_distance(values, gap):
    ticks = spaced_log_ticks(values, gap)
    assert ticks[0] == min(values)
    assert ticks[-1] == max(values)
    if len(ticks) > 2:
        span = log(ticks[-1] / ticks[0])
        assert all(log(b / a) / span >= gap - 1e-9 for a, b in pairwise(ticks))


def test_an_arm_that_saw_plain_text_only_is_named_so():
    def row(arm: str, passkey: float, steps: int = 100, share: float = 1.0) -> DataRow:
        return DataRow(
            arm=arm,
            row_tokens=256,
            positions="dense",
            share=share,
            steps=steps,
            text=1 - passkey,
            passkey=passkey,
            repeat=0,
            first_step=0,
        )

    rows = [row("a", 0.4), row("b", 0.0)]
    suffixes = arm_suffixes({"a": "linear:8", "b": "linear:8"}, rows)
    labels = arm_labels([("linear:8", "a"), ("linear:8", "b")], {}, suffixes)
    assert list(labels.values()) == ["linear (PI) ×8", "linear (PI) ×8, plain text only"]
    assert arm_suffixes({"a": "linear:8", "c": "linear:8"}, [row("a", 0.4), row("c", 0.1)]) == {}
    assert "only measured" in retrieval_sentence([rows[1]])
    early = [row("a", 1.0, steps=20, share=0.5), row("a", 0.0, steps=20, share=0.5), row("a", 0.0, steps=80)]
    assert "10\u00a0%" in retrieval_sentence(early)
