"""The made parts of docs/recipes.md: the table of fields, from the schema, and what a broken recipe prints.

Made anew by `python -m ropewalk.recipes.fields`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..recipe_file import PACKAGE_ROOT, load, schema

FIELDS = ("<!-- fields: begin (made by python -m ropewalk.recipes.fields) -->\n", "<!-- fields: end -->")
BROKEN = ("<!-- broken: begin -->\n```yaml\n", "```\n<!-- broken: end -->")
OUTPUT = ("<!-- output: begin -->\n```\n", "```\n<!-- output: end -->")
DOC = PACKAGE_ROOT / "docs" / "recipes.md"


def field_tables() -> str:
    """Markdown: one table a section, with every field's type, default and meaning."""
    root = schema()
    plain = [name for name, field in root["properties"].items() if not _sections(field, root)]
    run = {**root, "properties": {name: root["properties"][name] for name in plain}}
    parts = [_table("The run itself", "", run, root)]
    parts += [part for name in root["properties"] for part in _section_tables(name, root["properties"][name], root)]
    return "\n\n".join(parts)


def refreshed(text: str) -> str:
    """The document with its made parts made anew; ValueError when a marker is missing."""
    shown = f"error: {error_text(_between(text, BROKEN))}\n"
    return _replaced(_replaced(text, OUTPUT, shown), FIELDS, f"\n{field_tables()}\n\n")


def error_text(recipe: str) -> str:
    """What loading a broken recipe (with the document's override) says, its file called broken.yaml."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "broken.yaml"
        path.write_text(recipe, encoding="utf-8")
        try:
            load(path, ["seed=-1"])
        except ConfigError as error:
            return str(error).replace(str(path), path.name)
    raise ValueError("the broken recipe of docs/recipes.md is in order")


def _between(text: str, markers: tuple[str, str]) -> str:
    _, begun, rest = text.partition(markers[0])
    inside, ended, _ = rest.partition(markers[1])
    if not (begun and ended):
        raise ValueError(f"docs/recipes.md lacks the marks {markers}")
    return inside


def _replaced(text: str, markers: tuple[str, str], inside: str) -> str:
    old = markers[0] + _between(text, markers) + markers[1]
    return text.replace(old, markers[0] + inside + markers[1])


def _section_tables(path: str, field: dict[str, Any], root: dict[str, Any]) -> Iterator[str]:
    for section in _sections(field, root):
        kind = section["properties"].get("kind", {}).get("const")
        title = f"`{path}`" + (f" with `kind: {kind}`" if kind else "")
        yield _table(title, section.get("description", ""), section, root)
        for name, inner in section["properties"].items():
            step = ".N" if "items" in inner else ""
            yield from _section_tables(f"{path}.{name}{step}", inner, root)


def _sections(field: dict[str, Any], root: dict[str, Any]) -> list[dict[str, Any]]:
    """The section schemas a field can hold (more than one for a tagged union)."""
    members = field.get("oneOf") or field.get("anyOf") or [field.get("items", field)]
    names = [member["$ref"].rsplit("/", 1)[-1] for member in members if "$ref" in member]
    return [root["$defs"][name] for name in names]


def _table(title: str, about: str, section: dict[str, Any], root: dict[str, Any]) -> str:
    required = section.get("required", [])
    rows = [
        f"| `{name}` | {_type(field, root)} | {_default(name, field, required)} | {_meaning(field)} |"
        for name, field in section["properties"].items()
    ]
    head = [f"### {title}", "", *([" ".join(about.split()), ""] if about else [])]
    return "\n".join([*head, "| field | type | default | meaning |", "| --- | --- | --- | --- |", *rows])


def _default(name: str, field: dict[str, Any], required: list[str]) -> str:
    if name in required:
        return "required"
    value = field.get("default")
    if isinstance(value, dict):
        return "its defaults"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`".replace("'", "")


def _type(field: dict[str, Any], root: dict[str, Any]) -> str:
    """A few words for the type and its limits."""
    if _sections(field, root):
        return "list of sections" if "items" in field else "section"
    if "anyOf" in field:
        return " or ".join(_type(member, root) for member in field["anyOf"] if member.get("type") != "null")
    if "enum" in field or "const" in field:
        return ", ".join(f"`{choice}`" for choice in field.get("enum", [field.get("const")]))
    if field["type"] == "array":
        return f"list of: {_type(field['items'], root)}"
    word = {"integer": "whole number", "number": "number", "boolean": "true or false", "string": "text"}[field["type"]]
    limits = [
        f"{sign} {field[key]:g}"
        for key, sign in (("exclusiveMinimum", ">"), ("minimum", ">="), ("maximum", "<="))
        if key in field
    ]
    return " ".join([word, ", ".join(limits)]).strip()


def _meaning(field: dict[str, Any]) -> str:
    return " ".join(field.get("description", "").split()).replace("|", "\\|")


def main(doc: Path = DOC) -> None:
    """Rewrite the made parts of docs/recipes.md."""
    doc.write_text(refreshed(doc.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
