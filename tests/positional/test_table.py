"""`ropewalk methods`: the table, one method worked out, and the same as JSON."""

import json
import subprocess
import sys

import pytest
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from ropewalk.errors import MethodError
from ropewalk.positional import METHODS, BaseRope, parse_method
from ropewalk.positional.table import describe, describe_json, methods_table


def test_every_method_has_a_row_and_its_example_can_be_read() -> None:
    rows = methods_table()
    assert [row.method for row in rows] == list(METHODS)
    for row in rows:
        assert all(row.as_dict().values())
        for text in row.written.split(" | "):
            if "..." not in text and "@" not in text:
                assert parse_method(text).name == row.method


def test_the_row_names_the_stock_type_that_is_written() -> None:
    base = BaseRope(1e4, 8, 64)
    for row in methods_table():
        text = "longrope:8,divisors=1/2/3/4" if row.method == "longrope" else row.written.split(" | ")[0]
        text = text.replace("num=20", "num=2")
        assert parse_method(text).rope_parameters(base)["rope_type"] == row.carrier.split(",")[0].split(";")[0]


def test_the_printed_table_fits_a_terminal() -> None:
    lines = describe(None).splitlines()
    assert all(len(line) <= 120 for line in lines)
    assert {line.split()[0] for line in lines if line and line[0] != " "} >= set(METHODS)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    code = "from ropewalk.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, "methods", *words], capture_output=True, text=True, timeout=60)


def test_one_method_as_json_on_the_command_line() -> None:
    done = run("yarn:8", "--theta", "10000", "--head-dim", "128", "--window", "4096", "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert set(record) == {"inv_freq", "attention_scale", "rope_parameters"}
    assert record["inv_freq"] == list(parse_method("yarn:8").rotary(BaseRope(1e4, 128, 4096)).inv_freq_F)
    assert record["attention_scale"] == pytest.approx(1.2079441541679836)
    config = LlamaConfig(
        hidden_size=128, num_attention_heads=1, max_position_embeddings=32768, rope_parameters=record["rope_parameters"]
    )
    stock_F, scale = ROPE_INIT_FUNCTIONS["yarn"](config, None)
    assert stock_F.tolist() == pytest.approx(record["inv_freq"], rel=1e-5)
    assert scale == pytest.approx(record["attention_scale"])


def test_the_table_as_json_and_a_slip_on_the_command_line() -> None:
    assert [row["method"] for row in json.loads(run("--json").stdout)] == list(METHODS)
    for words, said in [
        (("yran:8",), "did you mean 'yarn'"),
        (("yarn:8", "--head-dim", "7"), "even"),
        (("yarn",), "factor"),
    ]:
        done = run(*words)
        assert done.returncode == 2
        assert said in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("text", ["yarn:8", "cope:8", "p_rope:8", "none:8", "linear:8,factor=9"])
def test_one_method_in_words(text: str) -> None:
    if "factor=9" in text:
        with pytest.raises(MethodError, match="factor is given twice"):
            describe_json(text, 1e4, 64, 256)
        return
    shown = describe(describe_json(text, 1e4, 64, 256))
    assert "rope_theta" in shown
    assert ("does not turn" in shown) == (text in ("cope:8", "p_rope:8"))
