"""RoPE methods: one frozen record and one pure function each, no torch. `Method`, a tagged union, is the registry."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import Field, TypeAdapter, ValidationError

from ..errors import MethodError
from .abf import Abf
from .base import BaseRope, Record, Rotary
from .by_parts import ByParts
from .cope import Cope
from .dynamic import Dynamic
from .linear import Linear
from .llama3 import Llama3
from .longrope import LongRope
from .none import NoChange
from .ntk import Ntk
from .p_rope import PRope
from .resonance import Resonance
from .yarn import Yarn

Method = Annotated[
    NoChange | Linear | Ntk | Abf | Yarn | Llama3 | ByParts | LongRope | Resonance | Cope | PRope | Dynamic,
    Field(discriminator="name"),
]

METHODS: dict[str, type[Record]] = {kind.model_fields["name"].default: kind for kind in get_args(get_args(Method)[0])}
"""Name -> record, in the order of the union."""

__all__ = ["BaseRope", "METHODS", "Method", "MethodError", "Record", "Rotary", "format_method", "parse_method"]


def parse_method(text: str, default_factor: float | None = None) -> Method:
    """Read `name[:factor][,key=value...]`, the way methods are written everywhere, e.g. `yarn:8,beta_fast=16`.

    `default_factor` fills in a factor left out (`none` needs none). Raises MethodError that names what is wrong and
    what is known.
    """
    name, _, rest = text.strip().partition(":")
    name = name.strip()
    if name not in METHODS:
        raise MethodError(
            f"method {text!r}: unknown name {name!r}{_nearest(name, METHODS)}. Known: {', '.join(METHODS)}"
        )
    kind = METHODS[name]
    values: dict[str, Any] = {"name": name}
    for number, word in enumerate(filter(None, rest.split(","))):
        key, given, value = word.partition("=")
        if not given and number == 0:
            key, value = "factor", word
        elif not given:
            raise MethodError(f"method {text!r}: {word!r} has no value; write key=value")
        key = key.strip()
        if key not in kind.model_fields or key == "name":
            known = [field for field in kind.model_fields if field != "name"]
            raise MethodError(
                f"method {text!r}: {name} has no {key!r}{_nearest(key, known)}. It takes {', '.join(known)}"
            )
        if key in values:
            raise MethodError(f"method {text!r}: {key} is given twice")
        values[key] = _value(text, key, value.strip())
    if "factor" not in values and name != "none":
        if default_factor is None:
            raise MethodError(f"method {text!r}: give the factor, target window / pretrained window, as in {name}:8")
        values["factor"] = default_factor
    try:
        return TypeAdapter(Method).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        found = "" if first["type"] in ("missing", "value_error") else f" = {first['input']!r}"
        message = first["msg"].removeprefix("Value error, ")
        raise MethodError(f"method {text!r}: {f'{where}{found}: ' if where else ''}{message}") from error


def format_method(method: Method) -> str:
    """The text that `parse_method` reads back as the same record; defaults are left out."""
    words = [] if method.name == "none" and method.factor == 1 else [_number(method.factor)]
    for key, field in type(method).model_fields.items():
        value = getattr(method, key)
        if key in ("name", "factor") or value == field.default:
            continue
        words.append(f"{key}={'/'.join(map(_number, value)) if isinstance(value, tuple) else _number(value)}")
    return ":".join(filter(None, [method.name, ",".join(words)]))


def _number(value: object) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


def _value(text: str, key: str, value: str) -> object:
    if key != "divisors":
        return value
    if value.startswith("@"):
        try:
            return json.loads(Path(value[1:]).read_text())
        except (OSError, ValueError) as error:
            raise MethodError(f"method {text!r}: cannot read divisors from {value[1:]}: {error}") from error
    return value.split("/")


def _nearest(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
