"""What each method promises of its frequencies, over many bases and factors."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.errors import MethodError
from ropewalk.positional import METHODS, BaseRope, Rotary, parse_method
from ropewalk.positional.dynamic import Dynamic

BASES = st.builds(
    BaseRope,
    theta=st.sampled_from([1e3, 1e4, 5e5, 1e7]),
    head_dim=st.sampled_from([8, 16, 64, 128]),
    window=st.sampled_from([64, 256, 2048, 4096, 131072]),
)
FACTORS = st.floats(min_value=1, max_value=64)
IDENTITY_AT_1 = ["none", "linear", "ntk", "ntk:1,form=critical", "ntk:1,form=alpha,alpha=1", "yarn"]
IDENTITY_AT_1 += ["yarn:1,ramp=turns", "yarn:1,ramp=harmonic", "llama3", "by_parts", "dynamic"]
SCALED = ["linear", "ntk", "yarn", "yarn:{},ramp=turns", "yarn:{},ramp=harmonic", "llama3", "by_parts"]


def close(left: Rotary, right: Rotary) -> bool:
    pairs = zip(left.inv_freq_F, right.inv_freq_F, strict=True)
    same = all(math.isclose(a, b, rel_tol=1e-12) for a, b in pairs)
    return same and math.isclose(left.attention_scale, right.attention_scale, rel_tol=1e-12)


@given(base=BASES, text=st.sampled_from(IDENTITY_AT_1))
def test_factor_1_is_the_identity(base: BaseRope, text: str) -> None:
    assert close(parse_method(text, 1).rotary(base), Rotary(base.inv_freq_F))


@given(base=BASES)
def test_the_identity_of_methods_that_are_given_more_than_a_factor(base: BaseRope) -> None:
    ones = "/".join(["1"] * base.num_freqs)
    assert close(parse_method(f"longrope:1,divisors={ones}").rotary(base), Rotary(base.inv_freq_F))
    assert close(parse_method(f"abf:1,theta={base.theta!r}").rotary(base), Rotary(base.inv_freq_F))
    assert close(parse_method("p_rope:1,share=1").rotary(base), Rotary(base.inv_freq_F))


@given(base=BASES, factor=FACTORS, text=st.sampled_from(SCALED))
def test_frequencies_lie_between_interpolated_and_kept_and_fall(base: BaseRope, factor: float, text: str) -> None:
    method = parse_method(text.format(factor), factor)
    rotary = method.rotary(base)
    for new, old in zip(rotary.inv_freq_F, base.inv_freq_F, strict=True):
        assert old / factor * (1 - 1e-9) <= new <= old * (1 + 1e-9)
    assert all(a > b for a, b in pairwise(rotary.inv_freq_F))


@given(base=BASES, factor=FACTORS)
def test_linear_divides_every_frequency(base: BaseRope, factor: float) -> None:
    assert parse_method("linear", factor).rotary(base).inv_freq_F == tuple(w / factor for w in base.inv_freq_F)


@given(base=BASES, factor=FACTORS)
def test_ntk_keeps_the_fastest_and_interpolates_the_slowest_pair(base: BaseRope, factor: float) -> None:
    freqs = parse_method("ntk", factor).rotary(base).inv_freq_F
    assert freqs[0] == 1.0
    assert freqs[-1] == pytest.approx(base.inv_freq_F[-1] / factor, rel=1e-9)


def test_ntk_bases_known_for_theta_10000_and_head_128() -> None:
    base = BaseRope(10000.0, 128, 4096)
    found = [parse_method(f"ntk:{factor}").rope_parameters(base)["rope_theta"] for factor in (8, 16, 32)]
    assert found == pytest.approx([82684.6, 167198.7, 338096.9], abs=0.1)


@given(base=BASES, factor=FACTORS)
def test_critical_ntk_maps_the_pair_of_one_turn_onto_the_long_window(base: BaseRope, factor: float) -> None:
    """The pair (perhaps between two) that turns once in L turns once in L' under the new base."""
    theta = parse_method(f"ntk:{factor},form=critical").rope_parameters(base)["rope_theta"]
    exponent = math.log(base.window / (2 * math.pi)) / math.log(base.theta)
    assert 2 * math.pi * theta**exponent == pytest.approx(factor * base.window, rel=1e-6)


def test_the_three_ramps_of_yarn_differ_in_the_middle_band() -> None:
    """Pair 33 of a LLaMA head at factor 8, as measured from the paper's formula and two published codes."""
    base = BaseRope(10000.0, 128, 4096)
    found = {
        ramp: parse_method(f"yarn:8,ramp={ramp}").rotary(base).inv_freq_F[33] for ramp in ("turns", "index", "harmonic")
    }
    assert found["turns"] == pytest.approx(2.218e-3, abs=1e-6)
    assert found["index"] == pytest.approx(4.871e-3, abs=1e-6)
    assert found["harmonic"] == pytest.approx(1.924e-3, abs=1e-6)


