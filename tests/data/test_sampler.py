"""Rows and their order: a pure function, exact shares, every window once, nothing across documents."""

from collections import Counter

import numpy as np
import pytest
import torch

from ropewalk.data import RowSampler, prepare
from ropewalk.data.passkey import is_evaluation_key
from ropewalk.errors import DataError

MIXED = [
    {"tokens": 96, "text": 0.5, "passkey": 0.5, "last_step": 5},
    {"tokens": 128, "text": 0.35, "passkey": 0.35, "repeat": 0.3, "first_step": 5, "weight": 3},
    {"tokens": 128, "positions": "skip-wise", "text": 0.4, "passkey": 0.3, "repeat": 0.3, "first_step": 5},
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Ten documents of 1,500 to 6,000 random letters in words, so that no two places are alike."""
    folder = tmp_path_factory.mktemp("sampler")
    (folder / "texts").mkdir()
    rng = np.random.default_rng(0)
    for number in range(10):
        letters = rng.choice(list("abcdefghij klmnop rstuw"), 1500 + 500 * number)
        (folder / "texts" / f"{number}.txt").write_text("".join(letters))
    return folder


@pytest.fixture(scope="module")
def make(home, tokenizer, make_recipe):
    def build(rows, sources=None, **changes):
        config = make_recipe(sources or [{"kind": "text", "name": str(home / "texts")}], rows, **changes)
        prepared = prepare(config, tokenizer, home / "data", home / "cache")
        return RowSampler(config, prepared, tokenizer), prepared

    return build


def batches(sampler, steps):
    return [sampler.micro_batch(step, index) for step in steps for index in range(sampler.micro_batches_per_step)]


def test_a_batch_depends_on_step_and_index_alone(make):
    sampler, _ = make(MIXED)
    forward = batches(sampler, range(12))
    fresh, _ = make(MIXED)
    for number in reversed(range(len(forward))):  # another order, a new object: as after a resume, on other ranks
        again = fresh.micro_batch(*divmod(number, sampler.micro_batches_per_step))
        assert torch.equal(again.input_ids_BT, forward[number].input_ids_BT)
        assert torch.equal(again.position_ids_BT, forward[number].position_ids_BT)
        assert again.kinds_B == forward[number].kinds_B
    assert not torch.equal(forward[0].input_ids_BT, forward[1].input_ids_BT)
    other, _ = make(MIXED, seed=2)
    assert not torch.equal(other.micro_batch(0, 0).input_ids_BT, forward[0].input_ids_BT)


def test_shapes_labels_and_bos(make, tokenizer):
    sampler, _ = make(MIXED)
    for batch in batches(sampler, range(12)):
        rows, tokens = batch.input_ids_BT.shape
        assert rows == 256 // tokens
        assert len(batch.kinds_B) == rows
        for tensor in (batch.input_ids_BT, batch.position_ids_BT, batch.labels_BT):
            assert tensor.shape == (rows, tokens)
            assert tensor.dtype == torch.int64
        assert torch.equal(batch.labels_BT[:, :-1], batch.input_ids_BT[:, 1:])
        assert (batch.input_ids_BT[:, 0] == tokenizer.bos_token_id).all()
        assert (batch.input_ids_BT == tokenizer.bos_token_id).sum() == rows
        assert (batch.position_ids_BT[:, 0] == 0).all()
        assert (batch.position_ids_BT.diff(dim=1) >= 1).all()
        assert int(batch.position_ids_BT.max()) < 512


def test_plans_take_their_share_of_each_step_and_their_steps(make):
    sampler, _ = make(MIXED)
    assert {batch.input_ids_BT.shape[1] for batch in batches(sampler, range(5))} == {96}
    for step in range(5, 20):
        dense = [bool((b.position_ids_BT.diff(dim=1) == 1).all()) for b in batches(sampler, [step])]
        assert sum(dense) in (3, 4)  # weight 3 of 4, four micro batches; a skip-wise jump may be 0


def test_kinds_take_their_share(make):
    sampler, _ = make(MIXED)
    kinds = Counter(kind for batch in batches(sampler, range(5, 85)) for kind in batch.kinds_B)
    total = kinds.total()
    assert abs(kinds["text"] / total - (0.75 * 0.35 + 0.25 * 0.4)) < 0.01
    assert abs(kinds["passkey"] / total - (0.75 * 0.35 + 0.25 * 0.3)) < 0.01


def text_rows(sampler, steps):
    return [tuple(ids.tolist()) for batch in batches(sampler, steps) for ids in batch.input_ids_BT[:, 1:]]


def test_each_window_once_an_epoch_and_never_across_documents(make):
    sampler, prepared = make([{"tokens": 64}])
    per_epoch = sampler.coverage()[0]["windows"]
    assert per_epoch == sum((len(prepared.train.tokens(d)) - 1) // 63 for d in range(len(prepared.train)))
    rows = text_rows(sampler, range(2 * per_epoch // 16 + 2))
    first, second = rows[:per_epoch], rows[per_epoch : 2 * per_epoch]
    assert len(set(first)) == per_epoch
    assert first != second
    documents = [prepared.train.tokens(d).tolist() for d in range(len(prepared.train))]
    seen = [np.zeros(len(ids), dtype=int) for ids in documents]
    for row in first:
        places = [
            (d, at)
            for d, ids in enumerate(documents)
            for at in range(len(ids) - 62)
            if ids[at] == row[0] and tuple(ids[at : at + 63]) == row
        ]
        assert len(places) == 1, "a row is a window of exactly one document"
        seen[places[0][0]][places[0][1] : places[0][1] + 63] += 1
    assert all(counts.max() == 1 for counts in seen)


def test_sources_take_their_weight(make, home):
    sources = [
        {"kind": "text", "name": str(home / "texts" / "[0-4].txt"), "weight": 3},
        {"kind": "text", "name": str(home / "texts" / "[5-9].txt"), "weight": 1},
        {"kind": "builtin", "name": "python-reference", "use": "held-out"},
    ]
    sampler, prepared = make([{"tokens": 64}], sources)
    assert prepared.held_out.names == ("python-reference",)
    first = {tuple(w) for d in range(5) for w in sliding(prepared.train.tokens(d), 63)}
    rows = text_rows(sampler, range(10))
    assert abs(sum(row in first for row in rows) - 0.75 * len(rows)) <= 1


def test_held_out_documents_are_never_trained_on(make):
    sampler, prepared = make([{"tokens": 64, "text": 0.5, "repeat": 0.5}], held_out=0.4)
    held = {tuple(w) for d in range(len(prepared.held_out)) for w in sliding(prepared.held_out.tokens(d), 12)}
    rows = [ids[1:].numpy() for batch in batches(sampler, range(20)) for ids in batch.input_ids_BT]
    trained = {tuple(w) for ids in rows for w in sliding(ids, 12)}
    assert not held & trained
    control = {tuple(w) for d in range(len(prepared.train)) for w in sliding(prepared.train.tokens(d), 12)}
    assert control & trained


def sliding(ids, size):
    return np.lib.stride_tricks.sliding_window_view(ids, size).tolist()


def test_passkey_rows_label_the_whole_answer_with_training_keys(make, tokenizer):
    sampler, _ = make([{"tokens": 128, "text": 0, "passkey": 1}])
    keys, depths = set(), []
    for batch in batches(sampler, range(10)):
        for ids, labels in zip(batch.input_ids_BT, batch.labels_BT, strict=True):
            key = tokenizer.decode(labels[-5:])
            assert tokenizer.decode(ids).count(f"passkey is {key}") == 1
            assert not is_evaluation_key(key)
            keys.add(key)
            depths.append(tokenizer.decode(ids).index(key))
    assert len(keys) > 70
    assert max(depths) - min(depths) > 100


def test_repeat_rows_hold_a_segment_twice(make):
    sampler, _ = make([{"tokens": 128, "text": 0, "repeat": 1}])
    found = []
    for batch in batches(sampler, range(5)):
        for labels in batch.labels_BT.numpy():
            places: dict[tuple, list[int]] = {}
            for at, window in enumerate(sliding(labels, 12)):
                places.setdefault(tuple(window), []).append(at)
            found.append(any(len(at) > 1 for at in places.values()))
    assert sum(found) >= 0.95 * len(found)


@pytest.mark.parametrize("kind", ["passkey", "repeat"])
def test_jumps_lie_mostly_between_what_is_recalled_and_its_recall(make, tokenizer, kind):
    sampler, _ = make([{"tokens": 128, "positions": "skip-wise", "text": 0, kind: 1}])
    far = []
    for batch in batches(sampler, range(20)):
        for ids, positions in zip(batch.input_ids_BT.numpy(), batch.position_ids_BT.numpy(), strict=True):
            if kind == "passkey":
                text = [tokenizer.decode([i]) for i in ids]
                key_at = next(i for i in range(len(ids)) if "".join(text[i : i + 5]).isdigit())
                recall_at = len(ids) - 1
            else:
                windows = sliding(ids, 8)
                key_at, recall_at = next(
                    (
                        (a, b)
                        for a in range(len(windows))
                        for b in range(a + 8, len(windows))
                        if windows[a] == windows[b]
                    ),
                    (0, len(ids) - 1),
                )
            jump = int(positions[recall_at] - positions[key_at]) - (recall_at - key_at)
            whole = int(positions[-1]) - (len(ids) - 1)
            if whole > 0:
                far.append(jump == whole)
    assert sum(far) > 0.85 * len(far)


def test_rows_too_short_for_what_they_hold(make):
    with pytest.raises(DataError, match=r"rows\[1\].tokens = 32 is too short for passkey rows.*at least \d+"):
        make([{"tokens": 64}, {"tokens": 32, "text": 0.5, "passkey": 0.5}])
    with pytest.raises(DataError, match=r"rows\[0\].tokens = 7 is below 8"):
        make([{"tokens": 7}])


def test_text_shorter_than_a_row(make, home):
    (home / "short.txt").write_text("a few words only")
    with pytest.raises(DataError, match=r"rows\[0\].*short.txt.*no training document that long"):
        make([{"tokens": 64}], [{"kind": "text", "name": str(home / "short.txt")}])
