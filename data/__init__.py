"""Sources -> documents -> windows with document bounds -> batches; position plans.

Names are reached lazily: listing the built-in sources must not load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ..errors import DataError as DataError  # parent-relative on purpose: a bare `import data` must fail

if TYPE_CHECKING:
    from .batch import Batch, attention_inputs
    from .bos import bos_ids
    from .builtin import list_builtin
    from .passkey import PasskeyPrompt, PasskeyTemplate, evaluation_key, training_key
    from .prepared import PreparedData, open_prepared, prepare
    from .sampler import RowSampler
    from .store import TokenStore
    from .tokenizer import tokenizer_from_texts, tokenizer_hash, train_tokenizer

_HOMES = {
    "Batch": "batch",
    "attention_inputs": "batch",
    "bos_ids": "bos",
    "list_builtin": "builtin",
    "PasskeyPrompt": "passkey",
    "PasskeyTemplate": "passkey",
    "evaluation_key": "passkey",
    "training_key": "passkey",
    "PreparedData": "prepared",
    "open_prepared": "prepared",
    "prepare": "prepared",
    "RowSampler": "sampler",
    "TokenStore": "store",
    "tokenizer_from_texts": "tokenizer",
    "tokenizer_hash": "tokenizer",
    "train_tokenizer": "tokenizer",
}

__all__ = [
    "DataError",
    "Batch",
    "attention_inputs",
    "bos_ids",
    "list_builtin",
    "PasskeyPrompt",
    "PasskeyTemplate",
    "evaluation_key",
    "training_key",
    "PreparedData",
    "open_prepared",
    "prepare",
    "RowSampler",
    "TokenStore",
    "tokenizer_from_texts",
    "tokenizer_hash",
    "train_tokenizer",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
