"""The order of training rows as a pure function: (seed, step, index) -> micro batch. Resuming needs no state at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..config import RowPlan, RunConfig
from ..errors import DataError
from .batch import Batch
from .bos import bos_ids
from .passkey import PasskeyTemplate
from .prepared import PreparedData
from .rows import Row, passkey_row, positions, repeat_row, text_row
from .shares import Shares
from .windows import WindowTable

if TYPE_CHECKING:
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase

TEXT, PASSKEY, REPEAT = 0, 1, 2
SHORTEST_ROW = 8
ORDER, ROW = 0, 1
"""First word of a random stream's seed, so that streams of different use never meet."""


@dataclass(frozen=True)
class Stretch:
    """Steps from `first_step` on with the same row plans at work, and how many micro batches each plan had before."""

    first_step: int
    plans: tuple[int, ...]
    shares: Shares | None
    """None when no plan is at work."""
    before: tuple[int, ...]


class RowSampler:
    """Micro batches of a run. Row plans, row kinds and sources take turns by their weights, without random draws.

    A micro batch holds train.micro_batch_tokens // row.tokens rows of one plan. Text rows visit each window of a source
    once before any comes again (separately in each row plan). Raises DataError when a plan cannot be served.
    """

    def __init__(self, config: RunConfig, prepared: PreparedData, tokenizer: PreTrainedTokenizerBase) -> None:
        self.config = config
        self.bos = bos_ids(tokenizer)
        self.template = PasskeyTemplate(tokenizer)
        self.micro_batches_per_step = config.train.tokens_per_step // config.train.micro_batch_tokens
        self.stretches = _stretches(config, self.micro_batches_per_step)
        self.kinds = [Shares.of((plan.text, plan.passkey, plan.repeat)) for plan in config.data.rows]
        self.source_numbers = [n for n, source in enumerate(config.data.sources) if source.use != "held-out"]
        self.sources = Shares.of([config.data.sources[number].weight for number in self.source_numbers])
        self.tables = [self._tables(number, plan, prepared) for number, plan in enumerate(config.data.rows)]
        for number, plan in enumerate(config.data.rows):
            self._check_plan(number, plan)

    def micro_batch(self, step: int, index: int) -> Batch:
        """Micro batch `index` (of `micro_batches_per_step`, over all ranks) of optimizer step `step` (from 0)."""
        assert 0 <= index < self.micro_batches_per_step, index
        number, micro = self._plan_at(step, index)
        plan = self.config.data.rows[number]
        num_rows = self.config.train.micro_batch_tokens // plan.tokens
        rows, position_rows = [], []
        for row_number in range(micro * num_rows, (micro + 1) * num_rows):
            rng = np.random.default_rng([self.config.seed, ROW, number, row_number])
            rows.append(self._row(rng, number, row_number))
            position_rows.append(positions(rng, rows[-1], plan, self.config.rope.target_window))
        ids_BU = torch.from_numpy(np.stack([row.ids for row in rows]))  # U = T + 1: inputs and, one later, labels
        return Batch(
            input_ids_BT=ids_BU[:, :-1].contiguous(),
            position_ids_BT=torch.from_numpy(np.stack(position_rows)),
            labels_BT=ids_BU[:, 1:].contiguous(),
            kinds_B=tuple(row.kind for row in rows),
        )

    def coverage(self) -> list[dict[str, int | str]]:
        """For each row plan and source: windows in one epoch, and documents too short to give any."""
        return [
            {
                "row_plan": number,
                "row_tokens": self.config.data.rows[number].tokens,
                "source": self.config.data.sources[source].name,
                "windows": len(table),
                "short_documents": table.num_short_documents,
            }
            for number, tables in enumerate(self.tables)
            for source, table in zip(self.source_numbers, tables, strict=bool(tables))
        ]

    def _plan_at(self, step: int, index: int) -> tuple[int, int]:
        """The row plan of a micro batch, and how many micro batches of this plan came before it."""
        stretch = next(s for s in reversed(self.stretches) if s.first_step <= step)
        if stretch.shares is None:
            raise DataError(f"data.rows: no row plan takes part in step {step}. Widen first_step or last_step of one.")
        slot = (step - stretch.first_step) * self.micro_batches_per_step + index
        which, earlier = stretch.shares.pick(slot)
        number = stretch.plans[which]
        return number, stretch.before[number] + earlier

    def _row(self, rng: np.random.Generator, number: int, row_number: int) -> Row:
        plan = self.config.data.rows[number]
        kind, earlier = self.kinds[number].pick(row_number)
        if kind == PASSKEY:
            return passkey_row(rng, self.template, plan.tokens, self.config.data.passkey_digits)
        # Repeat rows take windows in an order of their own, so they take none away from the text rows' epoch.
        which, window_number = self.sources.pick(earlier)
        table = self.tables[number][which]
        if kind == TEXT:
            return text_row(self.bos, table.window(window_number))
        return repeat_row(rng, self.bos, table.window(int(rng.integers(len(table)))))

    def _tables(self, number: int, plan: RowPlan, prepared: PreparedData) -> list[WindowTable]:
        if plan.text + plan.repeat == 0:
            return []
        window_tokens = plan.tokens - len(self.bos)
        return [
            WindowTable(prepared.train.of_source(source), window_tokens, (self.config.seed, ORDER, number, source))
            for source in self.source_numbers
        ]

    def _check_plan(self, number: int, plan: RowPlan) -> None:
        where = f"data.rows[{number}]"
        # The recipe's own checks have these two; a row that does not fit would be an empty batch here.
        assert plan.tokens <= min(self.config.train.micro_batch_tokens, self.config.rope.target_window), plan
        if plan.tokens < SHORTEST_ROW:
            raise DataError(
                f"{where}.tokens = {plan.tokens} is below {SHORTEST_ROW}, too short to learn from. Raise it."
            )
        if plan.passkey > 0:
            shortest = self.template.shortest_tokens(self.config.data.passkey_digits) - 1
            if shortest > plan.tokens:
                raise DataError(
                    f"{where}.tokens = {plan.tokens} is too short for passkey rows: with this tokenizer they take "
                    f"at least {shortest}. Raise tokens, or set passkey: 0 there."
                )
        for source, table in zip(self.source_numbers, self.tables[number], strict=bool(self.tables[number])):
            if not len(table):
                longest = max((document.num_tokens for document in table.store.documents), default=0)
                raise DataError(
                    f"{where}.tokens = {plan.tokens}: source {self.config.data.sources[source].name!r} has no training "
                    f"document that long (the longest has {longest} tokens). Lower tokens, or choose longer texts."
                )


def _stretches(config: RunConfig, micro_batches: int) -> list[Stretch]:
    plans = config.data.rows
    bounds = sorted({0, *(p.first_step for p in plans), *(p.last_step for p in plans if p.last_step is not None)})
    before = [0] * len(plans)
    stretches: list[Stretch] = []
    for number, first in enumerate(bounds):
        active = [
            i for i, p in enumerate(plans) if p.first_step <= first and (p.last_step is None or first < p.last_step)
        ]
        shares = Shares.of([plans[i].weight for i in active]) if active else None
        stretches.append(Stretch(first, tuple(active), shares, tuple(before)))
        if shares is not None and number + 1 < len(bounds):
            taken = shares.counts((bounds[number + 1] - first) * micro_batches)
            for plan, count in zip(active, taken, strict=True):
                before[plan] += count
    return stretches
