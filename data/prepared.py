"""Documents -> tokens, once: a cache keyed by what went in, a split by document, and a manifest in the run folder."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..config import RunConfig, Source
from ..errors import DataError
from .builtin import BUILTIN
from .sources import Selection
from .split import held_out_flags
from .store import StoredDocument, TokenStore, id_dtype, map_ids, write_ids
from .tokenize import DocumentTokenizer
from .tokenizer import check_vocabulary, tokenizer_hash

if TYPE_CHECKING:
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase

VERSION = 1
"""Of the code that turns texts into ids; a new one makes old caches unused."""
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class PreparedData:
    """The tokenised documents of a run, split; `manifest` is what data/manifest.json says."""

    train: TokenStore
    held_out: TokenStore
    manifest: dict[str, Any]


def prepare(
    config: RunConfig,
    tokenizer: PreTrainedTokenizerBase,
    data_dir: Path,
    cache_dir: Path,
    progress: Callable[[str], None] | None = None,
) -> PreparedData:
    """Tokenise the sources of a run (or take them from the cache) and lay them out in `data_dir`.

    `progress` is called with a line for each source. Raises DataError when a source cannot be read or is empty, or
    when tokenizer and model disagree.
    """
    say = progress or (lambda line: None)
    check_vocabulary(config, tokenizer)
    key, dtype = tokenizer_hash(tokenizer), id_dtype(len(tokenizer))
    data_dir.mkdir(parents=True, exist_ok=True)
    entries: list[dict[str, Any]] = []
    for number, source in enumerate(config.data.sources):
        selection = Selection(source, cache_dir)
        folder = _tokenised(selection, tokenizer, key, dtype, cache_dir, config.data.num_proc, say)
        file = f"source_{number:02d}.tokens"
        _link(folder / "tokens", data_dir / file)
        cached = json.loads((folder / "documents.json").read_text())
        entries.append(_source_entry(source, file, cached, dict(selection.dropped)))
        say(f"{source.name}: {len(cached['names']):,} documents, {sum(cached['num_tokens']):,} tokens")
    names = [entry["names"] for entry in entries]
    for entry, flags in zip(entries, held_out_flags(config.data.sources, names, config.data.held_out), strict=True):
        entry["held_out"] = [name for name, held in zip(entry["names"], flags, strict=True) if held]
        entry["held_out_numbers"] = [number for number, held in enumerate(flags) if held]
    manifest = {"version": VERSION, "tokenizer_hash": key, "dtype": dtype.name, "sources": entries}
    partial = data_dir / f"{MANIFEST}.partial"
    partial.write_text(json.dumps(manifest, indent=1, ensure_ascii=False))
    partial.replace(data_dir / MANIFEST)
    return open_prepared(data_dir)


def open_prepared(data_dir: Path) -> PreparedData:
    """What `prepare` laid out in `data_dir`, memory-mapped. DataError when it is missing or damaged."""
    path = data_dir / MANIFEST
    try:
        manifest = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise DataError(
            f"{data_dir} holds no prepared data ({MANIFEST} is missing). Run `ropewalk train` first."
        ) from error
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}). Delete {data_dir} and run again.") from error
    sides: tuple[list[StoredDocument], list[StoredDocument]] = ([], [])
    files = []
    for number, entry in enumerate(manifest["sources"]):
        files.append(map_ids(data_dir / entry["file"], np.dtype(manifest["dtype"]), sum(entry["num_tokens"])))
        held, start = set(entry["held_out_numbers"]), 0
        for index, (name, count) in enumerate(zip(entry["names"], entry["num_tokens"], strict=True)):
            sides[index in held].append(StoredDocument(name, number, start, count))
            start += count
    return PreparedData(TokenStore(tuple(sides[0]), tuple(files)), TokenStore(tuple(sides[1]), tuple(files)), manifest)


def _tokenised(
    selection: Selection,
    tokenizer: PreTrainedTokenizerBase,
    tokenizer_key: str,
    dtype: np.dtype,
    cache_dir: Path,
    num_threads: int | None,
    say: Callable[[str], None],
) -> Path:
    """The cache folder with `tokens` and `documents.json` of a source, made if it is not there whole."""
    content = selection.content_hash()
    key = hashlib.sha256(f"{VERSION} {tokenizer_key} {content} {dtype.name}".encode()).hexdigest()[:32]
    home = cache_dir / "tokens"
    folder = home / key
    if _is_whole(folder, dtype):
        return folder
    say(f"{selection.source.name}: tokenising")
    home.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=home, prefix="partial-"))
    try:
        names: list[str] = []
        with DocumentTokenizer(tokenizer, num_threads) as documents:
            counts = write_ids(scratch / "tokens", dtype, documents.map(_named(selection, names)))
        record = {"content_hash": content, "names": names, "num_tokens": counts}
        (scratch / "documents.json").write_text(json.dumps(record))
        shutil.rmtree(folder, ignore_errors=True)
        scratch.chmod(0o755)
        scratch.rename(folder)
    except OSError as error:
        raise DataError(
            f"cannot write the token cache under {home}: {error.strerror}. Free space, or set --cache."
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _named(selection: Selection, names: list[str]):
    """The texts of a selection, leaving each document's name in `names`."""
    for document in selection:
        names.append(document.name)
        yield document.text


def _is_whole(folder: Path, dtype: np.dtype) -> bool:
    try:
        counts = json.loads((folder / "documents.json").read_text())["num_tokens"]
        map_ids(folder / "tokens", dtype, sum(counts))
    except (OSError, ValueError, KeyError, DataError):
        return False
    return True


def _link(source: Path, target: Path) -> None:
    """Make `target` the same file as `source`, or a copy where the two lie on different file systems."""
    partial = target.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    try:
        os.link(source, partial)
    except OSError:
        try:
            shutil.copyfile(source, partial)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise DataError(f"cannot write {target}: {error.strerror}. Free space, or set --out.") from error
    partial.replace(target)


def _source_entry(source: Source, file: str, cached: dict[str, Any], dropped: dict[str, int]) -> dict[str, Any]:
    """The manifest's record of a source. A path is cut to its last part: a manifest names no place on one machine."""
    name = Path(source.name).name if Path(source.name).expanduser().is_absolute() else source.name
    licence = BUILTIN[source.name].licence if source.kind == "builtin" else None
    return {
        "name": name,
        "kind": source.kind,
        "use": source.use,
        "licence": licence,
        "content_hash": cached["content_hash"],
        "file": file,
        "dropped": dropped,
        "names": cached["names"],
        "num_tokens": cached["num_tokens"],
    }
