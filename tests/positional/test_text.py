"""`name:factor[,key=value...]`: reading, writing, and what is said of a slip."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from ropewalk.errors import MethodError
from ropewalk.positional import METHODS, BaseRope, Method, format_method, parse_method
from ropewalk.positional.abf import Abf
from ropewalk.positional.by_parts import ByParts
from ropewalk.positional.cope import Cope
from ropewalk.positional.dynamic import Dynamic
from ropewalk.positional.linear import Linear
from ropewalk.positional.llama3 import Llama3
from ropewalk.positional.longrope import LongRope
from ropewalk.positional.none import NoChange
from ropewalk.positional.ntk import Ntk
from ropewalk.positional.p_rope import PRope
from ropewalk.positional.resonance import Resonance
from ropewalk.positional.yarn import Yarn

FACTOR = st.floats(1, 1e6)
TURNS = st.floats(33, 1e3)
SCALE = st.none() | st.floats(0.1, 10)
RECORDS = st.one_of(
    st.builds(NoChange, factor=FACTOR),
    st.builds(Linear, factor=FACTOR),
    st.builds(Ntk, factor=FACTOR, form=st.sampled_from(["factor", "critical"])),
    st.builds(Ntk, factor=FACTOR, form=st.just("alpha"), alpha=st.floats(1, 1e3)),
    st.builds(Abf, factor=FACTOR, theta=st.floats(2, 1e20)),
    st.builds(
        Yarn,
        factor=FACTOR,
        beta_fast=TURNS,
        beta_slow=st.floats(0.1, 32),
        ramp=st.sampled_from(["index", "turns", "harmonic"]),
        truncate=st.booleans(),
        attention_factor=SCALE,
    ),
    st.builds(Llama3, factor=FACTOR, low=st.floats(0.1, 32), high=TURNS),
    st.builds(ByParts, factor=FACTOR, alpha=st.floats(0.1, 32), beta=TURNS),
    st.builds(
        LongRope,
        factor=FACTOR,
        divisors=st.lists(st.floats(0.1, 1e30), min_size=1, max_size=4).map(tuple),
        attention_factor=SCALE,
    ),
    st.builds(Resonance, factor=FACTOR, of=st.sampled_from(["none", "linear", "ntk", "yarn"])),
    st.builds(Cope, factor=FACTOR, theta=st.none() | st.floats(2, 1e9), num=st.none() | st.integers(2, 64)),
    st.builds(PRope, factor=FACTOR, share=st.floats(0.01, 1)),
    st.builds(Dynamic, factor=FACTOR),
)


@given(record=RECORDS)
def test_what_is_written_reads_back_as_the_same_record(record: Method) -> None:
    text = format_method(record)
    assert parse_method(text) == record
    assert format_method(parse_method(text)) == text


def test_every_method_is_tried_above() -> None:
    kinds = {Abf, ByParts, Cope, Dynamic, Linear, Llama3, LongRope, NoChange, Ntk, PRope, Resonance, Yarn}
    assert kinds == set(METHODS.values())


def test_defaults_are_left_out_and_whole_numbers_stay_whole() -> None:
    assert format_method(parse_method("yarn:8.0,beta_fast=16,beta_slow=1,ramp=index")) == "yarn:8,beta_fast=16"
    assert format_method(parse_method("none")) == "none"
    assert format_method(parse_method("none:8")) == "none:8"


def test_a_factor_left_out_comes_from_the_recipe() -> None:
    assert parse_method("yarn", 16) == parse_method("yarn:16")
    assert parse_method("yarn:ramp=turns", 16) == parse_method("yarn:16,ramp=turns")
    assert parse_method("yarn:4", 16).factor == 4


def test_a_list_of_divisors_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(json.dumps([1, 1.5, 8]))
    assert parse_method(f"longrope:8,divisors=@{tmp_path}/list.json") == parse_method("longrope:8,divisors=1/1.5/8")
    with pytest.raises(MethodError, match=r"cannot read divisors from .*none\.json"):
        parse_method(f"longrope:8,divisors=@{tmp_path}/none.json")
    (tmp_path / "bad.json").write_text('{"a": 1}')
    with pytest.raises(MethodError, match="divisors"):
        parse_method(f"longrope:8,divisors=@{tmp_path}/bad.json")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("yran:8", "did you mean 'yarn'"),
        ("", "unknown name"),
        ("yarn", "give the factor"),
        ("yarn:eight", "factor = 'eight'"),
        ("yarn:nan", "factor = 'nan'"),
        ("yarn:inf", "factor = 'inf'"),
        ("yarn:8,beta_fats=16", "did you mean 'beta_fast'"),
        ("yarn:8,16", "'16' has no value"),
        ("yarn:8,factor=4", "factor is given twice"),
        ("yarn:8,ramp=a,ramp=b", "ramp is given twice"),
        ("yarn:8,ramp=dims", "'index', 'turns' or 'harmonic'"),
        ("yarn:8,beta_fast=1", "beta_fast = 1 must be above beta_slow = 1"),
        ("yarn:8,name=linear", "no 'name'"),
        ("llama3:8,low=4,high=4", "high = 4 must be above low = 4"),
        ("by_parts:8,alpha=40", "beta = 32 must be above alpha = 40"),
        ("ntk:8,alpha=2", "form=alpha"),
        ("ntk:8,form=alpha", "form=alpha needs it"),
        ("abf:8", "theta"),
        ("abf:8,theta=inf", "finite"),
        ("longrope:8", "divisors"),
        ("longrope:8,divisors=1/0", "divisors.1"),
        ("longrope:8,divisors=1/x", "divisors.1"),
        ("p_rope:8,share=0", "share"),
        ("resonance:8,of=resonance", "of"),
    ],
)
def test_a_slip_is_named(text: str, said: str) -> None:
    with pytest.raises(MethodError) as fault:
        parse_method(text)
    assert said in str(fault.value)
    assert repr(text) in str(fault.value)
    assert fault.value.exit_code == 2


def test_records_are_frozen_and_strict() -> None:
    method = parse_method("yarn:8")
    with pytest.raises(ValueError, match="frozen"):
        method.factor = 4  # type: ignore[misc]
    with pytest.raises(ValueError, match="extra"):
        TypeAdapter(Method).validate_python({"name": "linear", "factor": 2, "faktor": 3})


def test_a_method_is_a_pure_function_of_the_base() -> None:
    base, method = BaseRope(1e4, 8, 64), parse_method("yarn:8")
    assert method.rotary(base) == method.rotary(BaseRope(1e4, 8, 64))
    first = method.rope_parameters(base)
    first["factor"] = 99
    assert method.rope_parameters(base)["factor"] == 8
