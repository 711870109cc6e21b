"""Sources -> documents: one iterator over (name, text), whatever the text lies in."""

from __future__ import annotations

import glob
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from ..config import Source
from ..errors import DataError
from ..hub import hub_answers
from .builtin import builtin_documents
from .document import Document


@dataclass
class Selection:
    """The documents of one source that pass its filters, read anew at each iteration, and what was left out."""

    source: Source
    cache_dir: Path
    dropped: Counter[str] = field(default_factory=Counter)
    """Reason -> number of documents, of the latest complete iteration."""

    def __iter__(self) -> Iterator[Document]:
        """Raises DataError when the source cannot be read or nothing passes the filters."""
        self.dropped.clear()
        kept = 0
        for document in _read(self.source, self.cache_dir):
            reason = _reason_to_drop(self.source, document)
            if reason is None:
                kept += 1
                yield document
            else:
                self.dropped[reason] += 1
        if not kept:
            seen = (
                ", ".join(f"{count} dropped: {reason}" for reason, count in self.dropped.items())
                or "no document at all"
            )
            raise DataError(
                f"data.sources {self.source.name!r} ({self.source.kind}) gives no text: {seen}. "
                "Check its name, `documents`, `min_chars` and `max_chars`."
            )

    def content_hash(self) -> str:
        """SHA-256 over names and texts, in order."""
        digest = hashlib.sha256()
        for document in self:
            for part in (document.name.encode(), document.text.encode("utf-8", "surrogatepass")):
                digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()


def _reason_to_drop(source: Source, document: Document) -> str | None:
    if source.documents is not None and not any(fnmatchcase(document.name, pattern) for pattern in source.documents):
        return "not among the documents asked for"
    if not document.text.strip():
        return "empty"
    if len(document.text) < source.min_chars:
        return "shorter than min_chars"
    if source.max_chars is not None and len(document.text) > source.max_chars:
        return "longer than max_chars"
    return None


def _read(source: Source, cache_dir: Path) -> Iterator[Document]:
    match source.kind:
        case "builtin":
            return iter(builtin_documents(source.name, cache_dir))
        case "text":
            return _text_files(source)
        case "jsonl":
            return _json_lines(source)
        case "parquet":
            return _parquet(source)
        case "dataset":
            return _dataset(source)


def _files(source: Source) -> list[tuple[str, Path]]:
    """The files of a path, a folder or a glob with the names they go by: the part after the shared folder."""
    pattern = str(Path(source.name).expanduser())
    folder = Path(pattern)
    found = (
        sorted(folder.rglob("*")) if folder.is_dir() else [Path(p) for p in sorted(glob.glob(pattern, recursive=True))]
    )
    files = [path for path in found if path.is_file()]
    if not files:
        raise DataError(
            f"data.sources {source.name!r} ({source.kind}): no such file. Give an existing file, folder or glob; "
            f"relative paths start at {Path.cwd()}."
        )
    fixed = folder if folder.is_dir() else _folder_before_wildcards(pattern)
    return [(path.relative_to(fixed).as_posix() if path != fixed else path.name, path) for path in files]


def _folder_before_wildcards(pattern: str) -> Path:
    parts = Path(pattern).parts[:-1]
    plain = next((i for i, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return Path(*parts[:plain])


def _text_files(source: Source) -> Iterator[Document]:
    for name, path in _files(source):
        yield Document(name, _read_text(path))


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")  # not read_text: line ends stay as they are
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 text ({error.reason} at byte {error.start}). Convert it to UTF-8."
        ) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from error


def _json_lines(source: Source) -> Iterator[Document]:
    for name, path in _files(source):
        with path.open("rb") as lines:
            for number, line in enumerate(lines):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except ValueError as error:
                    raise DataError(f"{path}:{number + 1} is not JSON: {error}. Give one object a line.") from error
                yield Document(f"{name}#{number}", _column(source, row, f"{path}:{number + 1}"))


def _column(source: Source, row: object, where: str) -> str:
    if not isinstance(row, dict) or source.field not in row:
        keys = sorted(row) if isinstance(row, dict) else type(row).__name__
        raise DataError(
            f"{where} has no field {source.field!r} (found {keys}). Set `field` of this source to the text's."
        )
    value = row[source.field]
    if value is None:
        return ""  # counted as an empty document, like ""
    if not isinstance(value, str):
        raise DataError(
            f"{where}: field {source.field!r} is {type(value).__name__}, not text. Set `field` to the text's."
        )
    return value


def _parquet(source: Source) -> Iterator[Document]:
    import pyarrow.parquet as pq
    from pyarrow import ArrowException

    for name, path in _files(source):
        try:
            table = pq.ParquetFile(path)
        except (ArrowException, OSError) as error:
            raise DataError(
                f"data.sources {source.name!r}: {path} is not a parquet file: {str(error).rstrip('.')}. Set `kind` "
                "to what the file is."
            ) from error
        if source.field not in table.schema_arrow.names:
            raise DataError(
                f"{path} has no column {source.field!r} (found {table.schema_arrow.names}). "
                "Set `field` of this source to the text's."
            )
        number = 0
        for chunk in table.iter_batches(columns=[source.field]):
            for value in chunk.column(0).to_pylist():
                yield Document(f"{name}#{number}", _column(source, {source.field: value}, f"{path} row {number}"))
                number += 1


def _dataset(source: Source) -> Iterator[Document]:
    """Rows of a `datasets` data set: a folder written by `save_to_disk`, a folder of files, or a hub name."""
    import datasets
    import datasets.config

    folder = Path(source.name).expanduser()
    try:
        if (folder / "dataset_info.json").exists() or (folder / "dataset_dict.json").exists():
            loaded = datasets.load_from_disk(str(folder))
            if isinstance(loaded, datasets.DatasetDict):
                if source.split not in loaded:
                    raise DataError(
                        f"data.sources {source.name!r} has no split {source.split!r}, only {sorted(loaded)}."
                    )
                loaded = loaded[source.split]
        else:
            if not folder.exists() and not hub_answers():
                datasets.config.HF_HUB_OFFLINE = True  # its cache still serves, and it does not try for half a minute
            loaded = datasets.load_dataset(source.name, source.subset, split=source.split)
    except DataError:
        raise
    except Exception as error:  # datasets raises many kinds, from a missing folder to a hub that is not reached
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(
            f"data.sources {source.name!r} (dataset): {reason.rstrip('. ')}. Give a folder, or a hub name with "
            f"network, and check `subset` ({source.subset}) and `split` ({source.split!r})."
        ) from error
    for number, row in enumerate(loaded):
        yield Document(f"{source.split}#{number}", _column(source, row, f"data set {source.name} row {number}"))
