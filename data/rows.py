"""Training rows: T + 1 tokens that become T inputs and T labels, with the positions of the row's plan.

Every token of a row is learnt: of a passkey row the filler too, of a repeat row both occurrences. A passkey row always
labels all of its answer, a repeat row all of its second occurrence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..config import RowPlan
from .passkey import PasskeyTemplate, training_key
from .positions import dense, skip_wise

JUMP_BETWEEN = 0.9
"""Share of the skip-wise passkey and repeat rows whose jump lies between what is to be recalled and its recall."""


@dataclass(frozen=True)
class Row:
    """One row: `ids` (T + 1), and the range of tokens (both ends included) a jump should begin at, if any."""

    ids: np.ndarray
    kind: str
    recall: tuple[int, int] | None = None


def text_row(bos: list[int], window: np.ndarray) -> Row:
    """A window of a document after the bos."""
    return Row(np.concatenate([np.array(bos, dtype=np.int64), window]), "text")


def passkey_row(rng: np.random.Generator, template: PasskeyTemplate, num_tokens: int, digits: int) -> Row:
    """A passkey prompt with its answer, a key evaluation never uses, at a depth drawn evenly."""
    prompt = template.build(num_tokens + 1, rng.random(), training_key(rng, digits))
    ids = np.concatenate([prompt.input_ids, np.array(prompt.answer_ids, dtype=np.int64)])
    return Row(ids, "passkey", (prompt.needle_end, prompt.question_start))


def repeat_row(rng: np.random.Generator, bos: list[int], window: np.ndarray) -> Row:
    """A window in which a random segment comes twice, with text before, between and after; no longer than a text row.

    The segment takes an eighth to a half of the row. The end of the window gives way to the second occurrence.
    """
    size = len(window)
    segment_tokens = int(rng.integers(max(2, size // 8), size // 2 + 1))
    lead, second = sorted(int(cut) for cut in rng.integers(0, size - 2 * segment_tokens + 1, 2))
    text = window[: size - segment_tokens]
    first_end, second_start = lead + segment_tokens, second + segment_tokens
    segment = text[lead:first_end]
    ids = np.concatenate([np.array(bos, dtype=np.int64), text[:second_start], segment, text[second_start:]])
    return Row(ids, "repeat", (len(bos) + first_end, len(bos) + second_start))


def positions(rng: np.random.Generator, row: Row, plan: RowPlan, target_window: int) -> np.ndarray:
    """The position ids (T,) of a row under its plan."""
    num_tokens = len(row.ids) - 1
    if plan.positions == "dense":
        return dense(num_tokens)
    cut_between = row.recall if row.recall is not None and rng.random() < JUMP_BETWEEN else None
    return skip_wise(rng, num_tokens, target_window, plan.ends, cut_between)
