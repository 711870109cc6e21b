"""What belongs at position 0 of every window and every prompt, decided in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..errors import DataError

if TYPE_CHECKING:
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase


def bos_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The ids that open every window and prompt: [bos] where the tokenizer has a bos token, else [].

    Whether the tokenizer adds it by itself (an option, a post-processor) or not makes no difference: ours are built
    from `plain_ids`, so there is exactly one. DataError when the tokenizer opens texts with something else.
    """
    bos = cast("int | None", tokenizer.bos_token_id)
    plain = plain_ids(tokenizer, "a")
    dressed = cast(list[int], tokenizer("a", add_special_tokens=True)["input_ids"])
    if dressed[: len(plain)] != plain and dressed[0] != bos:
        raise DataError(
            f"tokenizer {tokenizer.name_or_path!r} opens a text with the id {dressed[0]}, but its bos token is {bos}. "
            "Use the tokenizer of a causal language model, or set its bos_token."
        )
    return [] if bos is None else [bos]


def plain_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """The ids of `text` alone: no bos, no eos, and no warning about the model's length."""
    return cast(list[int], tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def with_bos(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> list[int]:
    """`ids` opened by exactly one bos (none if the tokenizer has none), however many they were opened by before."""
    bos = bos_ids(tokenizer)
    start = 0
    while bos and start < len(ids) and ids[start] == bos[0]:
        start += 1
    return bos + ids[start:]
