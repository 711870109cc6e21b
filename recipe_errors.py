"""From what pydantic raises to problems a user can act on: field, value found, what to write instead."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, to_json

from .config import RunConfig
from .config_checks import ABSENT, CrossFieldError, Problem, cross_field_problems

KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "tuple": "a list",
    "list": "a list",
    "model": "a mapping of its own fields",
}
"""What a type error asks for, by the first word of pydantic's error type."""

OTHER_NAMES = {
    "learning_rate": "train.lr",
    "max_steps": "train.steps",
    "num_train_steps": "train.steps",
    "batch_size": "train.micro_batch_tokens",
    "gradient_accumulation_steps": "train.tokens_per_step (accumulation follows from it)",
    "max_grad_norm": "train.clip_norm",
    "max_length": "rope.target_window",
    "max_position_embeddings": "rope.target_window",
    "rope_scaling": "rope.method",
    "factor": "rope.method, as in `yarn:8`",
    "stage": "parallel.zero_stage",
}
"""What other tools call our fields."""


def parse(values: Mapping[str, object]) -> RunConfig | list[Problem]:
    """The config of a plain tree, read strictly (no "5" for 5, no 1 for true), or everything wrong with it."""
    try:
        return RunConfig.model_validate_json(to_json(values), strict=True)
    except ValidationError as error:
        problems = [problem for detail in error.errors() for problem in _problems(detail, values)]
    unknown = [problem.path for problem in problems if problem.message.startswith("unknown key")]
    between = cross_field_problems(_sound_sections(_without(values, unknown)))
    return problems + [problem for problem in between if problem not in problems]


def _sound_sections(values: Mapping[str, object]) -> dict[str, object]:
    """The sections that are in order by themselves, defaults included."""
    sound: dict[str, object] = {}
    for name, info in RunConfig.model_fields.items():
        if name not in values:
            if not info.is_required():
                sound[name] = info.get_default(call_default_factory=True)
            continue
        try:
            sound[name] = _adapter(name).validate_json(to_json(values[name]), strict=True)
        except ValidationError:
            continue
    return sound


@cache
def _adapter(name: str) -> TypeAdapter[Any]:
    info = RunConfig.model_fields[name]
    return TypeAdapter(Annotated[info.annotation, info])  # type: ignore[valid-type]


def _without(node: Any, paths: list[tuple[str | int, ...]], here: tuple[str | int, ...] = ()) -> Any:
    if isinstance(node, Mapping):
        return {k: _without(v, paths, (*here, k)) for k, v in node.items() if (*here, k) not in paths}
    if isinstance(node, list):
        return [_without(child, paths, (*here, index)) for index, child in enumerate(node)]
    return node


def _problems(detail: ErrorDetails, values: Mapping[str, object]) -> Iterator[Problem]:
    """The problems behind one pydantic error; a cross-field error holds several."""
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, CrossFieldError):
        yield from cause.problems
        return
    path, found = _locate(detail["loc"], values)
    kind = detail["type"]
    if kind == "too_short" and found:
        return  # its entries are faulty, and are told each by itself
    if kind == "extra_forbidden":
        yield Problem(path, ABSENT, f"unknown key{_nearest(path, values)}")
    elif kind == "missing":
        field = field_schema(path, values)
        says = f": {field['description']}" if "description" in field else ""
        yield Problem(path, ABSENT, f"missing; set it{says}")
    elif kind == "value_error":
        yield Problem(path, ABSENT if isinstance(found, Mapping | list) else found, str(cause))
    else:
        yield Problem(path, found, _remedy(detail, path, values))


def _locate(loc: tuple[str | int, ...], values: Mapping[str, object]) -> tuple[tuple[str | int, ...], object]:
    """The path in the recipe of a pydantic location (without the tags of unions), and the value there."""
    path: list[str | int] = []
    node: Any = values
    for index, word in enumerate(loc):
        if isinstance(node, Mapping):
            if word not in node and (word == node.get("kind") or index < len(loc) - 1):
                continue
            node = node.get(word, ABSENT)
        elif isinstance(node, list) and isinstance(word, int):
            node = node[word] if word < len(node) else ABSENT
        else:
            continue
        path.append(word)
    return tuple(path), node


