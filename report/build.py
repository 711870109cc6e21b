"""Run folders and scores -> report.json, report.html and figures/."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path

from ..errors import ConfigError
from . import tables
from .collect import Evidence, RunRecord, collect, without_paths
from .drawings import look, page_drawings, passkey_maps
from .page import render
from .schema import UNTRAINED, Report, ReportNotes
from .words import method_name


def build_report(runs: list[Path], out: Path, title: str, notes: ReportNotes | None) -> Path:
    """Write the report on `runs` (run folders, and folders of scores) into `out`; returns the path of report.html.

    Raises ConfigError for a folder that holds neither and for an `out` that is a file, and EvalError for scores that
    cannot stand in one comparison.
    """
    if out.is_file():
        raise ConfigError(f"--out {out} is a file. Give a folder for the report.")
    evidence = collect(runs)
    notes = ReportNotes.model_validate(without_paths((notes or ReportNotes()).model_dump()))
    report = assemble(evidence, without_paths(title), notes.cautions)
    seen = look(report)
    drawings = page_drawings(report, evidence.runs, seen)
    maps = passkey_maps(report, seen)
    html = render(report, notes, seen, drawings, maps)

    figures = out / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    for old in figures.glob("*.svg"):  # a figure of an earlier report must not pass for one of this
        old.unlink()
    for drawing in (*drawings.values(), *(drawing for steps in maps.values() for _, drawing in steps)):
        _write(figures / f"{drawing.name}.svg", drawing.file)
    _write(out / "report.json", json.dumps(report.model_dump(mode="json", exclude_none=True), indent=1) + "\n")
    return _write(out / "report.html", html)


def assemble(evidence: Evidence, title: str, cautions: Sequence[str]) -> Report:
    """All rows of the report from what was collected."""
    runs, scores = evidence.runs, evidence.scores
    windows = {run.config.name: run.config.rope.target_window for run in runs}
    originals = {run.config.rope.original_window for run in runs}
    target = next(iter(windows.values())) if len(set(windows.values())) == 1 else None
    passkey = tables.passkey_rows(scores)
    k_max = tables.k_max_rows(passkey)
    rows = tuple(tables.run_row(run, _method_of(run, evidence)) for run in runs)
    models = {row.model for row in rows} or {score.model for score in scores if score.arm == UNTRAINED}
    return Report(
        title=title,
        created=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        model=next(iter(models)) if len(models) == 1 else None,
        original_window=next(iter(originals)) if len(originals) == 1 else None,
        target_window=target,
        steps_to_window=tables.steps_to_window(k_max, windows, target),
        k_max=k_max,
        passkey=passkey,
        passkey_by_length=tables.passkey_by_length(passkey),
        perplexity=tables.perplexity_rows(scores),
        gap=tables.gap_rows(scores),
        nll_by_position=tables.nll_rows(scores),
        loss=tuple(filter(None, map(tables.loss_summary, runs))),
        cost=tuple(filter(None, map(tables.cost_row, runs))),
        training_rows=tuple(row for run in runs for row in tables.data_rows(run)),
        runs=rows,
        versions=runs[0].versions if runs else {},
        commit=runs[0].commit if runs else None,
        hardware=runs[0].hardware if runs else {},
        cautions=(*cautions, *evidence.cautions),
    )


def _method_of(run: RunRecord, evidence: Evidence) -> str:
    """The run's method as its own scores write it (with the factor), or else as the recipe does."""
    written = run.config.rope.method
    scored = [score.method for score in evidence.scores if score.arm == run.config.name]
    return next((method for method in scored if method_name(method) == method_name(written)), written)


def _write(path: Path, text: str) -> Path:
    """Write aside and move into place, so that a reader never sees half a page."""
    aside = path.with_name(f".partial-{path.name}")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)
    return path
