"""Passkey retrieval: does the model give back a number hidden in filler, at this length and depth?

Protocol `exact`: prompt and answer are exactly `length` tokens, opened by one bos, with keys of a fixed number of
digits that training never sees. The same prompts for every method. A trial is right when the model's greedy answer is
the key's own tokens (scored by teacher forcing, one prefill), or else when the first integer it goes on to write is the
key: a tokenizer may spell one number in several ways. Both counts are recorded.
"""

from __future__ import annotations

from functools import partial

from ..config import PasskeyTask
from ..data.passkey import PasskeyTemplate, evaluation_key
from .answer import Answer, answer_prompts
from .job import Advance, Job, Measurement, Subject
from .score import wilson

VERSION = 1
"""Of wording and key choice; a new one makes old scores another measurement."""


def passkey_jobs(task: PasskeyTask, template: PasskeyTemplate, seed: int) -> list[Job]:
    """One job a cell of the length x depth grid, shortest lengths first.

    DataError at once, before anything is measured, when a length is shorter than the fixed parts of the prompt.
    """
    jobs = []
    settings = f"trials={task.trials},digits={task.digits},version={VERSION}"
    for length in sorted(set(task.lengths)):
        template.build(length, 0.0, cell_keys(task, length, 0.0, seed)[0])
        for depth in sorted(set(task.depths)):
            measure = partial(_measure, task, template, length, depth, seed)
            jobs.append(Job("passkey", "exact", settings, length, task.trials * (length - 1), measure, depth))
    return jobs


def cell_keys(task: PasskeyTask, length: int, depth: float, seed: int) -> list[str]:
    """The keys of one cell. Every cell has its own; more trials keep the earlier ones."""
    cell = length * 1001 + round(1000 * depth)
    return [evaluation_key(seed, cell * 10_000 + trial, task.digits) for trial in range(task.trials)]


def _measure(
    task: PasskeyTask,
    template: PasskeyTemplate,
    length: int,
    depth: float,
    seed: int,
    subject: Subject,
    advance: Advance,
) -> list[Measurement]:
    prompts = [template.build(length, depth, key) for key in cell_keys(task, length, depth, seed)]
    answers = answer_prompts(subject, prompts, advance)
    correct, n = sum(answer.correct for answer in answers), len(answers)
    low, high = wilson(correct, n)
    extra = _details(answers, task.digits)
    return [Measurement("accuracy", length, correct / n, low, high, n, depth, correct, extra)]


def _details(answers: list[Answer], digits: int) -> dict[str, float | int | str]:
    return {
        "teacher_forced": sum(answer.teacher_forced for answer in answers),
        "decoded": sum(answer.decoded for answer in answers),
        "near_ties": sum(answer.near_tie for answer in answers),
        # Trial by trial, so that two methods can be compared on the same prompts (McNemar).
        "outcomes": "".join("1" if answer.correct else "0" for answer in answers),
        "digits": digits,
    }
