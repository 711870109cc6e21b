"""The unit of text: one document, with a name that does not change between machines."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Document:
    """A text and the name it is selected, split and reported by (never an absolute path)."""

    name: str
    text: str
