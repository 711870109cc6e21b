"""Opening what a folder or the model hub holds: config, tokenizer, weights; each fault as one ModelError."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
)
from transformers.configuration_utils import PreTrainedConfig
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from .config import ModelSection
from .errors import ModelError
from .hub import hub_answers
from .positional.schema import flat_rope
from .recipe_file import resolve_path

TOKENIZER_FILES = ("tokenizer*", "vocab*", "*.model", "*.tiktoken")


def load_config(section: ModelSection) -> PreTrainedConfig:
    """The config of `model.base`; ModelError says what to do when it is not there or not ours to read."""
    assert section.base is not None
    with _loading(section, section.base, "config.json"):
        where: dict[str, Any] = {
            "revision": section.revision,
            "local_files_only": _is_hub_id(section.base) and not hub_answers(),
        }
        # As written: where the two schemas disagree, the config object has already dropped one of them.
        written, _ = PreTrainedConfig.get_config_dict(_location(section.base), **where)
        try:
            flat_rope(written)
        except ModelError as error:
            raise ModelError(f"model {section.base}: {error}") from error
        config = AutoConfig.from_pretrained(
            _location(section.base), trust_remote_code=section.trust_remote_code, **where
        )
    own_code = getattr(config, "auto_map", None) or {}
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and "AutoModelForCausalLM" not in own_code:
        raise ModelError(
            f"model {section.base} is of type {config.model_type!r}, which transformers has no causal language model "
            "for. Give a model that continues text, such as a Llama, Mistral, Qwen, Phi-3 or GPT-NeoX."
        )
    return config


def load_tokenizer(section: ModelSection) -> PreTrainedTokenizerBase:
    """The tokenizer of `model.tokenizer`, or of `model.base`."""
    name = section.tokenizer or section.base
    assert name is not None
    with _loading(section, name, "a tokenizer"):
        return AutoTokenizer.from_pretrained(
            _location(name),
            revision=section.revision if section.tokenizer is None else None,
            trust_remote_code=section.trust_remote_code,
            local_files_only=_is_hub_id(name) and not hub_answers(),
        )


def load_weights(section: ModelSection, config: PreTrainedConfig, dtype: torch.dtype | str) -> PreTrainedModel:
    """The weights of `model.base` in a model built from `config`, on the CPU (or partitioned under ZeRO 3)."""
    assert section.base is not None
    with _loading(section, section.base, "weights"):
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            _location(section.base),
            config=config,
            dtype=dtype,
            revision=section.revision,
            trust_remote_code=section.trust_remote_code,
            local_files_only=_is_hub_id(section.base) and not hub_answers(),
            use_safetensors=True,  # never unpickle a file we did not write
            output_loading_info=True,
        )
        model, info = loaded
    missing = sorted(info["missing_keys"])
    wrong = sorted(str(key) for key in info["mismatched_keys"])
    if missing or wrong:
        raise ModelError(
            f"{section.base}: weights do not fit its config. Missing: {missing[:5]}; wrong shape: {wrong[:5]}. "
            "Use a complete checkpoint."
        )
    return model


def _is_hub_id(name: str) -> bool:
    return not Path(_location(name)).exists()


def _location(name: str) -> str:
    return str(resolve_path(name))


class _loading:
    """Turn what transformers and the hub client raise into one clear ModelError that names the model."""

    def __init__(self, section: ModelSection, name: str, what: str) -> None:
        self.section, self.name, self.what = section, name, what

    def __enter__(self) -> None:
        path = Path(_location(self.name))
        if path.exists() and not path.is_dir():
            raise ModelError(f"model {self.name} is a file; give the folder that holds config.json")
        if self.what != "a tokenizer" and path.is_dir() and not (path / "config.json").exists():
            raise ModelError(f"model folder {self.name} holds no config.json. Give a transformers model folder.")
        if self.what == "a tokenizer" and path.is_dir() and not any(any(path.glob(p)) for p in TOKENIZER_FILES):
            raise ModelError(
                f"folder {self.name} holds no tokenizer ({', '.join(TOKENIZER_FILES)}). Set model.tokenizer to the "
                "folder or hub id of the tokenizer this model was trained with."
            )
        looks_local = self.name.startswith((".", "/", "~")) or self.name.count("/") != 1
        if not path.exists() and looks_local:
            raise ModelError(
                f"model folder {self.name} does not exist. Give an existing folder or a hub id owner/name."
            )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is None or not isinstance(error, OSError | ValueError | KeyError | RuntimeError | SafetensorError):
            return
        if isinstance(error, ModelError):
            return
        lines = str(error).strip().splitlines() or [kind.__name__]
        text = lines[0].rstrip(" :.")
        if "trust_remote_code" in str(error):
            hint = "It brings its own Python code; if you trust it, set model.trust_remote_code: true."
        elif _is_hub_id(self.name) and not hub_answers():
            text = "nothing is at this path, the model hub does not answer, and no earlier download left it here"
            hint = "Check the name and the network, or give a folder."
        elif _is_hub_id(self.name):
            hint = "Nothing is at this path either: check the name and, for gated models, your login."
        elif self.what == "a tokenizer":
            hint = "Its tokenizer files are damaged, or of a kind that transformers does not know: copy them anew."
        else:
            hint = "The folder must hold a whole transformers model with safetensors weights; copy it anew."
        raise ModelError(f"cannot load {self.what} of {self.name}: {text}. {hint}") from error
