"""RunConfig: the one typed object a recipe becomes. Strict, frozen, and free of torch.

A recipe is YAML whose sections are the classes below; a doc line under a field is its description in the JSON schema.
Loading (file:line in errors, nearest names, overrides) is in `recipe_file.py`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from .config_checks import CrossFieldError, cross_field_problems
from .config_data import DataSection as DataSection
from .config_data import RowPlan as RowPlan
from .config_data import Section as Section
from .config_data import Share as Share
from .config_data import Source as Source
from .positional import Method, parse_method


class FreshModel(Section):
    """The shape of a small LLaMA that starts from random weights (used by `tiny-base.yaml`)."""

    vocab_size: PositiveInt
    """Tokens of the byte-level BPE that is trained for it."""
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    num_layers: PositiveInt
    num_heads: PositiveInt
    """Query heads."""
    head_dim: PositiveInt | None = None
    """Size of a head, an even number; unset: hidden_size / num_heads."""
    num_kv_heads: PositiveInt
    """Key and value heads; num_heads must be a multiple of it."""
    rope_theta: PositiveFloat = 10000.0
    """RoPE base."""
    initializer_range: PositiveFloat = 0.02
    """Standard deviation of the random start; narrow models learn to copy sooner with about 1 / sqrt(hidden_size)."""
    tie_embeddings: bool = True
    """The output head shares the weights of the embedding."""

    @model_validator(mode="after")
    def _heads(self) -> FreshModel:
        if self.head_dim is not None and self.head_dim % 2:
            raise ValueError(f"head_dim {self.head_dim} is odd; RoPE turns pairs of numbers, so give an even one")
        if self.head_dim is None and self.hidden_size % (2 * self.num_heads):
            raise ValueError(
                f"hidden_size {self.hidden_size} / num_heads {self.num_heads} must be an even number (the head size)"
            )
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads {self.num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}")
        return self


class ModelSection(Section):
    """Which model is extended, or begun."""

    base: str | None = None
    """Folder or hub id of the pretrained model."""
    fresh: FreshModel | None = None
    """Start a small LLaMA from random weights instead; its tokenizer is trained on the run's own sources."""
    revision: str | None = None
    """Hub commit, tag or branch of `base`."""
    tokenizer: str | None = None
    """Folder or hub id of the tokenizer; the base's own when absent."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the weights in training (bfloat16 keeps a float32 master copy) and in the export."""
    attention: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    """Which attention code of transformers runs; flash_attention_2 needs the flash-attn package and bfloat16."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model. Off unless you say so here."""

    @model_validator(mode="after")
    def _one_start(self) -> ModelSection:
        if (self.base is None) == (self.fresh is None):
            raise ValueError("set exactly one of `base` (a folder or hub id) and `fresh` (a new small model)")
        return self


class RopeSection(Section):
    """How far the context is lengthened, and by which rule."""

    method: str = "none"
    """`name:factor[,key=value...]`, as everywhere on the command line. A factor left out is target / original."""
    original_window: PositiveInt
    """L: tokens the model was pretrained at. Checked against the model's own config when it is loaded."""
    target_window: PositiveInt
    """L': tokens the extended model shall read. At least L."""
    replace_existing: bool = False
    """The model already carries another scaling (Llama 3.1 does): drop it and apply `method` to its original window."""


class FullFinetune(Section):
    kind: Literal["full"] = "full"


class LoraFinetune(Section):
    """LoRA with trainable embeddings and norms, which long-context tuning needs (LongLoRA, arXiv:2309.12307)."""

    kind: Literal["lora"]
    rank: PositiveInt = 8
    """Rank of the update matrices."""
    alpha: PositiveFloat = 16
    """The update is scaled by alpha / rank."""
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
    """Names of the linear layers that get an update."""
    train_embeddings: bool = True
    """Also train the token embedding itself."""
    train_norms: bool = True
    """Also train the normalisation weights themselves."""


Finetune = Annotated[FullFinetune | LoraFinetune, Field(discriminator="kind")]