def _remedy(detail: ErrorDetails, path: tuple[str | int, ...], values: Mapping[str, object]) -> str:
    """What to write instead, from the error's type and the limits it names."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        return f"needs `kind`, one of {context.get('expected_tags', 'full, lora')}".replace("'", "")
    if kind == "literal_error":
        choices = context["expected"]
        words = [word.strip(" '") for word in choices.replace(" or ", ",").split(",")]
        return f"must be {choices}{_did_you_mean(str(detail['input']), words)}"
    if kind == "string_pattern_mismatch":
        return "may hold letters, digits, dot, dash and underscore, and starts with a letter or digit"
    if kind == "too_short":
        return "is empty; give at least one entry"
    if kind == "finite_number":
        return "must be finite"
    first = kind.split("_")[0]
    if kind.endswith(("_type", "_parsing", "_from_float")) and first in KINDS:
        return f"must be {KINDS[first]}{_limits(field_schema(path, values))}"
    return detail["msg"].replace("Input should be", "must be").replace("Input", "it")


def _limits(field: Mapping[str, Any]) -> str:
    words = (
        ("exclusiveMinimum", "above"),
        ("minimum", "at least"),
        ("maximum", "at most"),
    )
    said = [f"{word} {field[key]:g}" for key, word in words if key in field]
    return f", {' and '.join(said)}" if said else ""


def _nearest(path: tuple[str | int, ...], values: Mapping[str, object]) -> str:
    """How an unknown key is probably meant: a near name in its section, else the section that has this very key."""
    parent = field_schema(path[:-1], values)
    here = list(parent.get("properties", {}))
    if path[-1] in OTHER_NAMES:
        return f"; here it is {OTHER_NAMES[str(path[-1])]}"
    if near := _did_you_mean(str(path[-1]), here):
        return near
    homes = [f"{section}.{path[-1]}" for section, names in _fields_by_section().items() if path[-1] in names]
    if homes:
        return f"; it belongs to {' or '.join(homes)}"
    return f"; this section knows {', '.join(here)}"


def _did_you_mean(word: str, choices: list[str]) -> str:
    near = difflib.get_close_matches(word, choices, n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


@cache
def recipe_schema() -> dict[str, Any]:
    """The JSON schema of RunConfig."""
    return RunConfig.model_json_schema()


def _fields_by_section() -> dict[str, list[str]]:
    root = recipe_schema()["properties"]
    return {name: list(_resolve(field, {}).get("properties", {})) for name, field in root.items()}


def field_schema(path: tuple[str | int, ...], values: object) -> dict[str, Any]:
    """The JSON schema of the field at `path`; `values` (the recipe) decides which member of a union is meant."""
    field: dict[str, Any] = recipe_schema()
    node = values
    for word in path:
        if isinstance(word, int):
            field = _resolve(field.get("items", {}), {})
            node = node[word] if isinstance(node, list) and word < len(node) else None
        else:
            node = node.get(word) if isinstance(node, Mapping) else None
            field = _resolve(field.get("properties", {}).get(word, {}), node)
    return field


def _resolve(field: dict[str, Any], node: object) -> dict[str, Any]:
    """Follow references and optional or tagged unions to the schema that holds for `node`."""
    outer = {key: field[key] for key in ("description",) if key in field}
    if "oneOf" in field:
        tag = node.get("kind", "full") if isinstance(node, Mapping) else "full"
        mapping = field["discriminator"]["mapping"]
        field = {"$ref": mapping.get(tag, next(iter(mapping.values())))}
    elif "anyOf" in field:
        field = next((member for member in field["anyOf"] if member.get("type") != "null"), {})
    if "$ref" in field:
        field = recipe_schema()["$defs"][field["$ref"].rsplit("/", 1)[-1]]
    return {**field, **outer}
