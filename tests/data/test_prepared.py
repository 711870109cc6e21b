"""Prepared data: cached, split by document, memory-mapped, described, and refused when wrong."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.config import Source
from ropewalk.data import open_prepared, prepare
from ropewalk.data.bos import plain_ids
from ropewalk.data.split import held_out_flags, name_fraction
from ropewalk.data.tokenizer import tokenizer_from_texts, tokenizer_hash, train_tokenizer
from ropewalk.errors import DataError

ROWS = [{"tokens": 32}]


@pytest.fixture
def folder(tmp_path, reference_text):
    (tmp_path / "texts").mkdir()
    for number in range(12):
        (tmp_path / "texts" / f"{number:02d}.txt").write_text(reference_text[number * 700 : (number + 1) * 700])
    (tmp_path / "texts" / "empty.txt").write_text("")
    return tmp_path


def texts(folder, **fields):
    return {"kind": "text", "name": str(folder / "texts"), **fields}


def test_documents_become_exactly_their_tokens(folder, tokenizer, make_recipe):
    config = make_recipe([texts(folder)], ROWS, held_out=0.3)
    prepared = prepare(config, tokenizer, folder / "data", folder / "cache")
    stores = (prepared.train, prepared.held_out)
    assert sorted(name for store in stores for name in store.names) == [f"{n:02d}.txt" for n in range(12)]
    for store in stores:
        for index, name in enumerate(store.names):
            assert store.tokens(index).tolist() == plain_ids(tokenizer, (folder / "texts" / name).read_bytes().decode())
            assert store.tokens(index).dtype == np.uint16
            assert isinstance(store.files[0], np.memmap)
    again = open_prepared(folder / "data")
    assert again.train.documents == prepared.train.documents
    assert again.manifest == prepared.manifest


def test_the_manifest_tells_all_and_no_absolute_path(folder, tokenizer, make_recipe):
    config = make_recipe([texts(folder), {"kind": "builtin", "name": "python-reference", "use": "train"}], ROWS)
    prepare(config, tokenizer, folder / "data", folder / "cache")
    raw = (folder / "data" / "manifest.json").read_text()
    assert str(folder) not in raw
    manifest = json.loads(raw)
    first, second = manifest["sources"]
    assert first["dropped"] == {"empty": 1}
    assert len(first["names"]) == len(first["num_tokens"]) == 12
    assert second["licence"] == "PSF-2.0"
    assert manifest["tokenizer_hash"] == tokenizer_hash(tokenizer)


def test_the_cache_is_used_and_keyed_by_text_and_tokenizer(folder, tokenizer, make_recipe):
    config = make_recipe([texts(folder)], ROWS)

    def lines() -> list[str]:
        said: list[str] = []
        prepare(config, tokenizer, folder / "data", folder / "cache", said.append)
        return [line for line in said if "tokenising" in line]

    assert len(lines()) == 1
    assert lines() == []
    (folder / "texts" / "00.txt").write_text("another text of the same name")
    assert len(lines()) == 1
    other = tokenizer_from_texts(["abc abc abd " * 50], 300)
    assert tokenizer_hash(other) != tokenizer_hash(tokenizer)
    prepare(config, other, folder / "data", folder / "cache")
    assert len(list((folder / "cache" / "tokens").iterdir())) == 3


def test_a_damaged_cache_is_made_anew_and_a_damaged_run_refused(folder, tokenizer, make_recipe):
    config = make_recipe([texts(folder)], ROWS)
    good = prepare(config, tokenizer, folder / "data", folder / "cache").train.tokens(3).tolist()
    (cached,) = (folder / "cache" / "tokens").iterdir()
    (cached / "tokens").write_bytes(b"\0\0")
    assert prepare(config, tokenizer, folder / "data", folder / "cache").train.tokens(3).tolist() == good
    (folder / "data" / "source_00.tokens").unlink()
    with pytest.raises(DataError, match=r"source_00\.tokens should hold .* is missing"):
        open_prepared(folder / "data")
    (folder / "data" / "manifest.json").write_text("{")
    with pytest.raises(DataError, match="damaged"):
        open_prepared(folder / "data")
    with pytest.raises(DataError, match="holds no prepared data"):
        open_prepared(folder / "nowhere")


def test_a_stop_in_the_middle_leaves_no_cache(folder, tokenizer, make_recipe, monkeypatch):
    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("ropewalk.data.prepared.write_ids", stop)
    with pytest.raises(KeyboardInterrupt):
        prepare(make_recipe([texts(folder)], ROWS), tokenizer, folder / "data", folder / "cache")
    assert list((folder / "cache" / "tokens").iterdir()) == []


def test_no_hard_links_and_a_full_disk(folder, tokenizer, make_recipe, monkeypatch):
    def refuse(*args):
        raise OSError(28, "No space left on device")

    config = make_recipe([texts(folder)], ROWS)
    monkeypatch.setattr("os.link", refuse)
    copied = prepare(config, tokenizer, folder / "data", folder / "cache")
    assert len(copied.train) == 12
    monkeypatch.setattr("shutil.copyfile", refuse)
    with pytest.raises(DataError, match="No space left"):
        prepare(config, tokenizer, folder / "data2", folder / "cache")
    assert list((folder / "data2").iterdir()) == []


def test_tokenizer_and_model_that_disagree(folder, tokenizer, make_recipe):
    model = {"base": str(folder / "model")}
    config = make_recipe([texts(folder)], ROWS, model=model)
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps({"vocab_size": 1000}))
    with pytest.raises(DataError, match=r"ids up to 1023.*1000"):
        prepare(config, tokenizer, folder / "data", folder / "cache")


def sources(*uses: str) -> list[Source]:
    return [Source.model_validate({"kind": "text", "name": "x", "use": use}) for use in uses]


@given(st.lists(st.text(min_size=1), min_size=2, max_size=40, unique=True), st.floats(0.001, 1))
def test_the_split_has_both_sides_and_goes_by_name_alone(names, share):
    (flags,) = held_out_flags(sources("split"), [names], share)
    assert 1 <= sum(flags) <= len(names) - 1
    backwards = held_out_flags(sources("split"), [names[::-1]], share)[0][::-1]
    assert flags == backwards
    # one more document never moves another to the other side, but for those that keep a side from being empty
    more = held_out_flags(sources("split", "split"), [names, ["another document"]], share)[0]
    moved = [name for name, a, b in zip(names, flags, more, strict=True) if a != b]
    ordered = sorted(names, key=name_fraction)
    assert set(moved) <= {ordered[0], ordered[-1]}


def test_split_by_use():
    flags = held_out_flags(sources("train", "held-out", "split"), [["a", "b"], ["c"], ["d", "e"]], 0.0)
    assert flags == [[False, False], [True], [False, False]]
    with pytest.raises(DataError, match="one document only"):
        held_out_flags(sources("split"), [["alone"]], 0.05)


def test_a_fresh_tokenizer_is_the_same_each_time_and_splits_digits(folder, make_recipe, reference_text):
    config = make_recipe([texts(folder)], ROWS)
    one = train_tokenizer(config, folder / "data" / "tokenizer", folder / "cache")
    two = train_tokenizer(config, folder / "again", folder / "cache")
    assert tokenizer_hash(one) == tokenizer_hash(two)
    assert (folder / "again" / "tokenizer.json").is_file()
    assert len(one) <= 1024
    ids = one("In 20480 tokens,\n  x = 7\n")["input_ids"]
    assert ids[0] == one.bos_token_id
    assert one.decode(ids[1:]) == "In 20480 tokens,\n  x = 7\n"
    pieces = [str(one.decode([i])) for i in ids]
    assert [piece for piece in pieces if piece.strip().isdigit()] == list("204807")
    for text in ("日本語 🙂 \u00a0é\r\n", reference_text[5000:6000]):
        assert one.decode(plain_ids(one, text)) == text
    with pytest.raises(DataError, match="too small"):
        tokenizer_from_texts(["abc"], 100)
