"""The two bounds of the PI paper against brute force; and its printed constant, which must be seen to fail."""

import cmath
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.positional import BaseRope
from ropewalk.positional.bounds import (
    bound_ratio,
    draw,
    extrapolation_sum,
    interpolation_bound,
    interpolation_constant,
    interpolation_error,
    paper_constant,
    score,
)

LLAMA = BaseRope(1e4, 128, 2048)
BASES = st.builds(
    BaseRope,
    theta=st.sampled_from([1e3, 1e4, 5e5, 1e7]),
    head_dim=st.sampled_from([4, 8, 64, 128]),
    window=st.just(2048),
)


@st.composite
def scores(draw_from: st.DrawFn) -> tuple[BaseRope, list[complex]]:
    """A base and any h for it, the aligned ones that bend hardest among them."""
    base = draw_from(BASES)
    size = st.floats(0, 3)
    phase = st.floats(-math.pi, math.pi)
    if draw_from(st.booleans()):
        at, r = draw_from(st.floats(0, 3000)), draw_from(size)
        return base, [cmath.rect(r, -at * w) for w in base.inv_freq_F]
    return base, [cmath.rect(draw_from(size), draw_from(phase)) for _ in base.inv_freq_F]


@settings(deadline=None)
@given(
    case=scores(),
    left=st.integers(0, 3000),
    gap=st.sampled_from([1.0, 0.5, 2.0, 8.0]),
    share=st.floats(0, 1),
)
def test_between_positions_the_score_stays_within_the_bound(
    case: tuple[BaseRope, list[complex]], left: int, gap: float, share: float
) -> None:
    base, h_F = case
    s, max_h = left + share * gap, max(abs(h) for h in h_F)
    error = interpolation_error(h_F, base, s, left, left + gap)
    assert error <= interpolation_bound(base, max_h, s, left, left + gap) + 1e-9


@settings(deadline=None)
@given(case=scores(), s=st.floats(0, 10000))
def test_at_any_distance_the_score_stays_within_b(case: tuple[BaseRope, list[complex]], s: float) -> None:
    base, h_F = case
    steps = [abs(a - b) for a, b in zip(h_F, [*h_F[1:], 0], strict=True)]
    largest = max(abs(h) for h in h_F)
    assert abs(score(h_F, base, s)) <= max(steps) * extrapolation_sum(base, s) + 1e-9
    assert max(steps) <= 2 * largest + 1e-9


@given(base=BASES)
def test_the_constant_is_the_brute_sum(base: BaseRope) -> None:
    assert interpolation_constant(base) == pytest.approx(sum(w * w for w in base.inv_freq_F) / 8, rel=1e-12)


@given(base=BASES)
def test_the_papers_constant_is_too_small(base: BaseRope) -> None:
    """Negative control: it puts d / (4 ln theta) where the larger sum of squares belongs."""
    assert paper_constant(base) < interpolation_constant(base)


@pytest.mark.parametrize(
    ("theta", "head_dim", "true_error", "paper", "ours"),
    [
        (1e4, 128, 0.459, 0.434, 0.4998),
        (1e4, 64, 0.2598, 0.2172, 0.2856),
        (1e4, 8, 0.109, 0.0271, 0.1263),
        (5e5, 128, 0.340, 0.305, 0.3716),
    ],
)
def test_the_papers_constant_is_exceeded(
    theta: float, head_dim: int, true_error: float, paper: float, ours: float
) -> None:
    """All h = 1, halfway between the positions 0 and 1: a deviation that the paper's bound forbids."""
    base = BaseRope(theta, head_dim, 2048)
    error = interpolation_error([1.0] * base.num_freqs, base, 0.5, 0, 1)
    assert error == pytest.approx(true_error, abs=6e-4)
    assert paper_constant(base) == pytest.approx(paper, abs=6e-4)
    assert interpolation_constant(base) == pytest.approx(ours, abs=1e-4)
    assert paper_constant(base) < error < interpolation_constant(base)


def test_the_bound_is_nearly_reached_by_the_hardest_h() -> None:
    """h turned so that every pair bends most halfway: the constant could be lowered by some 2 %, not more."""
    h_F = [cmath.exp(-0.5j * w) for w in LLAMA.inv_freq_F]
    assert 0.975 < interpolation_error(h_F, LLAMA, 0.5, 0, 1) / interpolation_constant(LLAMA) <= 1


def test_extrapolation_is_hundreds_of_times_looser_for_wide_heads_only() -> None:
    least = min(extrapolation_sum(LLAMA, s) / 128 for s in range(1, 4097))
    assert least == pytest.approx(1.116, abs=1e-3)
    assert 570 < min(bound_ratio(LLAMA, s) for s in range(3600, 3700)) < 573
    narrow = BaseRope(1e4, 8, 2048)
    below = sum(extrapolation_sum(narrow, s) / 8 < 1 for s in range(1, 4097)) / 4096
    assert below == pytest.approx(0.87, abs=0.005)


def test_the_figure_is_drawn_the_same_each_time(tmp_path: Path) -> None:
    draw(tmp_path / "a.svg")
    draw(tmp_path / "b.svg")
    first = (tmp_path / "a.svg").read_bytes()
    assert first.startswith(b"<?xml")
    assert first == (tmp_path / "b.svg").read_bytes()