@given(base=BASES, factor=FACTORS)
def test_yarn_keeps_fast_pairs_interpolates_slow_ones_and_scales_attention(base: BaseRope, factor: float) -> None:
    turns = parse_method(f"yarn:{factor},ramp=turns").rotary(base)
    for new, old, r in zip(turns.inv_freq_F, base.inv_freq_F, base.turns_F, strict=True):
        if r >= 32:
            assert new == pytest.approx(old, rel=1e-12)
        if r <= 1:
            assert new == pytest.approx(old / factor, rel=1e-12)
    assert turns.attention_scale == pytest.approx(0.1 * math.log(factor) + 1)
    assert turns.inv_freq_F == pytest.approx(parse_method("by_parts", factor).rotary(base).inv_freq_F, rel=1e-12)


@given(base=BASES, factor=FACTORS)
def test_by_parts_is_llama3_with_the_papers_ends(base: BaseRope, factor: float) -> None:
    assert parse_method("by_parts", factor).rotary(base) == parse_method(f"llama3:{factor},low=1,high=32").rotary(base)


@given(base=BASES, factor=FACTORS, inner=st.sampled_from(["none", "linear", "ntk", "yarn"]))
def test_resonance_makes_whole_wavelengths_near_the_inner_ones(base: BaseRope, factor: float, inner: str) -> None:
    found = parse_method(f"resonance:{factor},of={inner}").rotary(base)
    before = parse_method(inner if inner != "none" else "none:1", factor).rotary(base)
    for new, old in zip(found.inv_freq_F, before.inv_freq_F, strict=True):
        wavelength = 2 * math.pi / new
        assert wavelength == pytest.approx(round(wavelength), rel=1e-9)
        assert abs(wavelength - 2 * math.pi / old) <= 0.5 + 1e-6 * wavelength
    assert found.attention_scale == before.attention_scale


@given(base=BASES, factor=FACTORS)
def test_cope_fades_the_slow_end_to_zero(base: BaseRope, factor: float) -> None:
    freqs, ntk = (parse_method(name, factor).rotary(base).inv_freq_F for name in ("cope", "ntk"))
    num = max(2, round(base.num_freqs * 20 / 64))
    assert freqs[-1] == 0
    assert freqs[: base.num_freqs - num + 1] == ntk[: base.num_freqs - num + 1]
    assert all(a > b for a, b in pairwise(freqs))


@given(base=BASES, share=st.floats(min_value=0.01, max_value=1))
def test_p_rope_keeps_a_share_and_stops_the_rest(base: BaseRope, share: float) -> None:
    freqs = parse_method(f"p_rope:8,share={share!r}").rotary(base).inv_freq_F
    kept = int(share * base.head_dim // 2)
    assert freqs == base.inv_freq_F[:kept] + (0.0,) * (base.num_freqs - kept)


@given(base=BASES, factor=FACTORS, length=st.integers(1, 10**6))
def test_dynamic_grows_with_the_length_and_reaches_its_ntk_at_the_end(
    base: BaseRope, factor: float, length: int
) -> None:
    method = Dynamic(factor=factor)
    assert method.length_dependent
    assert method.theta_at(base, min(length, base.window)) == base.theta
    assert method.theta_at(base, length + 1) >= method.theta_at(base, length)


@pytest.mark.parametrize("name", METHODS)
def test_factor_below_1_is_refused_by_every_method(name: str) -> None:
    with pytest.raises(MethodError, match=r"factor = '0.5'"):
        parse_method(f"{name}:0.5")


@settings(max_examples=30)
@given(base=BASES, factor=FACTORS, name=st.sampled_from(list(METHODS)))
def test_the_target_window_is_the_factor_times_the_pretrained_one(base: BaseRope, factor: float, name: str) -> None:
    more = {"abf": ",theta=1e6", "longrope": ",divisors=1/2"}.get(name, "")
    assert parse_method(f"{name}:{factor}{more}").target_window(base) == round(factor * base.window)


@pytest.mark.parametrize(
    ("theta", "head_dim", "window", "said"),
    [
        (1.0, 64, 64, "theta"),
        (math.inf, 64, 64, "theta"),
        (1e4, 7, 64, "even"),
        (1e4, 0, 64, "even"),
        (1e4, 8, 1, "window"),
    ],
)
def test_a_base_that_cannot_be_is_refused(theta: float, head_dim: int, window: int, said: str) -> None:
    with pytest.raises(MethodError, match=said):
        BaseRope(theta, head_dim, window)


def test_what_does_not_fit_the_model_is_refused_with_the_number_that_would() -> None:
    base = BaseRope(1e4, 8, 64)
    with pytest.raises(MethodError, match=r"divisors has 2 numbers, but the model rotates 4 pairs"):
        parse_method("longrope:8,divisors=1/2").rotary(base)
    with pytest.raises(MethodError, match=r"num = 9, but the model rotates only 4"):
        parse_method("cope:8,num=9").rotary(base)
    with pytest.raises(MethodError, match="one pair rotates alone"):
        parse_method("ntk:8").rotary(BaseRope(1e4, 2, 64))
    with pytest.raises(MethodError, match="no pair makes a full turn"):
        parse_method("ntk:8,form=critical").rotary(BaseRope(1e4, 8, 6))
