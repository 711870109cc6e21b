"""Which weights are measured, and opening them: a run folder at one or more steps, a model folder, a hub id."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import torch
from transformers import PreTrainedModel
from transformers.configuration_utils import PreTrainedConfig
from transformers.tokenization_utils_base import PreTrainedTokenizerBase
from transformers.utils.hub import cached_file

from ..config import ModelSection
from ..data.bos import bos_ids
from ..data.tokenizer import tokenizer_hash
from ..errors import EvalError
from ..loading import load_config, load_tokenizer, load_weights
from ..positional import Method, parse_method
from ..positional.hf import PretrainedRope, extend_config, read_rope, swap_rotary, verify_rotary
from ..recipe_file import resolve_path
from ..run_folder import RUN_FILE, read_config
from .job import Subject

OWN = "own"
"""Names, in a list of methods, the one the weights were published with."""


@dataclass(frozen=True)
class Weights:
    """One set of weights to measure, not opened yet."""

    source: str
    """Folder or hub id."""
    model: str
    """Name in the scores: folder name or hub id of the base, never a path."""
    arm: str
    trained_steps: int
    tokenizer: str | None = None
    own: Method | None = None
    """The run's method where the source itself does not state it (the base of a run, step 0)."""
    run: Path | None = None
    revision: str | None = None
    trust_remote_code: bool = False


@dataclass(frozen=True)
class Loaded:
    """Open weights; `use` puts a method in force."""

    weights: Weights
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    published: PreTrainedConfig
    pretrained: PretrainedRope
    bos: list[int]
    weights_hash: str
    tokenizer_hash: str
    dtype: str

    def method(self, name: str) -> Method:
        """The method of a command-line name; `own` is the one the weights are published with."""
        if name != OWN:
            return parse_method(name)
        return self.weights.own or self.pretrained.existing or parse_method("none")

    def use(self, method: Method) -> Subject:
        """Swap the rotary of the loaded weights to the one stock transformers builds for `method`, and verify it."""
        if method == (self.pretrained.existing or parse_method("none")):
            config = self.published
        else:
            # What a run put on its base may be replaced by another method; what the pretrained model itself came
            # with may not, and extend_config says so.
            ours = self.weights.trained_steps > 0
            config = extend_config(self.published, method, replace_existing=ours)
        swap_rotary(self.model, config)
        verify_rotary(self.model, method, self.pretrained.base)

        def refresh() -> None:
            if method.length_dependent:
                swap_rotary(self.model, config)

        return Subject(self.model, self.tokenizer, method, refresh)


def find_weights(target: str | Path, steps: Sequence[int] | Literal["all"] | None = None) -> list[Weights]:
    """The weights a target names. `steps` picks those of a run: 0 is its base, its last step the export, the others
    `exports/step_XXXXXX`; `all` is every one there is; None the export alone. EvalError when one is missing.
    """
    folder = resolve_path(target)
    if (folder / RUN_FILE).exists():
        return _of_run(folder, steps)
    if steps is not None:
        raise EvalError(f"--steps needs a run folder, and {target} has no {RUN_FILE}.")
    if folder.is_dir():
        if not (folder / "config.json").exists():
            raise EvalError(
                f"{target} is neither a run folder (no {RUN_FILE}) nor a model folder (no config.json). Give the "
                "folder of a run, one of its exports, or a transformers model folder."
            )
        return [_of_folder(folder)]
    return [Weights(str(target), str(target), "untrained", 0)]


def _of_run(folder: Path, steps: Sequence[int] | Literal["all"] | None) -> list[Weights]:
    config = read_config(folder)
    found = {int(path.name.removeprefix("step_")): path for path in sorted((folder / "exports").glob("step_??????"))}
    if (folder / "export" / "config.json").exists():
        found[config.train.steps] = folder / "export"
    available: list[int] = sorted([*([0] if config.model.base else []), *found])
    wanted: list[int] = available if isinstance(steps, str) else [config.train.steps] if steps is None else [*steps]
    if missing := [step for step in wanted if step not in available]:
        raise EvalError(
            f"run {folder.name} has no weights of step {', '.join(map(str, missing))}; it has {available}. "
            "Finish the run by repeating its command, or name other steps (checkpoint.export_steps keeps more)."
        )
    base = config.model.base or config.name
    name = Path(base).name if resolve_path(base).is_dir() else base
    section = config.model
    return [
        Weights(str(found[step]), name, config.name, step, None, None, folder)
        if step
        else Weights(
            str(section.base),
            name,
            "untrained",
            0,
            section.tokenizer,
            config.method,
            folder,
            section.revision,
            section.trust_remote_code,
        )
        for step in wanted
    ]


