"""Dump -> JSON (which is YAML) -> load gives the same config; scalars are read as YAML 1.2 says; the schema holds."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from ropewalk.config import RunConfig
from ropewalk.recipe_file import PACKAGE_ROOT, dump, load, schema

RECIPES = sorted((PACKAGE_ROOT / "recipes").rglob("*.yaml"))


def reloaded(config: RunConfig) -> RunConfig:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.yaml"
        path.write_text(json.dumps(dump(config)), encoding="utf-8")  # JSON is YAML, and quotes all text
        return load(path)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipes_come_back(path: Path) -> None:
    config = load(path)
    assert reloaded(config) == config


@st.composite
def configs(draw: st.DrawFn) -> RunConfig:
    original = draw(st.integers(16, 4096))
    factor = draw(st.integers(1, 16))
    steps = draw(st.integers(1, 10_000))
    micro = draw(st.integers(8, 65_536))
    rows = draw(st.lists(st.integers(1, min(micro, original * factor)), min_size=1, max_size=3))
    text = st.text(min_size=1, max_size=12)
    return RunConfig.model_validate(
        {
            "name": draw(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)),
            "seed": draw(st.integers(0, 2**62)),
            "model": {"base": draw(text), "trust_remote_code": draw(st.booleans())},
            "rope": {
                "method": draw(st.sampled_from(["none", "linear", "yarn", f"linear:{factor}"])),
                "original_window": original,
                "target_window": original * factor,
            },
            "finetune": draw(st.sampled_from([{"kind": "full"}, {"kind": "lora", "rank": 3, "targets": ["a", "b"]}])),
            "data": {
                "sources": [{"kind": "text", "name": draw(text), "weight": draw(st.floats(1e-30, 1e30))}],
                "rows": [{"tokens": tokens} for tokens in rows],
                "held_out": draw(st.floats(0, 0.9)),
            },
            "train": {
                "steps": steps,
                "tokens_per_step": micro * draw(st.integers(1, 8)),
                "micro_batch_tokens": micro,
                "lr": draw(st.floats(1e-12, 10)),
                "warmup_steps": draw(st.integers(0, steps - 1)),
                "clip_norm": draw(st.none() | st.floats(1e-3, 10)),
            },
        }
    )


@settings(max_examples=60, deadline=None)
@given(configs())
def test_any_config_comes_back(config: RunConfig) -> None:
    assert reloaded(config) == config


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E5", 1e5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1_000", 1000),
        ("010", 10),
        ("-3", -3),
        ("1_0.5e0", 10.5),
    ],
)
def test_numbers(text: str, value: float) -> None:
    config = load("recipes/demo-yarn-8x.yaml", [f"seed={text}"] if isinstance(value, int) and value >= 0 else [])
    assert config.seed == (value if isinstance(value, int) and value >= 0 else 1)
    if value > 0 and isinstance(value, float):
        assert load("recipes/demo-yarn-8x.yaml", [f"train.lr={text}"]).train.lr == value


@pytest.mark.parametrize("word", ["yes", "no", "on", "12:30", "2026-01-01", "0x10", "1e", "_1", "'12'", '"true"'])
def test_words_stay_words(word: str) -> None:
    config = load("recipes/demo-yarn-8x.yaml", [f"log.project={word}"])
    assert config.log.project == word.strip("'\"")


def test_config_is_frozen() -> None:
    config = load("recipes/demo-yarn-8x.yaml")
    with pytest.raises(ValidationError):
        config.train.steps = 3  # type: ignore[misc]


def test_schema_is_json_and_describes_every_section() -> None:
    made = json.loads(json.dumps(schema()))
    assert made["additionalProperties"] is False
    assert set(made["properties"]) == set(RunConfig.model_fields)
    assert all(part.get("additionalProperties") is False for part in made["$defs"].values())
    assert "Optimizer steps." in json.dumps(made)
