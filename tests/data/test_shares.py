"""Exact shares: the closed form is a real sequence, and keeps to the weights over every stretch."""

from hypothesis import given
from hypothesis import strategies as st

from ropewalk.data.shares import Shares

WEIGHTS = st.lists(st.one_of(st.just(0.0), st.floats(0.01, 10)), min_size=1, max_size=5).filter(lambda w: sum(w) > 0)


@given(WEIGHTS, st.integers(1, 300))
def test_pick_numbers_each_kind_from_zero_without_a_gap(weights, num_items):
    shares = Shares.of(weights)
    seen = [0] * len(weights)
    for item in range(num_items):
        kind, earlier = shares.pick(item)
        assert earlier == seen[kind]
        assert weights[kind] > 0
        seen[kind] += 1
    assert shares.counts(num_items) == seen


@given(WEIGHTS, st.integers(0, 10_000), st.integers(1, 64))
def test_every_stretch_holds_each_kind_to_about_its_share(weights, start, length):
    shares = Shares.of(weights)
    for kind, weight in enumerate(weights):
        held = shares.counts(start + length)[kind] - shares.counts(start)[kind]
        assert abs(held - length * weight / sum(weights)) <= len(weights)


def test_halves_alternate():
    shares = Shares.of((1, 1))
    assert [shares.pick(item)[0] for item in range(6)] == [0, 1, 0, 1, 0, 1]
