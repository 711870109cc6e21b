"""Ropewalk: lengthen the context window of RoPE language models, prove it, publish it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .model import extend

__version__ = "0.1.0"
__all__ = ["__version__", "extend"]


def __getattr__(name: str) -> object:
    """Reach `extend` lazily, so that `import ropewalk` loads neither torch nor transformers."""
    if name == "extend":
        from .model import extend

        return extend
    raise AttributeError(f"module 'ropewalk' has no attribute {name!r}")
