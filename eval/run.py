"""Evaluate one target under many methods: weights load once, methods swap, and what is known is not measured again."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from ..config import Source
from ..data.passkey import PasskeyTemplate
from ..data.prepared import open_prepared
from ..errors import EvalError
from ..positional import format_method, parse_method
from .gap import gap_jobs
from .job import Job, Measurement, Subject
from .load import OWN, Loaded, find_weights, load, rotary_hash
from .passkey import passkey_jobs
from .perplexity import perplexity_jobs
from .plan import Plan
from .position import position_jobs
from .progress import Report, no_progress
from .score import Score, append_scores, read_scores
from .texts import Texts, held_out_texts, source_texts

Key = tuple[str | float | int | None, ...]


def evaluate(
    target: str | Path,
    methods: Sequence[str] | None,
    plan: Plan,
    out_dir: Path,
    *,
    cache_dir: Path,
    steps: Sequence[int] | Literal["all"] | None = None,
    text: Sequence[Source] = (),
    seed: int = 1,
    dtype: Literal["float32", "bfloat16"] | None = None,
    report: Report = no_progress,
) -> list[Score]:
    """Measure a run folder, model folder or hub id; return the scores in order, those known from before among them.

    `methods` are command-line names, `own` (and None) is the published method. `text` is read instead of the run's
    held-out documents; a model outside a run needs it for all but passkeys. Each finished part is appended to
    `out_dir/TASK.jsonl` at once, so a broken evaluation goes on where it stopped. A score is only taken from there when
    task, settings, text, method, weights, rotary, tokenizer, seed and dtype are all the same.

    Raises EvalError, ModelError, MethodError or DataError when something cannot be measured as asked.
    """
    names = list(methods or [OWN])
    for name in names:
        if name != OWN:
            parse_method(name)  # a name that cannot be read is told before weights are loaded
    all_weights = find_weights(target, steps)
    scores: list[Score] = []
    for index, weights in enumerate(all_weights):
        loaded = load(weights, cache_dir, dtype)
        jobs = _jobs(plan, loaded, text, cache_dir, seed)
        label = f"{weights.arm} step {weights.trained_steps}"
        remaining = len(names) * (len(all_weights) - index)
        scores += _evaluate_weights(loaded, names, jobs, out_dir, seed, label, remaining, report)
    return scores


def _jobs(plan: Plan, loaded: Loaded, text: Sequence[Source], cache_dir: Path, seed: int) -> list[Job]:
    """All jobs, planned before the first is run, so that a length that cannot be measured is told at once."""
    jobs: list[Job] = []
    if plan.passkey is not None:
        jobs += passkey_jobs(plan.passkey, PasskeyTemplate(loaded.tokenizer), seed)
    if not plan.needs_text:
        return jobs
    texts = _texts(loaded, text, cache_dir)
    if plan.perplexity is not None:
        jobs += perplexity_jobs(plan.perplexity, texts, loaded.bos, seed)
    if plan.position is not None:
        jobs += position_jobs(plan.position, texts, loaded.bos, seed)
    if plan.gap is not None:
        jobs += gap_jobs(plan.gap, texts, loaded.bos, seed)
    return jobs


def _texts(loaded: Loaded, text: Sequence[Source], cache_dir: Path) -> Texts:
    weights = loaded.weights
    if text:
        return source_texts(text, loaded.tokenizer, cache_dir)
    if weights.run is None:
        raise EvalError(
            f"{weights.model} is no run and brings no held-out text. Name some with --text, such as --text stdlib."
        )
    prepared = open_prepared(weights.run / "data")
    if prepared.manifest["tokenizer_hash"] != loaded.tokenizer_hash:
        raise EvalError(
            f"the held-out text of run {weights.run.name} was made with another tokenizer than {weights.model} has. "
            "Train the run anew, or name text with --text."
        )
    if not len(prepared.held_out):
        raise EvalError(f"run {weights.run.name} holds out no document. Set data.held_out, or name text with --text.")
    return held_out_texts(prepared.held_out)


def _evaluate_weights(
    loaded: Loaded,
    names: list[str],
    jobs: list[Job],
    out_dir: Path,
    seed: int,
    label: str,
    remaining: int,
    report: Report,
) -> list[Score]:
    scores: list[Score] = []
    done = 0
    for number, name in enumerate(names):
        subject = loaded.use(loaded.method(name))
        identity = _identity(loaded, subject, seed)
        known = _known(out_dir)
        wanted = [job for job in jobs if not (job.one_pass and subject.method.length_dependent)]
        missing = [job for job in wanted if not _hit(known, job, identity)]
        # The total is exact for this method and counts the methods and weights still to come as full ones.
        to_come = (remaining - number - 1) * sum(job.num_tokens for job in jobs)
        total = done + sum(job.num_tokens for job in missing) + to_come
        for job in wanted:
            if hit := _hit(known, job, identity):
                scores += hit
                continue
            what = f"{label} {identity['method']} {job.task} {job.length:,}"
            report(what, 0, total)
            found = job.measure(subject, lambda tokens, what=what, total=total: report(what, tokens, total))
            fresh = [_score(job, measurement, len(found), identity) for measurement in found]
            append_scores(out_dir / f"{job.task}.jsonl", fresh)
            scores += fresh
            done += job.num_tokens
    return scores


def _identity(loaded: Loaded, subject: Subject, seed: int) -> dict[str, str | int]:
    """The fields of a Score that say who was measured."""
    weights = loaded.weights
    return {
        "method": format_method(subject.method),
        "arm": weights.arm,
        "trained_steps": weights.trained_steps,
        "seed": seed,
        "model": weights.model,
        "weights_hash": loaded.weights_hash,
        "rotary_hash": rotary_hash(loaded.model, subject.method),
        "tokenizer_hash": loaded.tokenizer_hash,
        "dtype": loaded.dtype,
    }


KEYED = ("method", "weights_hash", "rotary_hash", "tokenizer_hash", "seed", "dtype")


def _known(out_dir: Path) -> dict[Key, list[Score]]:
    """Scores on disk by what makes them the same measurement."""
    known: dict[Key, list[Score]] = defaultdict(list)
    for score in read_scores(out_dir):
        who = (getattr(score, field) for field in KEYED)
        known[score.task, score.protocol, str(score.extra.get("params")), score.length, score.depth, *who].append(score)
    return known


def _hit(known: dict[Key, list[Score]], job: Job, identity: dict[str, str | int]) -> list[Score]:
    """The scores of a job when all its rows are there, else none."""
    who = (identity[field] for field in KEYED)
    rows = known.get((job.task, job.protocol, job.params, job.length, job.depth, *who), [])
    whole = int(rows[0].extra.get("rows", 1)) if rows else math.inf
    return rows[-int(whole) :] if len(rows) >= whole else []


def _score(job: Job, found: Measurement, rows: int, identity: dict[str, str | int]) -> Score:
    return Score.model_validate(
        {
            **identity,
            "task": job.task,
            "protocol": job.protocol,
            "metric": found.metric,
            "length": found.length,
            "depth": found.depth,
            "value": found.value,
            "low": found.low,
            "high": found.high,
            "n": found.n,
            "correct": found.correct,
            "extra": {**found.extra, "params": job.params, "rows": rows},
        }
    )
