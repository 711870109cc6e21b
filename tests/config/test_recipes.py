"""Every recipe that ships is in order, says what it is, and is told without torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from ropewalk.recipe_file import PACKAGE_ROOT, check_files, load, resolve_path
from ropewalk.recipes.fields import refreshed

RECIPES = sorted((PACKAGE_ROOT / "recipes").rglob("*.yaml"))


def test_all_named_recipes_are_here() -> None:
    assert {path.stem for path in RECIPES} >= {
        "tiny-base",
        "demo-linear-8x",
        "demo-yarn-8x",
        "demo-direct-8x",
        "demo-linear-8x-text",
        "smollm2-135m-linear-32k-cpu",
        "smollm2-135m-yarn-32k-cpu",
        "smollm2-135m-direct-32k-cpu",
        "llama2-7b-linear-32k",
        "llama2-7b-yarn-32k",
        "llama3.1-8b-yarn-512k",
        "mistral-7b-linear-64k-lora",
        "qwen3-8b-yarn-256k",
    }


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_recipe_is_in_order(path: Path) -> None:
    config = load(path)
    assert config.name == path.stem
    header = path.read_text(encoding="utf-8").splitlines()[:3]
    assert all(line.startswith("# ") for line in header)
    assert header[1].startswith("# Hardware: ")
    assert header[2].startswith("# Result: ")


def test_a_recipe_below_a_folder_is_found_too(tmp_path: Path) -> None:
    below = tmp_path / "mine" / "deep"
    below.mkdir(parents=True)
    (below / "broken.yaml").write_text("name: x\n", encoding="utf-8")
    (report,) = check_files([tmp_path])
    assert not report.ok
    assert "model: missing" in str(report)


def test_rivals_of_a_demo_differ_in_the_method_alone() -> None:
    linear, direct = (load(f"recipes/demo-{kind}-8x.yaml") for kind in ("linear", "direct"))
    same = {"name", "rope"}
    assert linear.model_dump(exclude=same) == direct.model_dump(exclude=same)
    assert linear.rope.target_window == direct.rope.target_window


def test_llama31_replaces_the_scaling_it_carries_in_so_many_words() -> None:
    rope = load("recipes/llama3.1-8b-yarn-512k.yaml").rope
    assert (rope.original_window, rope.replace_existing) == (8192, True)
    others = [load(path).rope for path in RECIPES if "llama3.1" not in path.stem]
    assert not any(other.replace_existing for other in others)


def test_check_prints_what_a_recipe_comes_to() -> None:
    (report,) = check_files(["recipes/tiny-base.yaml"])
    text = str(report)
    assert report.ok
    for words in ("tiny-base", "none", "256 -> 256", "micro batch", "12 rows of 160 tokens fill 1,920 of the 2,048"):
        assert words in text


def test_check_needs_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from pathlib import Path; from ropewalk.recipe_file import check_files\n"
        "reports = check_files([Path('recipes')]); assert len(reports) > 10 and all(r.ok for r in reports)\n"
        "heavy = {'torch', 'transformers', 'numpy', 'deepspeed'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_paths_are_found_here_first_and_then_in_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_path("recipes/tiny-base.yaml") == PACKAGE_ROOT / "recipes/tiny-base.yaml"
    assert resolve_path("recipes/*.yaml") == PACKAGE_ROOT / "recipes/*.yaml"
    assert str(resolve_path("meta-llama/Llama-2-7b-hf")) == "meta-llama/Llama-2-7b-hf"
    assert load("recipes/tiny-base.yaml").name == "tiny-base"
    mine = tmp_path / "recipes" / "tiny-base.yaml"
    mine.parent.mkdir()
    mine.write_text("", encoding="utf-8")
    assert resolve_path("recipes/tiny-base.yaml").absolute() == mine


def test_the_document_is_current() -> None:
    text = (PACKAGE_ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert text == refreshed(text), "run python -m ropewalk.recipes.fields"
    assert refreshed(text.replace("| `lr` |", "| `rate` |")) == text  # negative control: staleness is seen
    assert all(f"`{path.stem}`" in text for path in RECIPES)
