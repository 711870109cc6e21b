"""Measurements of the tiny base against brute force, and what must be refused. Public reports E1 and E2."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from ropewalk.config import EvalSection, PasskeyTask, PerplexityTask, Source
from ropewalk.data import PasskeyTemplate
from ropewalk.errors import DataError, EvalError
from ropewalk.eval.answer import answer_prompts
from ropewalk.eval.load import Loaded, find_weights, load
from ropewalk.eval.passkey import cell_keys
from ropewalk.eval.plan import eval_plan
from ropewalk.eval.run import evaluate
from ropewalk.eval.score import Score, k_max, read_scores, wilson
from ropewalk.eval.scorer import last_nll

BASE = Path(__file__).resolve().parents[2] / "assets" / "tiny-base"
TEXT = (Source(kind="builtin", name="python-reference"),)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Loaded:
    torch.set_num_threads(1)
    return load(find_weights(BASE)[0], tmp_path_factory.mktemp("cache"))


def section(**tasks) -> EvalSection:
    return EvalSection(**tasks)


def measure(folder: Path, methods: list[str], **tasks) -> list[Score]:
    plan = eval_plan(section(**tasks), list(tasks), None, None)
    return evaluate(BASE, methods, plan, folder / "scores", cache_dir=folder / "cache", text=TEXT)


def test_E1_methods_never_share_scores_and_a_second_pass_is_all_hits(tmp_path):
    tasks = {"passkey": PasskeyTask(lengths=(128, 256), depths=(0.0, 1.0), trials=3)}
    none = measure(tmp_path, ["none"], **tasks)
    linear = measure(tmp_path, ["linear:8"], **tasks)
    file = tmp_path / "scores" / "passkey.jsonl"
    lines = len(file.read_text().splitlines())
    assert lines == len(none) + len(linear)
    assert {s.rotary_hash for s in none}.isdisjoint({s.rotary_hash for s in linear})
    assert sum(s.value for s in none) > sum(s.value for s in linear)  # untrained interpolation breaks retrieval
    assert measure(tmp_path, ["none", "linear:8"], **tasks) == none + linear
    assert len(file.read_text().splitlines()) == lines
    more = measure(tmp_path, ["none"], passkey=tasks["passkey"].model_copy(update={"trials": 4}))
    assert all(score.n == 4 for score in more)


def test_base_gives_back_passkeys_inside_its_window_and_not_far_beyond(tmp_path):
    """The negative control of every retrieval claim: direct extrapolation to 8 times the window fails."""
    scores = measure(tmp_path, ["none"], passkey=PasskeyTask(lengths=(128, 256, 2048), trials=4))
    rate = {n: np.mean([s.value for s in scores if s.length == n]) for n in (128, 256, 2048)}
    assert rate[128] >= 0.9
    assert rate[256] >= 0.9
    assert rate[2048] <= 0.2


def test_perplexity_equals_brute_force_on_the_same_targets(tmp_path, base):
    task = PerplexityTask(lengths=(96, 256), stride=32, windows=4)
    scores = measure(tmp_path, ["none"], perplexity=task)
    base.use(base.method("none"))
    from ropewalk.eval.perplexity import perplexity_jobs, windows
    from ropewalk.eval.texts import source_texts, spread_places

    texts = source_texts(TEXT, base.tokenizer, tmp_path)
    assert len(perplexity_jobs(task, texts, base.bos, 1)) == 2
    places = spread_places(texts, 256 - len(base.bos) - 32, 32, 4)
    for score in scores:
        rows = torch.from_numpy(windows(texts, places, 32, score.length, base.bos))
        assert (rows == base.tokenizer.bos_token_id).sum() == len(rows)  # one bos a window, E3
        with torch.no_grad():
            logits = base.model(rows).logits.double().log_softmax(-1)
        nll = -logits[:, :-1].gather(-1, rows[:, 1:, None]).squeeze(-1)[:, -32:]
        assert score.value == pytest.approx(math.exp(nll.mean()), rel=1e-5)
        assert score.low <= score.value <= score.high


def test_a_jump_in_position_does_not_cut_attention(base):
    """The scorer's losses after a jump equal those under an explicit causal mask, and change with the early context."""
    base.use(base.method("yarn:8"))
    rows = np.random.default_rng(0).integers(3, 2048, (2, 97))
    positions = np.concatenate([np.arange(48), np.arange(1500, 1548)])
    found = last_nll(base.model, rows[:, :-1], rows[:, -32:], positions)
    causal = torch.full((96, 96), float("-inf")).triu(1)[None, None].expand(2, 1, 96, 96)
    with torch.no_grad():
        logits = base.model(
            torch.from_numpy(rows[:, :-1]), attention_mask=causal, position_ids=torch.from_numpy(positions)[None]
        ).logits.log_softmax(-1)
    explicit = -logits.gather(-1, torch.from_numpy(rows[:, 1:, None])).squeeze(-1)[:, -32:]
    np.testing.assert_allclose(found, explicit.numpy(), rtol=1e-4, atol=1e-4)
    rows[:, 5:40] = 7
    assert np.abs(last_nll(base.model, rows[:, :-1], rows[:, -32:], positions) - found).max() > 1e-3


