"""Position plans."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.data.positions import dense, skip_wise


@given(st.integers(0, 2**32), st.integers(2, 300), st.integers(0, 5000), st.floats(0, 1), st.data())
def test_skip_wise_is_two_chunks_inside_the_window(seed, num_tokens, slack, ends, data):
    window = num_tokens + slack
    between = None
    if data.draw(st.booleans()):
        first = data.draw(st.integers(1, num_tokens - 1))
        between = (first, data.draw(st.integers(first, num_tokens - 1)))
    positions = skip_wise(np.random.default_rng(seed), num_tokens, window, ends, between)
    steps = np.diff(positions)
    assert positions.shape == (num_tokens,)
    assert positions[0] == 0
    assert positions[-1] <= window - 1
    assert (steps >= 1).all()
    assert (steps > 1).sum() <= 1
    if between and (steps > 1).any():
        assert between[0] <= int(np.argmax(steps)) + 1 <= between[1]


def test_the_ends_get_their_share_and_the_rest_is_even():
    rng = np.random.default_rng(0)
    last = np.array([skip_wise(rng, 64, 1024, 0.25)[-1] for _ in range(4000)])
    at_end = (last == 1023).mean()
    assert 0.22 < at_end < 0.28
    rest = last[last < 1023]
    assert abs(rest.mean() - (63 + 1023) / 2) < 20
    # control: without `ends` the last position is as rare as any other
    rare = np.array([skip_wise(rng, 64, 1024, 0.0)[-1] for _ in range(4000)])
    assert (rare == 1023).mean() < 0.01


def test_a_row_as_long_as_the_window_is_dense():
    assert np.array_equal(skip_wise(np.random.default_rng(1), 64, 64, 1.0), dense(64))
