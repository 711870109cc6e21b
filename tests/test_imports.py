"""The dependency direction, read from the imports: who may import whom, and which modules never bring in torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {"tests", "bench", "build", "docs", "runs", "out"}
HEAVY = {"torch", "transformers", "deepspeed", "peft", "datasets", "accelerate"}

LAYERS: dict[str, set[str]] = {
    "errors": set(),
    "positional": {"errors"},
    "positional.hf": {"errors", "positional"},
    "config_checks": {"errors", "positional", "config"},  # config for its types only
    "config_data": set(),
    "config": {"errors", "positional", "config_checks", "config_data"},
    "recipe_yaml": {"errors", "config_checks"},
    "recipe_errors": {"config", "config_checks"},
    "recipe_file": {"errors", "positional", "config", "config_checks", "recipe_yaml", "recipe_errors"},
    "recipes": {"errors", "recipe_file"},
    "assets": {"errors"},
}
"""What each of the lowest modules may import of ours; a name stands for a module or a whole package."""

BELOW = {"errors", "positional", "positional.hf", "config", "recipe_file"}
BATCH = {"data.batch"}
"""The record that crosses from data to engine: siblings share it and nothing else."""

LAYERS |= {
    "data.batch": {"errors"},
    "hub": set(),
    "data": BELOW | BATCH | {"hub"},
    "smollm2": {"errors", "data", "data.batch"},
    "loss": {"errors"},
    "loading": BELOW | {"hub"},
    "model": BELOW | {"loading"},
    "engine": BELOW | BATCH | {"loss"},
    "run_folder": {"errors", "config", "recipe_file"},
    "checkpoint": BELOW | {"engine"},
    "export": BELOW | {"checkpoint", "engine", "model"},
    "metrics": BELOW | {"engine"},
    "launch": {"errors"},
    "eval.score": {"errors"},
    "eval": BELOW | BATCH | {"data", "loading", "model", "loss", "run_folder", "eval.score"},
    "report": {"errors", "positional", "config", "recipe_file", "eval.score"},
    "train": BELOW
    | BATCH
    | {"data", "loading", "model", "loss", "engine", "run_folder", "checkpoint", "export", "metrics", "launch"},
    "demo": BELOW | {"eval.score", "report", "run_folder", "smollm2", "export"},
}
ENTRY = {"cli"}
"""The command line imports everything, inside functions; only scripts that are entries themselves may reach back."""

TORCH_FREE = [
    "errors",
    "config",
    "config_checks",
    "config_data",
    "recipe_yaml",
    "recipe_errors",
    "recipe_file",
    "eval.score",
    "cli",
]


def modules() -> dict[str, Path]:
    """Dotted name inside the package -> file, for every module of ours."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if any(part.startswith(".") for part in parts) or parts[0] in OUTSIDE:
            continue
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imported(name: str, *, when_loaded: bool = False, source: str | None = None) -> Iterator[str]:
    """Absolute dotted names that a module imports; ours without the leading `ropewalk`, as `.name`.

    `when_loaded` leaves out what stands inside functions or under TYPE_CHECKING.
    """
    path = MODULES[name]
    tree = ast.parse(path.read_text(encoding="utf-8") if source is None else source)
    package = name.split(".") if path.name == "__init__.py" and name else name.split(".")[:-1]
    for node in _statements(tree, when_loaded):
        if isinstance(node, ast.Import):
            yield from (_ours(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = package[: len(package) - node.level + 1]
                start = "." + ".".join([*base, *([node.module] if node.module else [])])
            else:
                start = _ours(node.module or "")
            for alias in node.names:  # `from .x import y`: y may itself be a module
                deeper = f"{start}{'' if start == '.' else '.'}{alias.name}"
                yield deeper if deeper.startswith(".") and deeper[1:] in MODULES else start


def _ours(name: str) -> str:
    return "." + name.removeprefix("ropewalk").lstrip(".") if name.split(".")[0] == "ropewalk" else name


def _statements(node: ast.AST, when_loaded: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if when_loaded and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if when_loaded and isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _statements(child, when_loaded)


def layer_of(name: str) -> str:
    """The longest entry of LAYERS that the module lies in."""
    while name not in LAYERS and "." in name:
        name = name.rpartition(".")[0]
    return name


def broken_edges(name: str, source: str | None = None) -> list[str]:
    """Imports of a module that its layer does not allow."""
    layer = layer_of(name)
    targets = {t[1:] for t in imported(name, source=source) if t.startswith(".") and t != "."}
    return sorted(
        f"{name} imports {target}"
        for target in targets
        if layer_of(target) not in LAYERS[layer] | {layer} and not (name in ("train", "demo") and target in ENTRY)
    )


def loaded_with(name: str) -> set[str]:
    """Top-level names of other distributions that importing the module brings in, through ours."""
    seen: set[str] = set()
    heavy: set[str] = set()
    todo = [name]
    while todo:
        module = todo.pop()
        parents = [module.rsplit(".", depth)[0] for depth in range(1, module.count(".") + 1)]
        for part in [module, *parents]:
            if part in seen or part not in MODULES:
                continue
            seen.add(part)
            for target in imported(part, when_loaded=True):
                if target.startswith("."):
                    todo.append(target[1:])
                else:
                    heavy.add(target.split(".")[0])
    return heavy


ORDERED = [name for name in MODULES if name not in ENTRY and name]


def test_every_module_has_a_layer() -> None:
    assert [name for name in ORDERED if layer_of(name) not in LAYERS] == []


@pytest.mark.parametrize("name", ORDERED)
def test_imports_point_downwards(name: str) -> None:
    assert broken_edges(name) == []


def test_an_upward_import_is_seen() -> None:
    assert broken_edges("config", "from .data import prepare") == ["config imports data"]
    assert broken_edges("config", "def f():\n    from ropewalk.train import main") == ["config imports train"]
    assert broken_edges("data", "from .. import model") == ["data imports model"]
    assert broken_edges("data", "from ..model import x") == ["data imports model"]


def test_the_command_line_imports_ours_inside_functions_only() -> None:
    assert {target for target in imported("cli", when_loaded=True) if target.startswith(".")} <= {".errors", "."}


def _light() -> list[str]:
    packages = [
        name
        for name in MODULES
        if name.split(".")[0] in ("positional", "report", "recipes") and name != "positional.hf"
    ]
    return ["", *TORCH_FREE, *packages]


@pytest.mark.parametrize("name", _light())
def test_light_modules_bring_in_nothing_heavy(name: str) -> None:
    assert loaded_with(name) & HEAVY == set()


@pytest.mark.parametrize("name", [name for name in _light() if name and name != "cli"])
def test_light_modules_import_nothing_heavy_later_either(name: str) -> None:
    assert {target.split(".")[0] for target in imported(name) if not target.startswith(".")} & HEAVY == set()


def test_a_heavy_import_is_seen() -> None:
    assert "torch" in loaded_with("engine")
    assert "torch" in loaded_with("train")


def test_loading_the_light_modules_for_real() -> None:
    names = [f"ropewalk.{name}".rstrip(".") for name in _light()]
    code = (
        f"import sys, importlib\nfor name in {names!r}: importlib.import_module(name)\n"
        f"heavy = set({sorted(HEAVY)!r}) & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, cwd=ROOT.parent)


def test_sub_packages_refuse_a_bare_import() -> None:
    for name in ("positional", "data", "eval", "report"):
        done = subprocess.run(
            [sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode != 0, f"`import {name}` at the root makes a second copy of its classes"
        assert "relative import" in done.stderr
