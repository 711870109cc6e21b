"""report.html from the rows and figures: one file, no network, nothing to run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import view
from .drawings import Arm, Drawing, Look, map_legend
from .schema import Report, ReportNotes
from .words import retrieval_sentence, row_sentence, state_label, steps_label

HERE = Path(__file__).parent


def render(
    report: Report,
    notes: ReportNotes,
    seen: Look,
    drawings: Mapping[str, Drawing],
    maps: Mapping[Arm, list[tuple[int, Drawing]]],
) -> str:
    """The page as text. Sections whose measurements are absent are left out by the template."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"tokens": "{:,}".format}
    methods = {run.arm: seen.labels[run.method, run.arm] for run in report.runs}
    return environment.get_template("page.html.jinja").render(
        report=report,
        notes=notes,
        css=Markup((HERE / "page.css").read_text(encoding="utf-8")),
        figures={name: _markup(drawing) for name, drawing in drawings.items()},
        maps=[
            (seen.labels[arm], [(state_label(arm[0], steps), Markup(drawing.wide)) for steps, drawing in course])
            for arm, course in maps.items()
        ],
        trials=map_legend(report.passkey) if report.passkey else "",
        cards=view.headline_cards(report, seen),
        before_after=view.before_after(report, seen),
        k_max=view.k_max_table(report, seen),
        perplexity=view.perplexity_table(report, seen),
        protocol=_protocol(report),
        gap_ends=view.ends_only(view.gap_table(report, seen)),
        gap=view.gap_table(report, seen),
        cost=view.cost_table(report.cost, methods),
        loss=view.loss_table(report),
        summary=notes.summary or default_summary(report, methods),
        training_rows=_training_rows(report, methods),
        recipes=[(run.arm, recipe_yaml(run.recipe)) for run in report.runs],
        origins=_origins(report),
        export=notes.export or (f"{report.runs[0].arm}/export" if report.runs else ""),
    )


def default_summary(report: Report, methods: Mapping[str, str]) -> tuple[str, ...]:
    """What was done, from the rows alone."""
    if not report.runs or report.original_window is None or report.target_window is None:
        return ()
    factor = report.target_window / report.original_window
    tuned = [f"{methods[run.arm]} ({steps_label(run.steps)})" for run in report.runs]
    if factor == 1:
        return (f"{report.runs[0].model} was trained at a window of {report.original_window:,} tokens.",)
    made = (
        f"{report.model or 'The model'} was pretrained to read {report.original_window:,} tokens at once. The runs "
        f"below fine-tuned it to read {report.target_window:,}, {factor:g} times as many: {'; '.join(tuned)}."
    )
    measured = "Every model was measured on the same prompts and the same held-out text. Ranges are 95 % intervals."
    return (made, measured) if report.passkey or report.perplexity or report.gap else (made,)


def recipe_yaml(recipe: dict[str, Any]) -> str:
    import yaml

    return yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True, width=100)


def _markup(drawing: Drawing):
    """Both forms of a figure; the style sheet shows the one that fits the screen."""
    from markupsafe import Markup

    narrow = f'<div class="narrow">{drawing.narrow}</div>' if drawing.narrow else ""
    return Markup(f'<div class="{"wide" if narrow else "any"}">{drawing.wide}</div>{narrow}')


def _protocol(report: Report) -> str:
    rows = view.one_protocol(report.perplexity)
    if not rows:
        return ""
    stride = f"the last {rows[0].stride:,} tokens" if rows[0].stride else "the last tokens"
    return f"Protocol “{rows[0].protocol}”: {stride} of each window are scored, the same tokens at every window length."


def _training_rows(report: Report, methods: Mapping[str, str]) -> list[tuple[str, list[str], str]]:
    """(arms, sentences about their rows, what retrieval figures then mean); arms with equal rows are told once."""
    told: dict[tuple[str, ...], list[str]] = {}
    verdicts = {}
    for arm in dict.fromkeys(row.arm for row in report.training_rows):
        rows = [row for row in report.training_rows if row.arm == arm]
        sentences = tuple(map(row_sentence, rows))
        told.setdefault(sentences, []).append(methods[arm] if arm in methods[arm] else f"{methods[arm]} ({arm})")
        verdicts[sentences] = retrieval_sentence(rows) if report.passkey else ""
    return [(", ".join(arms), list(sentences), verdicts[sentences]) for sentences, arms in told.items()]


def _origins(report: Report) -> list[tuple[str, list[tuple[str, str]]]]:
    """(runs, facts about code, libraries and machine); runs that agree are told once."""
    told: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for run in report.runs:
        hardware = dict(run.hardware)
        if memory := hardware.pop("memory_bytes", None):
            hardware["memory"] = f"{memory / 2**30:.0f} GiB"
        gpus = hardware.pop("gpus", [])
        hardware["GPUs"] = ", ".join(gpus) if gpus else "none"
        facts = [
            ("commit", f"{(run.commit or 'unknown')[:12]}{' with changes' if run.dirty else ''}"),
            ("seed", str(run.seed)),
            *((name, str(value)) for name, value in hardware.items()),
            *run.versions.items(),
        ]
        told.setdefault(tuple(facts), []).append(run.arm)
    return [(", ".join(arms), list(facts)) for facts, arms in told.items()]
