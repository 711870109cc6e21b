"""Passkey scoring with the shared start of the prompts read once, against each prompt scored by itself.

The prompts of a cell are equal up to the needle line, so the deeper the key, the more is shared: nothing at depth 0,
nearly all at depth 1. The untrained model answers nothing at the timed length, so that the verdicts are the same is
also asserted around the base's own window, where some answers are right and some are wrong.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from common import Bench, alternate

from ropewalk.config import PasskeyTask
from ropewalk.data import PasskeyTemplate
from ropewalk.data.passkey import PasskeyPrompt
from ropewalk.eval.answer import Answer, answer_prompts
from ropewalk.eval.job import Subject
from ropewalk.eval.load import find_weights, load
from ropewalk.eval.passkey import cell_keys

LENGTH = 2048
NEAR_WINDOW = (256, 288, 320)
TRIALS = 4
REPETITIONS = 3

Cells = list[list[PasskeyPrompt]]


def main() -> None:
    """Measure and judge."""
    torch.set_num_threads(1)
    base = Path(__file__).parents[1] / "assets" / "tiny-base"
    with tempfile.TemporaryDirectory() as cache:
        loaded = load(find_weights(base)[0], Path(cache))
    template = PasskeyTemplate(loaded.tokenizer)

    own = loaded.use(loaded.method("none"))
    near = same_verdicts(shared(own, cells := grid(template, NEAR_WINDOW))(), alone(own, cells)())
    right = sum(answer.correct for answer in near)
    assert 0 < right < len(near), "the verdicts compared are all of one kind"

    extended = loaded.use(loaded.method("yarn:8"))
    cells = grid(template, (LENGTH,))
    timed = alternate({"shared": shared(extended, cells), "alone": alone(extended, cells)}, REPETITIONS)
    ours, peer = timed["shared"], timed["alone"]
    same_verdicts(ours.result, peer.result)
    Bench(
        name="passkey_prefix_sharing",
        compared="eval's passkey scoring of whole cells, against the same code given one prompt at a time",
        on=f"tiny-base with yarn:8, five depths x {TRIALS} trials of {LENGTH:,} tokens, one thread",
        goal=1.2,
    ).finish(
        peer.median / ours.median,
        {
            "shared_s": round(ours.median, 2),
            "alone_s": round(peer.median, 2),
            "repetitions": REPETITIONS,
            "verdicts_compared": len(ours.result) + len(near),
            "right_among_them": right + sum(answer.correct for answer in ours.result),
        },
    )


def grid(template: PasskeyTemplate, lengths: tuple[int, ...]) -> Cells:
    """The prompts of each length and depth, as `ropewalk eval` asks them."""
    task = PasskeyTask(lengths=lengths, trials=TRIALS)
    return [
        [template.build(length, depth, key) for key in cell_keys(task, length, depth, seed=1)]
        for length in lengths
        for depth in task.depths
    ]


def shared(subject: Subject, cells: Cells) -> Callable[[], list[Answer]]:
    """Whole cells at once."""
    return lambda: [answer for cell in cells for answer in answer_prompts(subject, cell)]


def alone(subject: Subject, cells: Cells) -> Callable[[], list[Answer]]:
    """One prompt at a time: a single prompt shares nothing."""
    return lambda: [answer for cell in cells for prompt in cell for answer in answer_prompts(subject, [prompt])]


def same_verdicts(ours: list[Answer], peer: list[Answer]) -> list[Answer]:
    """`ours`, once each verdict is known to equal the peer's; near ties may fall either way and are left out."""
    for one, other in zip(ours, peer, strict=True):
        assert one.near_tie or other.near_tie or one == other, f"sharing changed {other} to {one}"
    return ours


if __name__ == "__main__":
    main()
