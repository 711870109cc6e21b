"""The sections of a recipe that say what rows are made of: sources, row plans; and what every section is.

Part of `config.py`, which is where to import from.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator


class Section(BaseModel):
    """A frozen record that refuses unknown keys; field docstrings become schema descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


Share = Annotated[float, Field(ge=0, le=1)]


class Source(Section):
    """One collection of documents."""

    kind: Literal["builtin", "text", "jsonl", "parquet", "dataset"]
    name: str
    """builtin: its name (`ropewalk sources` lists them). Otherwise a path, a glob or a `datasets` name or folder."""
    field: str = "text"
    """Column that holds the text (jsonl, parquet, dataset)."""
    subset: str | None = None
    """Configuration name of a `datasets` data set."""
    split: str = "train"
    """Split of a `datasets` data set; a slice such as `train[:1000]` is allowed."""
    weight: PositiveFloat = 1.0
    """Share of the text rows, relative to the other sources."""
    documents: tuple[str, ...] | None = None
    """Keep only documents with these names (globs allowed)."""
    min_chars: PositiveInt = 1
    """Shorter documents are left out, and counted in the manifest."""
    max_chars: PositiveInt | None = None
    """Longer documents are left out, and counted in the manifest."""
    use: Literal["split", "train", "held-out"] = "split"
    """split: part of the documents is held out by `data.held_out`; else all of them go to one side."""


class RowPlan(Section):
    """One kind of training rows: how long they are, which positions they carry, what they hold."""

    tokens: PositiveInt
    """Physical length of a row."""
    positions: Literal["dense", "skip-wise"] = "dense"
    """dense: 0..tokens-1. skip-wise: two chunks with a random jump, over the whole target window (arXiv:2309.10400)."""
    ends: Share = 0.25
    """Skip-wise only: share of the rows whose jump is the largest possible, so that the far end gets its share."""
    weight: PositiveFloat = 1.0
    """Share of the micro batches, relative to the other row plans."""
    first_step: int = Field(default=0, ge=0)
    """First step, counted from 0, in which this plan takes part."""
    last_step: PositiveInt | None = None
    """Steps (last one excluded) in which this plan takes part; the whole run when absent."""
    text: Share = 1.0
    """Share of rows that are windows of the sources' documents."""
    passkey: Share = 0.0
    """Share of rows that are passkey prompts with their answer."""
    repeat: Share = 0.0
    """Share of rows in which a random segment of text comes twice (copying, or induction, rows)."""

    @model_validator(mode="after")
    def _shares(self) -> RowPlan:
        if abs(self.text + self.passkey + self.repeat - 1) > 1e-6:
            raise ValueError(
                f"text + passkey + repeat = {self.text + self.passkey + self.repeat:g}; the shares must add up to 1"
            )
        if self.last_step is not None and self.last_step <= self.first_step:
            raise ValueError(f"last_step {self.last_step} is not after first_step {self.first_step}")
        return self


class DataSection(Section):
    sources: tuple[Source, ...] = Field(min_length=1)
    """Where the text comes from."""
    rows: tuple[RowPlan, ...] = Field(min_length=1)
    """Which rows are made of it."""
    held_out: Share = 0.05
    """Share of the documents (chosen by a hash of each name) kept for evaluation only."""
    passkey_digits: PositiveInt = 5
    """Digits of the keys in passkey rows."""
    num_proc: PositiveInt | None = None
    """Processes that tokenise; all cores when absent."""
