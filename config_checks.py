"""Checks between fields of a recipe: each is a pure function of the sections it needs, so it runs even when another
section is broken, and all faults of a recipe are told at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import MethodError
from .positional import parse_method
from .positional.base import BaseRope

if TYPE_CHECKING:
    from .config import CheckpointSection, DataSection, EvalSection, ModelSection, RopeSection, RowPlan, TrainSection

ABSENT = object()
"""Value of a problem whose field is not in the recipe."""


@dataclass(frozen=True)
class Problem:
    """One fault: the path of the field, the value found there (or ABSENT), and what to set instead."""

    path: tuple[str | int, ...]
    found: object
    message: str

    @property
    def field(self) -> str:
        return ".".join(map(str, self.path))

    def __str__(self) -> str:
        return f"{self.field}{'' if self.found is ABSENT else f' = {self.found!r}'}: {self.message}"


class CrossFieldError(ValueError):
    """Fields that are each in order but do not go together."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def cross_field_problems(sections: Mapping[str, Any]) -> list[Problem]:
    """Every fault between the given sections of a RunConfig; checks that need an absent section are left out."""
    return [
        problem
        for check, needs in CHECKS.items()
        if all(name in sections for name in needs)
        for problem in check(*(sections[name] for name in needs))
    ]


def check_rope(rope: RopeSection) -> Iterator[Problem]:
    """The method can be read, suits training, and leads from the original window to the target window."""
    original, target = rope.original_window, rope.target_window
    if target < original:
        yield Problem(
            ("rope", "target_window"),
            target,
            f"is below rope.original_window = {original}; set it to {original} or more",
        )
        return
    path = ("rope", "method")
    try:
        method = parse_method(rope.method, default_factor=target / original)
    except MethodError as error:
        yield Problem(path, rope.method, str(error))
        return
    if method.length_dependent:
        yield Problem(
            path,
            rope.method,
            "its frequencies change with the length of each input, so it can be evaluated but neither trained nor "
            "published; set a static method such as `ntk` or `yarn`",
        )
        return
    reached = method.target_window(BaseRope(theta=10000.0, head_dim=128, window=original))  # the factor alone counts
    if reached != target and rope.method.strip() != "none":
        yield Problem(
            path,
            rope.method,
            f"leads from rope.original_window = {original} to {reached} tokens, but rope.target_window = {target}; "
            f"set the factor {target / original:g} (or leave it out), or rope.target_window: {reached}",
        )


def check_model(model: ModelSection, finetune: Any, rope: RopeSection) -> Iterator[Problem]:
    """A fresh model is trained whole, with its own tokenizer, at its own window."""
    if model.attention == "flash_attention_2" and model.dtype == "float32":
        yield Problem(("model", "attention"), model.attention, "needs model.dtype: bfloat16, found float32")
    if model.fresh is None:
        return
    if finetune.kind == "lora":
        yield Problem(
            ("finetune", "kind"), "lora", "a fresh model has no pretrained weights to adapt; set finetune.kind: full"
        )
    for name in ("revision", "tokenizer"):
        if (value := getattr(model, name)) is not None:
            yield Problem(("model", name), value, f"model.fresh trains its own tokenizer from text; leave {name} out")
    if rope.replace_existing:
        yield Problem(("rope", "replace_existing"), True, "a fresh model has no scaling to replace; leave it out")


def check_steps(train: TrainSection, checkpoint: CheckpointSection) -> Iterator[Problem]:
    """Warm-up and exports lie inside the run; micro batches fill a step exactly."""
    if train.warmup_steps >= train.steps:
        yield Problem(
            ("train", "warmup_steps"),
            train.warmup_steps,
            f"is not below train.steps = {train.steps}; set at most {train.steps - 1}",
        )
    if train.tokens_per_step % train.micro_batch_tokens:
        whole = max(1, round(train.tokens_per_step / train.micro_batch_tokens)) * train.micro_batch_tokens
        yield Problem(
            ("train", "tokens_per_step"),
            train.tokens_per_step,
            f"is not a multiple of train.micro_batch_tokens = {train.micro_batch_tokens}; set for example {whole}",
        )
    for index, step in enumerate(checkpoint.export_steps):
        if step > train.steps:
            yield Problem(
                ("checkpoint", "export_steps", index),
                step,
                f"is after the last step, train.steps = {train.steps}; leave it out or train longer",
            )


