"""report.json as typed, frozen records. `docs/report.md` explains every field; raise SCHEMA_VERSION when one changes.

A measurement that was not made is a row that is not there: no field of a row means "not measured".
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1
HEADLINE_THRESHOLD = 0.9
UNTRAINED = "untrained"


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Measured(Record):
    """What every row of a measurement says: the method, which run trained it ("untrained": none did), for how long."""

    method: str
    arm: str
    trained: int = Field(ge=0)
    """Optimizer steps of fine-tuning before the measurement."""


class KMaxRow(Measured):
    threshold: float
    k_max: int
    """Largest tested length such that it and every shorter tested length reach the threshold; 0 when none does."""
    low: int
    """The same, asked of the lower ends of the 95 % intervals."""
    longest: int
    """Longest tested length: k_max cannot come out above it."""


class PasskeyRow(Measured):
    length: int
    depth: float
    """Where the key stands: 0 at the start of the prompt, 1 at its end."""
    n: int
    correct: int


class PasskeyLengthRow(Measured):
    """All depths of one length taken together, with the Wilson interval of the rate."""

    length: int
    n: int
    correct: int
    low: float
    high: float


class PerplexityRow(Measured):
    protocol: str
    length: int
    value: float
    low: float
    high: float
    n: int
    stride: int | None = None
    """How many tokens at the end of each window were scored, where the protocol has a stride."""


class GapRow(Measured):
    """Perplexity of a block of text read after a jump of `gap` positions."""

    gap: int
    value: float
    low: float
    high: float
    n: int


class NllRow(Measured):
    """Mean negative log likelihood, nats a token, of the tokens at positions first..last."""

    first: int
    last: int
    value: float
    low: float
    high: float
    n: int


class WindowSteps(Record):
    """Fewest measured training steps after which k_max (at `threshold`) reaches the target window."""

    method: str
    arm: str
    threshold: float
    window: int
    steps: int | None
    """None: not within `tried` steps."""
    tried: int
    """Most steps at which this method was measured."""
    held: bool
    """False when a later measurement fell below the window again."""


class LossSummary(Record):
    """Training loss of one run in nats a token: mean over its first and its last tenth of steps."""

    arm: str
    steps: int
    first: float
    last: float
    first_inside: float | None = None
    last_inside: float | None = None
    first_beyond: float | None = None
    last_beyond: float | None = None


class CostRow(Record):
    arm: str
    steps: int
    tokens: int
    time_s: float
    """Sum of the step times: forward, backward, optimizer and waiting for data; evaluation is not in it."""
    tokens_per_s: float
    """Median over steps."""
    peak_memory_bytes: int | None = None
    flops_per_s: float | None = None
    mfu: float | None = None


class DataRow(Record):
    """One kind of training rows, as the recipe asks for it."""

    arm: str
    row_tokens: int
    positions: str
    share: float
    """Of the micro batches, over the steps in which this kind takes part."""
    steps: int
    """In how many steps it takes part."""
    text: float
    passkey: float
    repeat: float
    first_step: int
    last_step: int | None = None


class RunRow(Record):
    """Where one arm came from."""

    arm: str
    method: str
    steps: int
    model: str
    original_window: int
    target_window: int
    seed: int
    commit: str | None = None
    dirty: bool | None = None
    versions: dict[str, str] = {}
    hardware: dict[str, Any] = {}
    recipe: dict[str, Any] = {}


class Report(Record):
    """Everything report.html shows, as numbers."""

    schema_version: int = SCHEMA_VERSION
    title: str
    created: str
    """UTC, to the second."""
    model: str | None = None
    original_window: int | None = None
    target_window: int | None = None
    steps_to_window: tuple[WindowSteps, ...] = ()
    k_max: tuple[KMaxRow, ...] = ()
    passkey: tuple[PasskeyRow, ...] = ()
    passkey_by_length: tuple[PasskeyLengthRow, ...] = ()
    perplexity: tuple[PerplexityRow, ...] = ()
    gap: tuple[GapRow, ...] = ()
    nll_by_position: tuple[NllRow, ...] = ()
    loss: tuple[LossSummary, ...] = ()
    cost: tuple[CostRow, ...] = ()
    training_rows: tuple[DataRow, ...] = ()
    runs: tuple[RunRow, ...] = ()
    versions: dict[str, str] = {}
    commit: str | None = None
    hardware: dict[str, Any] = {}
    cautions: tuple[str, ...] = ()


class ReportNotes(Record):
    """What the numbers cannot say by themselves, in the author's plain words."""

    summary: tuple[str, ...] = ()
    """Paragraphs under the title."""
    cautions: tuple[str, ...] = ()
    sections: dict[str, str] = {}
    """A remark under a section: retrieval, perplexity, positions, gap, loss, cost, rows."""
    export: str | None = None
    """Folder or hub id to show in "How to load it"; `NAME/export` of the first run when absent."""