def _of_folder(folder: Path) -> Weights:
    """A model folder; where it is an export of a run, it is measured as that run's."""
    for run in folder.resolve().parents[:2]:
        if (run / RUN_FILE).exists():
            for weights in _of_run(run, "all"):
                if Path(weights.source).resolve() == folder.resolve():
                    return weights
    return Weights(str(folder), folder.resolve().name, "untrained", 0)


def load(weights: Weights, cache_dir: Path, dtype: Literal["float32", "bfloat16"] | None = None) -> Loaded:
    """Open weights once, on the GPU where there is one. `dtype` None: float32 on a CPU, the published one on a GPU.

    ModelError when they cannot be loaded, or their position embedding is not ours to read.
    """
    section = ModelSection(
        base=weights.source,
        revision=weights.revision,
        tokenizer=weights.tokenizer,
        trust_remote_code=weights.trust_remote_code,
    )
    config = load_config(section)
    pretrained = read_rope(config)
    on_gpu = torch.cuda.is_available()
    chosen = dtype or (str(config.dtype or "bfloat16").removeprefix("torch.") if on_gpu else "float32")
    tokenizer = load_tokenizer(section)
    if config.vocab_size < len(tokenizer):
        raise EvalError(
            f"{weights.model}: its tokenizer makes ids up to {len(tokenizer) - 1}, but vocab_size = "
            f"{config.vocab_size}. Use the tokenizer the model was trained with."
        )
    model = load_weights(section, config, getattr(torch, chosen))
    model = cast(PreTrainedModel, model.to("cuda" if on_gpu else "cpu").eval())  # type: ignore[arg-type]
    folder = resolve_path(weights.source)
    if not folder.is_dir():
        folder = Path(
            str(cached_file(weights.source, "config.json", revision=weights.revision, local_files_only=True))
        ).parent
    return Loaded(
        weights=weights,
        model=model,
        tokenizer=tokenizer,
        published=config,
        pretrained=pretrained,
        bos=bos_ids(tokenizer),
        weights_hash=weights_hash(folder, cache_dir),
        tokenizer_hash=tokenizer_hash(tokenizer),
        dtype=chosen,
    )


def weights_hash(folder: Path, cache_dir: Path) -> str:
    """SHA-256 over the names and bytes of a folder's safetensors files; a file is read again only when size or time of
    change differ from the last time (kept in `cache_dir`)."""
    memory = cache_dir / "weights_hashes.json"
    try:
        known: dict[str, str] = json.loads(memory.read_text())
    except (OSError, ValueError):
        known = {}
    whole = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        stat = path.stat()
        key = f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}"
        if key not in known:
            with path.open("rb") as file:
                known[key] = hashlib.file_digest(file, "sha256").hexdigest()
        whole.update(f"{path.name} {known[key]}\n".encode())
    cache_dir.mkdir(parents=True, exist_ok=True)
    partial = memory.with_suffix(f".partial-{os.getpid()}")
    partial.write_text(json.dumps(known, indent=1))
    partial.replace(memory)
    return whole.hexdigest()


def rotary_hash(model: PreTrainedModel, method: Method) -> str:
    """SHA-256 of what rotates: float32 frequencies and attention scale of each rotary module, and for a
    length-dependent method its whole written form."""
    digest = hashlib.sha256()
    for name, module in model.named_modules():
        for key, buffer in module.named_buffers(recurse=False):
            if key.endswith("inv_freq") and not key.endswith("original_inv_freq"):
                digest.update(f"{name}.{key} {getattr(module, 'attention_scaling', 1.0)!r}".encode())
                digest.update(buffer.detach().float().cpu().numpy().tobytes())
    if method.length_dependent:
        digest.update(method.model_dump_json().encode())
    return digest.hexdigest()
