"""What one forward pass reads. Letters: B rows of a batch, T tokens of a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

import torch

IGNORED = -100
"""Label of a position that is not scored (torch's own default for ignored targets)."""


@dataclass(frozen=True)
class Batch:
    """Rows of equal length with their positions and their targets, all int64 of shape (B, T).

    `labels_BT[b, t]` is the token to be predicted *from* position t: the shift has been done. IGNORED where nothing is
    to be predicted. `kinds_B` says of each row whether it is "text", "passkey" or "repeat".
    """

    input_ids_BT: torch.Tensor
    position_ids_BT: torch.Tensor
    labels_BT: torch.Tensor
    kinds_B: tuple[str, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens that go through the model."""
        return self.input_ids_BT.numel()


class AttentionInputs(TypedDict):
    """Keyword arguments of a transformers causal LM."""

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    attention_mask: torch.Tensor


def attention_inputs(batch: Batch) -> AttentionInputs:
    """The batch as a transformers model takes it: every token sees all tokens before it in its row.

    The all-ones mask is needed. Without any mask, and without a cache, transformers reads a jump in `position_ids` as
    the border of two packed sequences and cuts attention there, which undoes skip-wise training without a word. With
    it, sdpa still takes its fast causal path, since a mask of ones hides nothing.
    """
    return {
        "input_ids": batch.input_ids_BT,
        "position_ids": batch.position_ids_BT,
        "attention_mask": torch.ones_like(batch.input_ids_BT),
    }