@pytest.mark.parametrize("method", ["none", "yarn:8"])
def test_teacher_forcing_equals_greedy_generation(base, method):
    """The verdict of one prefill is that of decoding token by token with stock `generate`."""
    subject = base.use(base.method(method))
    template = PasskeyTemplate(base.tokenizer)
    task = PasskeyTask(lengths=(256, 320, 512), trials=6)
    verdicts = set()
    for length in task.lengths:
        prompts = [template.build(length, 0.5, key) for key in cell_keys(task, length, 0.5, 1)]
        answers = answer_prompts(subject, prompts)
        for prompt, answer in zip(prompts, answers, strict=True):
            assert len(prompt.input_ids) + len(prompt.answer_ids) == length
            ids = torch.tensor(np.array(prompt.input_ids))[None]
            made = base.model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=len(prompt.answer_ids), do_sample=False
            )
            greedy = made[0, ids.shape[1] :].tolist() == list(prompt.answer_ids)
            assert greedy == answer.teacher_forced
            verdicts.add(greedy)
    if method == "none":
        assert verdicts == {True, False}  # both kinds were seen, or nothing was compared


def test_E2_lengths_that_cannot_be_measured_are_refused_before_anything_runs(tmp_path):
    with pytest.raises(DataError, match="token"):
        measure(tmp_path, ["none"], passkey=PasskeyTask(lengths=(20, 256), trials=1))
    with pytest.raises(EvalError, match="stride"):
        measure(tmp_path, ["none"], perplexity=PerplexityTask(lengths=(64,), stride=64))
    assert not (tmp_path / "scores").exists() or not read_scores(tmp_path / "scores")


def test_bare_model_needs_a_named_text(tmp_path):
    plan = eval_plan(section(perplexity=PerplexityTask(lengths=(256,), stride=32)), ["perplexity"], None, None)
    with pytest.raises(EvalError, match="--text"):
        evaluate(BASE, ["none"], plan, tmp_path, cache_dir=tmp_path)


def test_effective_window_stops_at_the_first_failure():
    cells = {256: (50, 50), 512: (46, 50), 1024: (20, 50), 2048: (50, 50)}
    assert k_max(cells, 0.9) == (512, 256)
    assert k_max(cells, 0.2)[0] == 2048
    assert k_max({256: (1, 50)}, 0.9) == (None, None)
    low, high = wilson(10, 10)
    assert (round(low, 2), high) == (0.72, 1.0)


def test_scores_are_plain_json(tmp_path):
    measure(tmp_path, ["none"], passkey=PasskeyTask(lengths=(128,), depths=(0.5,), trials=2))
    row = json.loads((tmp_path / "scores" / "passkey.jsonl").read_text())
    assert row["method"] == "none"
    assert row["n"] == 2
    assert str(tmp_path) not in json.dumps(row)
