"""Passkey prompts built in token space: a number hidden in filler, to the exact token at any length and depth.

The shape is that of Landmark Attention (arXiv:2305.16300) and PI (arXiv:2306.15595): an instruction, filler sentences,
one line that states the number twice, filler, a question. The wording is our own and short, so that a prompt fits in
about a hundred tokens of a small tokenizer.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..errors import DataError
from .bos import bos_ids, plain_ids

if TYPE_CHECKING:
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase

INSTRUCTION = "One passkey is hidden in this text. Remember it.\n"
FILLER = " The hills are quiet. The water is cold. Birds fly over the road. We walk on and rest."
NEEDLE = "\nThe passkey is {key}. Remember it: {key}.\n"
QUESTION = "\nWhat is the passkey? The passkey is"
LINE_BEFORE = "x\n"
SAMPLE_KEYS = 32
"""Keys tried to find how many tokens a key takes at most in a tokenizer that groups digits."""


@dataclass(frozen=True)
class PasskeyPrompt:
    """A prompt and its answer. `input_ids[needle_start:needle_end]` is the line that holds the key.

    The question that ends the prompt begins at `question_start`.
    """

    input_ids: np.ndarray
    answer_ids: list[int]
    needle_start: int
    needle_end: int
    key: str
    question_start: int


@dataclass(frozen=True)
class PasskeyTemplate:
    """The parts of a passkey prompt in one tokenizer's ids.

    Tokenizers that give each digit its own token make all keys equally hard; others are allowed, and then answers have
    as many tokens as the tokenizer makes of them.
    """

    tokenizer: PreTrainedTokenizerBase

    def shortest_tokens(self, digits: int) -> int:
        """The least `length_tokens` (prompt and answer) that `build` takes for keys of so many digits."""
        rng = np.random.default_rng(0)
        keys = [_random_key(rng, digits) for _ in range(SAMPLE_KEYS)]
        return max(self._fixed_tokens(self._needle(key), self._answer(key)) for key in keys)

    def build(self, length_tokens: int, depth: float, key: str) -> PasskeyPrompt:
        """The prompt whose ids and answer ids are `length_tokens` together; it opens with the tokenizer's bos, if any.

        `depth` 0 puts the needle line at the start of the filler, 1 at its end. Raises DataError when the fixed parts
        alone are longer, or `depth` or `key` is out of range.
        """
        if not 0 <= depth <= 1:
            raise DataError(
                f"passkey depth {depth} is outside 0..1. Give the share of filler that comes before the key."
            )
        if not (key.isascii() and key.isdigit()):
            raise DataError(f"passkey {key!r} is not a number. Give a string of digits.")
        needle, answer = self._needle(key), self._answer(key)
        room = length_tokens - self._fixed_tokens(needle, answer)
        if room < 0:
            raise DataError(
                f"a passkey prompt of {length_tokens} tokens is too short: with this tokenizer and {len(key)} digits "
                f"its fixed parts alone take {length_tokens - room}. Ask for at least {length_tokens - room} tokens."
            )
        before = round(depth * room)
        filler = self._filler(room)
        opening = [*self._head, *filler[:before]]
        ids = [*opening, *needle, *filler[before:], *self._question]
        needle_end = len(opening) + len(needle)
        question_start = len(ids) - len(self._question)
        return PasskeyPrompt(np.array(ids, dtype=np.int64), answer, len(opening), needle_end, key, question_start)

    def _fixed_tokens(self, needle: list[int], answer: list[int]) -> int:
        return len(self._head) + len(needle) + len(self._question) + len(answer)

    def _continued(self, text: str) -> list[int]:
        """The ids of `text` where it follows a line: without the space some tokenizers put before a first word."""
        joined = plain_ids(self.tokenizer, LINE_BEFORE + text)
        line = self._line_before
        return joined[len(line) :] if joined[: len(line)] == line else plain_ids(self.tokenizer, text)

    @cached_property
    def _line_before(self) -> list[int]:
        return plain_ids(self.tokenizer, LINE_BEFORE)

    def _filler(self, count: int) -> list[int]:
        cycle = self._cycle
        return (cycle * (count // len(cycle) + 1))[:count]

    def _needle(self, key: str) -> list[int]:
        return self._continued(NEEDLE.format(key=key))

    def _answer(self, key: str) -> list[int]:
        whole = self._continued(f"{QUESTION} {key}")
        prefix = self._question
        if whole[: len(prefix)] != prefix:
            raise DataError(
                f"tokenizer {self.tokenizer.name_or_path!r} merges the passkey {key} with the words before it, so "
                "question and answer cannot be told apart. Use a tokenizer that splits before digits."
            )
        return whole[len(prefix) :]

    @cached_property
    def _head(self) -> list[int]:
        return bos_ids(self.tokenizer) + plain_ids(self.tokenizer, INSTRUCTION)

    @cached_property
    def _cycle(self) -> list[int]:
        return self._continued(FILLER)

    @cached_property
    def _question(self) -> list[int]:
        # The space before the digits belongs to the question where it is a token of its own, so that the answer is
        # digits only; where it is merged with the first digits it belongs to the answer.
        wholes = [self._continued(f"{QUESTION} {digit}0000") for digit in "1234567890"]
        shared = 0
        while all(shared < len(ids) and ids[shared] == wholes[0][shared] for ids in wholes):
            shared += 1
        return wholes[0][:shared]


def training_key(rng: np.random.Generator, digits: int) -> str:
    """A random key from the half of all keys that is kept for training."""
    while is_evaluation_key(key := _random_key(rng, digits)):
        pass
    return key


def evaluation_key(seed: int, index: int, digits: int) -> str:
    """The `index`-th key of an evaluation, from the half of all keys that training never sees."""
    rng = np.random.default_rng([seed, index, digits])
    while not is_evaluation_key(key := _random_key(rng, digits)):
        pass
    return key


def is_evaluation_key(key: str) -> bool:
    """Whether the key is kept for evaluation: by the parity of a hash of its digits."""
    return hashlib.sha256(key.encode()).digest()[0] % 2 == 1


def _random_key(rng: np.random.Generator, digits: int) -> str:
    """`digits` random digits, the first one not 0, so that a key is equal to the number it is read as."""
    return str(rng.integers(1, 10)) + "".join(map(str, rng.integers(0, 10, digits - 1)))
