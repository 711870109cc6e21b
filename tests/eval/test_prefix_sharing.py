"""Sharing the start of a cell's prompts changes no verdict, however the rest is cut into pieces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ropewalk.config import PasskeyTask
from ropewalk.data import PasskeyTemplate
from ropewalk.eval import answer
from ropewalk.eval.load import Loaded, find_weights, load
from ropewalk.eval.passkey import cell_keys

BASE = Path(__file__).resolve().parents[2] / "assets" / "tiny-base"


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Loaded:
    torch.set_num_threads(1)
    return load(find_weights(BASE)[0], tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("piece_tokens", [7, 32, 256])
def test_verdicts_of_a_shared_start_are_those_of_each_prompt_alone(base, monkeypatch, piece_tokens):
    monkeypatch.setattr(answer, "PIECE_TOKENS", piece_tokens)
    monkeypatch.setattr(answer, "LEAST_SHARED", 0.0)
    subject = base.use(base.method("none"))
    template = PasskeyTemplate(base.tokenizer)
    task = PasskeyTask(lengths=(224, 320), depths=(0.0, 0.5, 1.0), trials=4)
    verdicts = set()
    for length in task.lengths:
        for depth in task.depths:
            prompts = [template.build(length, depth, key) for key in cell_keys(task, length, depth, 1)]
            together = answer.answer_prompts(subject, prompts)
            alone = [one for prompt in prompts for one in answer.answer_prompts(subject, [prompt])]
            assert [one.correct for one in together] == [one.correct for one in alone]
            verdicts |= {one.correct for one in together}
    assert verdicts == {True, False}  # both kinds were seen, or nothing was compared


def test_reading_on_in_pieces_gives_the_hidden_states_of_one_reading(base):
    subject = base.use(base.method("yarn:8"))
    rows_BT = np.random.default_rng(0).integers(3, 2048, (2, 600))
    rows_BT[:, :300] = rows_BT[0, :300]
    with torch.inference_mode():
        whole = answer.Decoder(subject).read(rows_BT)
        decoder = answer.Decoder(subject)
        decoder.read(rows_BT[:1, :300])
        decoder.repeat(2)
        pieces = [decoder.read(rows_BT[:, start : start + 128]) for start in range(300, 600, 128)]
    torch.testing.assert_close(torch.cat(pieces, 1), whole[:, 300:], rtol=1e-4, atol=1e-4)


def test_a_small_common_start_is_not_shared():
    rows_BT = np.zeros((3, 90), dtype=np.int64)
    rows_BT[1, 29:] = 1
    assert answer._shared_tokens(rows_BT, 85) == 0
    rows_BT[1, 29:31] = 0
    assert answer._shared_tokens(rows_BT, 85) == 31
    assert answer._shared_tokens(rows_BT[:1], 85) == 0  # a single row has nobody to share with
