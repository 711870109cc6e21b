"""Greedy answers to prompts of equal length, from one prefill each: teacher forcing first, decoding where that fails.

The prompts of a cell are equal up to the needle line, so where that is a good part of them it is put through the model
once and its keys and values are shared (exact for causal models whose rotation does not depend on the length).

Letters: B prompts, T tokens, A answer tokens, D width, V vocabulary.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from ..data.passkey import PasskeyPrompt
from ..loss import decoder_and_head
from .job import Advance, Subject
from .scorer import BATCH_TOKENS

EXTRA_TOKENS = 8
"""Tokens decoded beyond the answer's own number, for words before the key."""
TIE_STEPS = 2
"""Two logits nearer than this many rounding steps of the model's dtype are a near tie: other kernels may swap them."""

PIECE_TOKENS = 256
"""Tokens read at once after a shared start: there attention needs a dense mask over the whole cache, and the mask of
one large piece costs twice the causal attention it stands for."""
LEAST_SHARED = 1 / 3
"""Smaller shares of a row are read with each row: the masked attention after them costs more than they save."""


@dataclass(frozen=True)
class Answer:
    """How one prompt was answered. `decoded` is only tried, and only true, where `teacher_forced` is false."""

    teacher_forced: bool
    decoded: bool
    near_tie: bool

    @property
    def correct(self) -> bool:
        """The key was given back, spelt either way."""
        return self.teacher_forced or self.decoded


def answer_prompts(subject: Subject, prompts: list[PasskeyPrompt], advance: Advance | None = None) -> list[Answer]:
    """Answers in the order of the prompts. All prompts must have the same number of tokens with their answer."""
    rows_per_batch = max(1, BATCH_TOKENS // (len(prompts[0].input_ids) + len(prompts[0].answer_ids)))
    answers = []
    for first in range(0, len(prompts), rows_per_batch):
        batch = prompts[first : first + rows_per_batch]
        subject.refresh()
        answers += _answer_batch(subject, batch)
        if advance is not None:
            advance(sum(len(prompt.input_ids) + len(prompt.answer_ids) - 1 for prompt in batch))
    return answers


@torch.inference_mode()
def _answer_batch(subject: Subject, prompts: list[PasskeyPrompt]) -> list[Answer]:
    rows_BT = np.array([[*prompt.input_ids, *prompt.answer_ids[:-1]] for prompt in prompts], dtype=np.int64)
    num_answer_B = [len(prompt.answer_ids) for prompt in prompts]
    longest = max(num_answer_B)
    decoder = Decoder(subject)
    shared = 0 if subject.method.length_dependent else _shared_tokens(rows_BT, rows_BT.shape[1] - longest)
    if shared:
        decoder.read(rows_BT[:1, :shared])
        decoder.repeat(len(prompts))
    step = PIECE_TOKENS if shared else rows_BT.shape[1]
    pieces = [decoder.read(rows_BT[:, start : start + step]) for start in range(shared, rows_BT.shape[1], step)]
    hidden_BTD = torch.cat(pieces, dim=1)
    logits_BAV = decoder.head(hidden_BTD[:, -longest:]).float()
    top = logits_BAV.topk(2, dim=-1)
    guess_BA, values_BA2 = top.indices[..., 0].cpu().numpy(), top.values.cpu().numpy()
    eps = torch.finfo(subject.model.dtype).eps
    tie_BA = values_BA2[..., 0] - values_BA2[..., 1] <= TIE_STEPS * eps * np.abs(values_BA2[..., 0])
    forced = [
        guess[longest - n :].tolist() == prompt.answer_ids
        for guess, n, prompt in zip(guess_BA, num_answer_B, prompts, strict=True)
    ]
    near = [bool(tie[longest - n :].any()) for tie, n in zip(tie_BA, num_answer_B, strict=True)]
    read = [False] * len(prompts)
    # Cached keys of a length-dependent method were rotated for another length, so nothing is decoded from them.
    if not subject.method.length_dependent:
        for n in sorted(set(num_answer_B)):
            missed = [row for row, ok in enumerate(forced) if not ok and num_answer_B[row] == n]
            if missed:
                branch = decoder.branch(missed, rows_BT.shape[1] - (n - 1))
                found = _first_integers(branch, subject.tokenizer, guess_BA[missed, longest - n], n + EXTRA_TOKENS)
                for row, number in zip(missed, found, strict=True):
                    read[row] = number == prompts[row].key
    return [Answer(*one) for one in zip(forced, read, near, strict=True)]


def _shared_tokens(rows_BT: np.ndarray, most: int) -> int:
    """Leading tokens that all rows have in common, at most `most`; 0 where sharing them would save nothing."""
    if len(rows_BT) == 1:
        return 0
    differs_T = (rows_BT != rows_BT[:1]).any(axis=0)
    shared = min(most, int(differs_T.argmax()) if differs_T.any() else len(differs_T))
    return shared if shared >= LEAST_SHARED * rows_BT.shape[1] else 0


class Decoder:
    """A model's decoder with the keys and values of what it has read so far."""

    def __init__(self, subject: Subject) -> None:
        self.model = subject.model
        self.decoder, self.head = decoder_and_head(subject.model)
        self.cache = DynamicCache()
        # transformers 5 renamed the argument on the way.
        names = inspect.signature(self.decoder.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"

    def read(self, ids_BT: np.ndarray) -> torch.Tensor:
        """Read on, at the next positions; returns hidden_BTD of the new tokens."""
        start = self.cache.get_seq_length()
        input_ids_BT = torch.from_numpy(ids_BT.astype(np.int64)).to(self.model.device)
        positions_1T = torch.arange(start, start + ids_BT.shape[1], device=self.model.device)[None]
        cache = {self._cache_name: self.cache}
        output = self.decoder(input_ids=input_ids_BT, position_ids=positions_1T, use_cache=True, **cache)
        return output.last_hidden_state

    def repeat(self, count: int) -> None:
        """Make the one row read so far the start of `count` rows."""
        self.cache.batch_repeat_interleave(count)

    def branch(self, rows: list[int], num_tokens: int) -> Decoder:
        """Another decoder that has read only the first `num_tokens` tokens of these rows."""
        twin = Decoder.__new__(Decoder)
        twin.__dict__.update(self.__dict__)
        twin.cache = DynamicCache()
        layers: list[Any] = self.cache.layers
        for index, layer in enumerate(layers):
            twin.cache.update(layer.keys[rows, :, :num_tokens], layer.values[rows, :, :num_tokens], index)
        return twin


def _first_integers(
    decoder: Decoder, tokenizer: PreTrainedTokenizerBase, first_B: np.ndarray, num_tokens: int
) -> list[str | None]:
    """The first integer in each row's greedy continuation of `num_tokens` tokens, the first of which is known."""
    ids_BT = first_B[:, None]
    while True:
        texts = [str(tokenizer.decode(ids)) for ids in ids_BT.tolist()]
        ended = [re.search(r"\d+\D", text) for text in texts]
        if ids_BT.shape[1] == num_tokens or all(ended):
            numbers = [re.search(r"\d+", text) for text in texts]
            return [number.group() if number else None for number in numbers]
        hidden_B1D = decoder.read(ids_BT[:, -1:])
        next_B = decoder.head(hidden_B1D[:, -1]).argmax(-1).cpu().numpy()
        ids_BT = np.concatenate([ids_BT, next_B[:, None]], axis=1)
