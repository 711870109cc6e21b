"""Token losses of a model, in batches of equal length, with the head applied to scored positions only, in chunks.

Letters: N rows, B rows of a batch, T positions of a row, K scored positions (its last ones), D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from transformers import PreTrainedModel

from ..loss import decoder_and_head

BATCH_TOKENS = 8192
"""Tokens in one forward pass, unless a single row has more."""
LOGIT_ELEMENTS = 1 << 25
"""Numbers in the largest tensor of logits (128 MiB of float32)."""


@torch.inference_mode()
def last_nll(
    model: PreTrainedModel,
    inputs_NT: np.ndarray,
    targets_NK: np.ndarray,
    positions_T: np.ndarray | None = None,
    advance: Callable[[int], None] | None = None,
) -> np.ndarray:
    """Negative log-likelihood, nats, float32, shape (N, K), of `targets_NK` predicted from the last K positions.

    `positions_T` are the position ids of every row (0..T-1 when None). `advance` is told the tokens of each batch.
    """
    num_rows, num_positions = inputs_NT.shape
    num_scored = targets_NK.shape[1]
    decoder, head = decoder_and_head(model)
    positions_1T = torch.from_numpy(np.arange(num_positions) if positions_T is None else positions_T)[None]
    rows_per_batch = max(1, BATCH_TOKENS // num_positions)
    parts = []
    for first in range(0, num_rows, rows_per_batch):
        rows = slice(first, first + rows_per_batch)
        input_ids_BT = torch.from_numpy(inputs_NT[rows].astype(np.int64)).to(model.device)
        hidden_BTD = decoder(
            input_ids=input_ids_BT,
            position_ids=positions_1T.to(model.device).expand(len(input_ids_BT), -1),
            # All ones: without a mask transformers reads a jump in positions as the border of packed sequences and
            # cuts attention there. It sees that nothing is hidden, and builds no T x T mask.
            attention_mask=torch.ones_like(input_ids_BT),
            use_cache=False,
        ).last_hidden_state
        labels_BK = torch.from_numpy(targets_NK[rows].astype(np.int64)).to(model.device)
        parts.append(_nll(head, hidden_BTD[:, -num_scored:], labels_BK).cpu().numpy())
        if advance is not None:
            advance(input_ids_BT.numel())
    return np.concatenate(parts)


def _nll(head: torch.nn.Module, hidden_BKD: torch.Tensor, labels_BK: torch.Tensor) -> torch.Tensor:
    hidden_CD, labels_C = hidden_BKD.flatten(0, 1), labels_BK.flatten()
    chunk = max(16, LOGIT_ELEMENTS // head.weight.shape[0])  # type: ignore[union-attr]
    parts = [
        torch.nn.functional.cross_entropy(head(hidden).float(), labels, reduction="none")
        for hidden, labels in zip(hidden_CD.split(chunk), labels_C.split(chunk), strict=True)
    ]
    return torch.cat(parts).view_as(labels_BK)