def check_rows(rope: RopeSection, data: DataSection, train: TrainSection) -> Iterator[Problem]:
    """Rows fit micro batch and window, and every step has at least one kind of rows."""
    for index, plan in enumerate(data.rows):
        path = ("data", "rows", index)
        if plan.tokens > train.micro_batch_tokens:
            yield Problem(
                (*path, "tokens"),
                plan.tokens,
                f"a row does not fit train.micro_batch_tokens = {train.micro_batch_tokens}; raise that to "
                f"{plan.tokens} or shorten the row",
            )
        yield from _row_window(plan, path, rope)
        if plan.first_step >= train.steps:
            yield Problem(
                (*path, "first_step"),
                plan.first_step,
                f"the run has only train.steps = {train.steps}, so these rows are never used; set it lower",
            )
        if plan.last_step is not None and plan.last_step > train.steps:
            yield Problem(
                (*path, "last_step"), plan.last_step, f"is after train.steps = {train.steps}; leave it out for the end"
            )
    if (gap := _step_without_rows(data.rows, train.steps)) is not None:
        yield Problem(
            ("data", "rows"),
            ABSENT,
            f"no rows for step {gap}; let one plan's first_step and last_step (excluded) cover it",
        )


def _row_window(plan: RowPlan, path: tuple[str | int, ...], rope: RopeSection) -> Iterator[Problem]:
    target = rope.target_window
    if plan.positions == "dense" and plan.tokens > target:
        yield Problem(
            (*path, "tokens"),
            plan.tokens,
            f"a dense row is longer than rope.target_window = {target}; set at most that",
        )
    if plan.positions == "skip-wise" and plan.tokens >= target:
        yield Problem(
            (*path, "positions"),
            plan.positions,
            f"rows of {plan.tokens} tokens leave no room for a jump inside rope.target_window = {target}; "
            "set positions: dense or fewer tokens",
        )


def _step_without_rows(plans: tuple[RowPlan, ...], steps: int) -> int | None:
    """The first step (counted from 0) in which no plan takes part."""
    starts = {0} | {plan.last_step for plan in plans if plan.last_step is not None}
    for step in sorted(step for step in starts if step < steps):
        if not any(plan.first_step <= step < (plan.last_step or steps) for plan in plans):
            return step
    return None


def check_sources(data: DataSection, evaluation: EvalSection) -> Iterator[Problem]:
    """There is text on each side that is used: training, and held out where text is evaluated."""
    held_out = any(s.use == "held-out" or (s.use == "split" and data.held_out > 0) for s in data.sources)
    if not any(s.use == "train" or (s.use == "split" and data.held_out < 1) for s in data.sources):
        yield Problem(
            ("data", "sources"), ABSENT, "every source is held out, none is left to train on; give one `use: train`"
        )
    for name in ("perplexity", "gap"):
        if getattr(evaluation, name) is not None and not held_out:
            yield Problem(
                ("eval", name),
                ABSENT,
                "needs held-out text, but no source has any; give one `use: held-out`, or `use: split` with "
                "data.held_out above 0",
            )
    for index, source in enumerate(data.sources):
        if source.max_chars is not None and source.max_chars < source.min_chars:
            yield Problem(
                ("data", "sources", index, "max_chars"),
                source.max_chars,
                f"is below min_chars = {source.min_chars}, so no document is kept",
            )


def check_eval(rope: RopeSection, evaluation: EvalSection) -> Iterator[Problem]:
    """Nothing is measured beyond the target window unless the recipe says so."""
    target = rope.target_window
    perplexity = evaluation.perplexity
    if perplexity is not None and perplexity.stride >= min(perplexity.lengths):
        yield Problem(
            ("eval", "perplexity", "stride"),
            perplexity.stride,
            f"must be below the shortest length, {min(perplexity.lengths)}: the tokens scored need some before them",
        )
    if evaluation.beyond_target:
        return
    for path, tokens, found in _eval_lengths(evaluation):
        if tokens > target:
            yield Problem(
                path,
                found,
                f"reaches {tokens} tokens, beyond rope.target_window = {target}; lower it, or set "
                "eval.beyond_target: true if you mean to measure there",
            )


def _eval_lengths(evaluation: EvalSection) -> Iterator[tuple[tuple[str | int, ...], int, int]]:
    """Path, tokens reached and value of every length that is evaluated."""
    for name in ("perplexity", "passkey"):
        if (task := getattr(evaluation, name)) is not None:
            for index, length in enumerate(task.lengths):
                yield ("eval", name, "lengths", index), length, length
    if (probe := evaluation.gap) is not None:
        for index, gap in enumerate(probe.gaps):
            yield ("eval", "gap", "gaps", index), gap + probe.context_tokens + probe.target_tokens, gap


CHECKS: dict[Callable[..., Iterator[Problem]], tuple[str, ...]] = {
    check_rope: ("rope",),
    check_model: ("model", "finetune", "rope"),
    check_steps: ("train", "checkpoint"),
    check_rows: ("rope", "data", "train"),
    check_sources: ("data", "eval"),
    check_eval: ("rope", "eval"),
}
"""Each check with the sections it reads."""
