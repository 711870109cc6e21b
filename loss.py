"""The training loss: per-token cross entropy through the head in chunks, so that no T x V tensor is ever made.

Letters: B batch, T position, C tokens of a chunk, D hidden width, V vocabulary.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from .errors import ModelError

IGNORED = -100
"""Label of a position that is not scored."""


class TokenLoss(nn.Module):
    """A causal language model whose output is the negative log-likelihood of every labelled token, in nats.

    It wraps decoder and head so that a training engine sees one module whose forward returns the losses. Scores are
    computed in float32 whatever the model's dtype.
    """

    def __init__(self, model: nn.Module, chunk_tokens: int) -> None:
        super().__init__()
        self.model = model
        self.chunk_tokens = chunk_tokens

    def forward(
        self,
        input_ids_BT: torch.Tensor,
        position_ids_BT: torch.Tensor,
        labels_BT: torch.Tensor,
        attention_mask_BT: torch.Tensor | None,
    ) -> torch.Tensor:
        """Return the losses `nll_BT`, float32, 0 where the label is -100. `labels_BT` are already shifted."""
        decoder, head = decoder_and_head(self.model)
        hidden_BTD = decoder(
            input_ids=input_ids_BT, position_ids=position_ids_BT, attention_mask=attention_mask_BT, use_cache=False
        ).last_hidden_state
        return chunked_nll(head, hidden_BTD, labels_BT, self.chunk_tokens)


def decoder_and_head(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The part that makes hidden states and the part that turns them into logits, of a stock causal model."""
    stock = cast(PreTrainedModel, model.get_base_model() if hasattr(model, "peft_config") else model)  # type: ignore[operator]
    head = stock.get_output_embeddings()
    decoder = stock.base_model
    if not isinstance(head, nn.Module) or decoder is stock:
        raise ModelError(f"{type(stock).__name__}: no separate decoder and output head found; need a causal LM class")
    for key in ("final_logit_softcapping", "logits_scaling", "logit_scale"):
        if getattr(stock.config, key, None) not in (None, 1, 1.0):
            raise ModelError(f"config.{key} = {getattr(stock.config, key)}: models that rescale logits are unsupported")
    return decoder, head


def chunked_nll(head: nn.Module, hidden_BTD: torch.Tensor, labels_BT: torch.Tensor, chunk_tokens: int) -> torch.Tensor:
    """Cross entropy of each position, shape (B, T), with at most `chunk_tokens` rows of logits alive at once."""

    def nll(hidden_CD: torch.Tensor, labels_C: torch.Tensor) -> torch.Tensor:
        logits_CV = head(hidden_CD).float()
        return nn.functional.cross_entropy(logits_CV, labels_C, ignore_index=IGNORED, reduction="none")

    hidden_CD, labels_C = hidden_BTD.flatten(0, 1), labels_BT.flatten()
    if len(labels_C) <= chunk_tokens:  # one chunk: recomputing it in backward would save nothing
        return nll(hidden_CD, labels_C).view_as(labels_BT)
    # Equal numbers of chunks on all ranks (equal T) keep ZeRO-3's gathers of the head in step.
    parts = [
        checkpoint(nll, hidden, labels, use_reentrant=False)
        for hidden, labels in zip(hidden_CD.split(chunk_tokens), labels_C.split(chunk_tokens), strict=True)
    ]
    return torch.cat(cast(list[torch.Tensor], parts)).view_as(labels_BT)