class TrainSection(Section):
    steps: PositiveInt
    """Optimizer steps."""
    tokens_per_step: PositiveInt
    """Tokens of one optimizer step over all ranks."""
    micro_batch_tokens: PositiveInt
    """Tokens one rank puts through the model at once; accumulation follows from it."""
    lr: PositiveFloat
    """Learning rate after the warm-up."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Shape after the warm-up; linear and cosine end at `min_lr_ratio`."""
    warmup_steps: int = Field(default=20, ge=0)
    """Steps in which the learning rate rises; fewer than `steps`."""
    min_lr_ratio: Share = 0.0
    """Last learning rate as a share of `lr` (linear, cosine)."""
    beta1: Share = 0.9
    """AdamW."""
    beta2: Share = 0.95
    """AdamW."""
    eps: PositiveFloat = 1e-8
    """AdamW."""
    weight_decay: float = Field(default=0.0, ge=0)
    """AdamW."""
    clip_norm: PositiveFloat | None = 1.0
    """Largest global gradient norm; null switches clipping off."""
    activation_checkpointing: bool = False
    """Keep only the input of each layer and compute it again in the backward pass: less memory, more time."""
    loss_chunk_tokens: PositiveInt = 2048
    """The head and the loss see this many tokens at once, so no T x V tensor is made."""


class ParallelSection(Section):
    zero_stage: Literal[0, 1, 2, 3] = 0
    """What DeepSpeed shares out over the ranks: 1 optimizer state, 2 and gradients, 3 and parameters."""
    offload_optimizer: bool = False
    """Keep the optimizer state in CPU memory (ZeRO 1 to 3)."""
    offload_parameters: bool = False
    """ZeRO 3 only."""

    @model_validator(mode="after")
    def _offload(self) -> ParallelSection:
        if self.offload_parameters and self.zero_stage != 3:
            raise ValueError(f"offload_parameters needs zero_stage 3, found {self.zero_stage}")
        if self.offload_optimizer and self.zero_stage == 0:
            raise ValueError("offload_optimizer needs zero_stage 1, 2 or 3, found 0")
        return self


class CheckpointSection(Section):
    every_steps: PositiveInt = 100
    """Save after every so many steps, so that a killed run loses no more."""
    keep: int = Field(default=2, ge=2)
    """Complete checkpoints kept; at least two, so that a corrupt one has a predecessor."""
    export_steps: tuple[PositiveInt, ...] = ()
    """Besides the end: also export after these steps, to `exports/step_000050`."""


class LogSection(Section):
    to: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """Besides metrics.jsonl, which is always written."""
    project: str = "ropewalk"
    """Project name at those that have projects."""


class PerplexityTask(Section):
    lengths: tuple[PositiveInt, ...] = Field(min_length=1)
    """Window lengths; the same target tokens are scored at each."""
    stride: PositiveInt = 256
    """The last `stride` tokens of each window are scored (Press et al.)."""
    windows: PositiveInt = 64
    """Target blocks, spread evenly over the held-out documents."""


class PasskeyTask(Section):
    lengths: tuple[PositiveInt, ...] = Field(min_length=1)
    """Exact lengths of the prompts with their answer, tokens."""
    depths: tuple[Share, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    """Where the key stands: 0 at the start, 1 at the end, right before the question."""
    trials: PositiveInt = 10
    """Prompts for each length and depth."""
    digits: PositiveInt = 5
    """Digits of the key."""


class GapTask(Section):
    """Perplexity of a block of text read after another one with a jump in position between: far positions, cheaply."""

    gaps: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)
    """Jumps in position between the two blocks."""
    context_tokens: PositiveInt = 512
    """Length of the first block."""
    target_tokens: PositiveInt = 512
    """Length of the second block, which is scored."""
    windows: PositiveInt = 8
    """Places in the held-out text that are probed."""


class EvalSection(Section):
    perplexity: PerplexityTask | None = None
    passkey: PasskeyTask | None = None
    gap: GapTask | None = None
    beyond_target: bool = False
    """Allow lengths beyond the target window, to see where the model breaks."""


class RunConfig(Section):
    """Everything one run is made from."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Names the run folder `runs/NAME`."""
    seed: int = Field(default=1, ge=0)
    """Decides weights of a fresh model, order of rows and keys."""
    model: ModelSection
    rope: RopeSection
    finetune: Finetune = FullFinetune()
    data: DataSection
    train: TrainSection
    parallel: ParallelSection = ParallelSection()
    checkpoint: CheckpointSection = CheckpointSection()
    log: LogSection = LogSection()
    eval: EvalSection = EvalSection()

    @model_validator(mode="after")
    def _fields_agree(self) -> RunConfig:
        if problems := cross_field_problems(dict(self)):
            raise CrossFieldError(problems)
        return self

    @property
    def method(self) -> Method:
        """The parsed method, its factor filled in from the windows where the recipe left it out."""
        return parse_method(self.rope.method, default_factor=self.rope.target_window / self.rope.original_window)
