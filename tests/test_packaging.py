"""What pyproject ships is what the repository holds, and no root name hides another distribution."""

import ast
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
NOT_SHIPPED = {"tests", "bench", "docs"}


def tracked() -> list[Path]:
    """Files under version control (all files but ignored folders where there is no git)."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [Path(line) for line in done.stdout.splitlines()]


def packages_in(files: list[Path]) -> set[str]:
    """Every folder with an __init__.py, as an import name."""
    folders = [file.parent for file in files if file.name == "__init__.py" and file.parts[0] not in NOT_SHIPPED]
    return {".".join(["ropewalk", *folder.parts]) for folder in folders}


def unpackaged(files: list[Path]) -> list[Path]:
    """Python files that no package would ship."""
    listed = set(PYPROJECT["packages"])
    code = [file for file in files if file.suffix == ".py" and file.parts[0] not in NOT_SHIPPED]
    return [file for file in code if ".".join(["ropewalk", *file.parent.parts]) not in listed]


def test_packages_are_the_tracked_folders() -> None:
    assert set(PYPROJECT["packages"]) == packages_in(tracked())
    assert unpackaged(tracked()) == []


def test_a_forgotten_package_is_seen() -> None:
    extra = [*tracked(), Path("new/__init__.py"), Path("new/part.py")]
    assert set(PYPROJECT["packages"]) != packages_in(extra)
    assert unpackaged(extra) == [Path("new/__init__.py"), Path("new/part.py")]


def test_files_beside_code_are_shipped() -> None:
    """Each tracked file in a sub-package that is no code matches a package-data pattern."""
    patterns = PYPROJECT["package-data"]
    packages = {Path(*name.split(".")[1:]): name for name in PYPROJECT["packages"]}
    lost = []
    for file in tracked():
        package = next((folder for folder in file.parents if folder != Path() and folder in packages), None)
        if package is None or file.suffix == ".py" or file.parts[0] in NOT_SHIPPED:
            continue
        inside = file.relative_to(package)
        if not any(inside.match(pattern) for pattern in patterns.get(packages[package], [])):
            lost.append(file)
    assert lost == []
    assert "py.typed" in patterns["ropewalk"]


def root_names() -> set[str]:
    """What a script started at the root could import by a bare name."""
    files = tracked()
    return {file.stem for file in files if len(file.parts) == 1 and file.suffix == ".py"} | {
        file.parts[0] for file in files if len(file.parts) > 1 and not file.parts[0].startswith(".")
    }


def test_root_names_hide_nothing() -> None:
    names = root_names() - {"__init__"}
    assert not names & {"datasets", "evaluate", "accelerate", "peft", "tokenizers"}
    assert not names & sys.stdlib_module_names
    hidden = {name: by for name, by in packages_distributions().items() if name in names and set(by) != {"ropewalk"}}
    assert not set(hidden) - NOT_SHIPPED, f"root names hide installed distributions: {hidden}"


SUB_PACKAGES = sorted(name.removeprefix("ropewalk.") for name in PYPROJECT["packages"] if name != "ropewalk")


def first_import(source: str) -> ast.stmt | None:
    """The first statement of a module that is neither docstring nor standard library."""
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.ImportFrom) and statement.level:
            return statement
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            names = [statement.module or ""]
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        else:
            return statement
        if any(name.split(".")[0] not in sys.stdlib_module_names | {"pydantic"} for name in names):
            return statement
    return None


@pytest.mark.parametrize("name", SUB_PACKAGES)
def test_sub_packages_reach_for_their_parent_first(name: str) -> None:
    """So that nothing of ours is loaded a second time, under another name, before a bare import fails."""
    first = first_import((ROOT / name.replace(".", "/") / "__init__.py").read_text(encoding="utf-8"))
    assert isinstance(first, ast.ImportFrom)
    assert first.level == name.count(".") + 2


def test_bare_imports_fail() -> None:
    """From the root, where a script would find them first; under the package's name they all load."""
    code = f"""
import importlib
for name in {SUB_PACKAGES}:
    try:
        importlib.import_module(name)
    except ImportError as error:
        assert "beyond top-level package" in str(error), (name, error)
    else:
        raise AssertionError(f"a bare `import {{name}}` works")
for name in {SUB_PACKAGES}:
    importlib.import_module(f"ropewalk.{{name}}")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
