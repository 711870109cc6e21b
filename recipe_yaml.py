"""Strict YAML for recipes: a plain tree plus the place of every value, and `section.key=value` overrides over it.

Scalars follow the YAML 1.2 core rules, not PyYAML's 1.1 ones: 1e-4 is a number, `yes` and `12:30` are text. Digits may
be grouped (2_097_152). A duplicate key, a tag, a merge key or a second document is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from .config_checks import ABSENT, Problem
from .errors import ConfigError

KeyPath = tuple[str | int, ...]
INT = re.compile(r"[-+]?[0-9]+(_[0-9]+)*")
FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
WORDS = {"": None, "~": None, "null": None, "Null": None, "NULL": None} | {
    word: value for value in (True, False) for word in (str(value), str(value).lower(), str(value).upper())
}


@dataclass(frozen=True)
class Tree:
    """A recipe as read: `values` (dicts, lists, scalars), `places` by path, and what is wrong with the writing."""

    values: dict[str, object]
    places: dict[KeyPath, str]
    problems: tuple[Problem, ...] = ()

    def place(self, path: KeyPath) -> str:
        """Where the value at `path` was written; for an absent one, its nearest ancestor."""
        while path not in self.places:
            path = path[:-1]
        return self.places[path]


class _Source:
    """Builds the tree of one document; `place` turns a line number into a place."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.places: dict[KeyPath, str] = {}
        self.problems: list[Problem] = []

    def build(self, node: yaml.Node, path: KeyPath, open_nodes: tuple[int, ...] = ()) -> object:
        self.places[path] = self.at(node)
        if id(node) in open_nodes:
            raise ConfigError(f"{self.at(node)}: an anchor contains itself; write the values out")
        inside = (*open_nodes, id(node))
        if isinstance(node, yaml.MappingNode):
            return dict(self._entries(node, path, inside))
        if isinstance(node, yaml.SequenceNode):
            return [self.build(child, (*path, index), inside) for index, child in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        value = _scalar(node)
        return self.whole(value, node) if isinstance(value, str) else value

    def whole(self, text: str, node: yaml.Node) -> str:
        """Join the surrogate pairs that JSON escapes (PyYAML leaves them apart); a lone half is an error."""
        try:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            raise ConfigError(f"{self.at(node)}: an escape stands for half a character; write the character") from None

    def at(self, node: yaml.Node) -> str:
        return f"{self.name}:{node.start_mark.line + 1}"

    def _entries(self, node: yaml.MappingNode, path: KeyPath, inside: tuple[int, ...]) -> Iterator[tuple[str, object]]:
        first: dict[str, str] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            if not isinstance(key, str):
                raise ConfigError(f"{self.at(key_node)}: a key must be a word, found a list or mapping")
            key = self.whole(key, key_node)
            if key in first:
                again = f"written again at {self.at(key_node)}; keep one of the two"
                self.problems.append(Problem((*path, key), ABSENT, again))
                continue
            first[key] = self.at(key_node)
            yield key, self.build(value_node, (*path, key), inside)
            self.places[(*path, key)] = self.at(key_node)


def _scalar(node: yaml.ScalarNode) -> object:
    text = node.value
    if node.style is not None:  # quoted
        return text
    if text in WORDS:
        return WORDS[text]
    if INT.fullmatch(text):
        return int(text.replace("_", ""))
    if FLOAT.fullmatch(text):
        return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def _compose(text: str | bytes, name: str) -> yaml.Node | None:
    """The node tree of one YAML document. ConfigError with the line where it is not YAML."""
    try:
        loader = _PlainLoader(text)
        try:
            return loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{name}{line}: not valid YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: not readable as text: {str(error).splitlines()[0]}. Save it as UTF-8.") from error


class _PlainLoader(yaml.SafeLoader):
    """Composes nodes without resolving scalars (that is `_scalar`'s), and refuses explicit tags."""

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node | None:
        tag = getattr(self.peek_event(), "tag", None)
        if tag is not None:
            raise yaml.MarkedYAMLError(
                problem=f"the tag {tag} is not read in recipes; write a plain value",
                problem_mark=self.peek_event().start_mark,
            )
        return super().compose_node(parent, index)  # type: ignore[arg-type]


def read_tree(path: Path, name: str, overrides: Sequence[str]) -> Tree:
    """The tree of a recipe file with overrides laid over it; ConfigError when it cannot be read at all."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"recipe {name} does not exist; give a YAML file, for example one of recipes/") from None
    except IsADirectoryError:
        raise ConfigError(f"recipe {name} is a folder; give a YAML file in it") from None
    except OSError as error:
        raise ConfigError(f"recipe {name} cannot be read: {error.strerror}") from error
    source = _Source(name)
    node = _compose(text, name)
    if not isinstance(node, yaml.MappingNode):
        found = "is empty" if node is None else "is no mapping"
        raise ConfigError(f"{name}:1: the recipe {found}; it must hold `name:`, `model:`, `rope:`, `data:`, `train:`")
    values = source.build(node, ())
    assert isinstance(values, dict)
    tree = Tree(values, source.places, tuple(source.problems))
    for override in overrides:
        tree = apply_override(tree, override)
    return tree


def apply_override(tree: Tree, override: str) -> Tree:
    """A new tree with `section.key=value` (value read as YAML) laid over; ConfigError when it cannot be placed."""
    field, equals, text = override.partition("=")
    name = f"override {override!r}"
    words = field.strip().split(".")
    if not equals or not all(words):
        raise ConfigError(f"{name}: write section.key=value, for example train.lr=1e-4")
    node = _compose(text, name)
    source = _Source(name)
    value = None if node is None else source.build(node, ())
    path: list[str | int] = []
    values = _replaced(tree.values, words, value, path, name)
    assert isinstance(values, dict)
    key = tuple(path)
    kept = {place: where for place, where in tree.places.items() if place[: len(key)] != key}
    new = {(*key, *place): name for place in source.places} | {key: name}
    for depth in range(1, len(key)):  # parents that the override itself brings in
        new |= {} if key[:depth] in kept else {key[:depth]: name}
    return Tree(values, kept | new, (*tree.problems, *source.problems))


def _replaced(node: object, words: Sequence[str], value: object, path: list[str | int], name: str) -> object:
    """`node` with `value` at `words`, copied on the way; `path` collects the keys and list indices."""
    if not words:
        return value
    word, rest = words[0], words[1:]
    here = ".".join(map(str, path))
    if isinstance(node, list):
        if not word.isdecimal() or int(word) >= len(node):
            entries = f"{len(node)} entries, 0 to {len(node) - 1}" if node else "no entries"
            raise ConfigError(f"{name}: {here} is a list with {entries}; found {word!r}")
        path.append(int(word))
        child = _replaced(node[int(word)], rest, value, path, name)
        return [child if index == int(word) else old for index, old in enumerate(node)]
    if node is not None and not isinstance(node, dict):
        raise ConfigError(f"{name}: {here} holds {node!r}, which has no key {word!r}; set {here}=... itself")
    path.append(word)
    old = node or {}
    return {**old, word: _replaced(old.get(word), rest, value, path, name)}
