"""Sources of every kind, their filters and their errors."""

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ropewalk.config import Source
from ropewalk.data.sources import Selection
from ropewalk.errors import DataError


def read(tmp_path, **fields) -> list[tuple[str, str]]:
    return [(d.name, d.text) for d in Selection(Source.model_validate(fields), tmp_path / "cache")]


def refused(tmp_path, match: str, **fields) -> None:
    with pytest.raises(DataError, match=match):
        read(tmp_path, **fields)


def test_text_files_one_document_each(tmp_path):
    (tmp_path / "a" / "deep").mkdir(parents=True)
    (tmp_path / "a" / "deep" / "two.txt").write_bytes("zwei\r\nü".encode())
    (tmp_path / "a" / "one.txt").write_bytes(b"\xef\xbb\xbfone")
    (tmp_path / "a" / "other.md").write_text("no")
    both = [("deep/two.txt", "zwei\r\nü"), ("one.txt", "one")]
    assert read(tmp_path, kind="text", name=f"{tmp_path}/a/**/*.txt") == both
    assert read(tmp_path, kind="text", name=f"{tmp_path}/a")[:2] == both
    assert read(tmp_path, kind="text", name=f"{tmp_path}/a/one.txt") == [("one.txt", "one")]
    assert read(tmp_path, kind="text", name=f"{tmp_path}/a", documents=["deep/*"]) == both[:1]


def test_a_text_file_that_is_not_there_or_not_text(tmp_path):
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\x00")
    refused(tmp_path, "no such file", kind="text", name=str(tmp_path / "none.txt"))
    refused(tmp_path, r"b\.txt is not UTF-8", kind="text", name=str(tmp_path / "b.txt"))


def test_jsonl(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"text": "one"}\n\n{"text": "two", "n": 1}\n')
    assert read(tmp_path, kind="jsonl", name=str(path)) == [("x.jsonl#0", "one"), ("x.jsonl#2", "two")]
    refused(tmp_path, r"x\.jsonl:1 has no field 'body'", kind="jsonl", name=str(path), field="body")
    path.write_text('{"text": "one"}\n{"text": 3}\n')
    refused(tmp_path, r"x\.jsonl:2.*int", kind="jsonl", name=str(path))
    path.write_text('{"text": "one"}\nnonsense\n')
    refused(tmp_path, r"x\.jsonl:2 is not JSON", kind="jsonl", name=str(path))


def test_parquet(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"text": ["one", None, "two"], "n": [1, 2, 3]}), path)
    assert read(tmp_path, kind="parquet", name=str(path)) == [("x.parquet#0", "one"), ("x.parquet#2", "two")]
    refused(tmp_path, "no column 'body'", kind="parquet", name=str(path), field="body")
    refused(tmp_path, "not text", kind="parquet", name=str(path), field="n")
    path.write_text("nonsense")
    refused(tmp_path, "not a parquet file", kind="parquet", name=str(path))


def test_data_set_folders(tmp_path):
    rows = datasets.Dataset.from_dict({"text": ["one", "two"]})
    rows.save_to_disk(str(tmp_path / "saved"))
    assert read(tmp_path, kind="dataset", name=str(tmp_path / "saved")) == [("train#0", "one"), ("train#1", "two")]
    datasets.DatasetDict({"test": rows}).save_to_disk(str(tmp_path / "dict"))
    assert len(read(tmp_path, kind="dataset", name=str(tmp_path / "dict"), split="test")) == 2
    refused(tmp_path, "no split 'train'", kind="dataset", name=str(tmp_path / "dict"))
    refused(tmp_path, "Give a folder, or a hub name", kind="dataset", name=str(tmp_path / "none"))


def test_filters_count_what_they_drop(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("".join(f'{{"text": "{text}"}}\n' for text in ("", "abc", "abcdef", "abcdefghi")))
    source = Source.model_validate({"kind": "jsonl", "name": str(path), "min_chars": 4, "max_chars": 8})
    selection = Selection(source, tmp_path)
    assert [document.text for document in selection] == ["abcdef"]
    assert selection.dropped == {"empty": 1, "shorter than min_chars": 1, "longer than max_chars": 1}
    refused(tmp_path, "1 dropped: empty.*3 dropped: shorter", kind="jsonl", name=str(path), min_chars=100)


def test_an_empty_file_is_an_empty_source(tmp_path):
    (tmp_path / "x.txt").write_text("  \n")
    refused(tmp_path, "gives no text", kind="text", name=str(tmp_path / "x.txt"))


def test_the_content_hash_sees_names_and_texts(tmp_path):
    def hashed(lines: str) -> str:
        (tmp_path / "x.jsonl").write_text(lines)
        source = Source(kind="jsonl", name=str(tmp_path / "x.jsonl"))
        return Selection(source, tmp_path).content_hash()

    first = hashed('{"text": "ab"}\n{"text": "c"}\n')
    assert hashed('{"text": "ab"}\n{"text": "c"}\n') == first
    assert hashed('{"text": "a"}\n{"text": "bc"}\n') != first
