"""The report says what the run folders hold: no more, no less, and nothing private."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import pytest
from pydantic import BaseModel

from ropewalk.errors import ConfigError, EvalError
from ropewalk.eval.score import append_scores, read_scores, wilson
from ropewalk.report import Report, build_report, schema
from ropewalk.report.collect import collect

DOC = Path(__file__).parents[2] / "docs" / "report.md"


@pytest.fixture(scope="session")
def report(built) -> Report:
    return Report.model_validate_json((built / "report.json").read_text())


@pytest.fixture(scope="session")
def page(built) -> str:
    return (built / "report.html").read_text()


def test_report_json_is_what_the_schema_says(built, report):
    raw = json.loads((built / "report.json").read_text())
    assert report.model_dump(mode="json", exclude_none=True) == raw
    assert raw["schema_version"] == schema.SCHEMA_VERSION
    assert {"method", "trained", "threshold", "k_max", "low"} <= set(raw["k_max"][0])
    assert {"method", "trained", "length", "depth", "n", "correct"} <= set(raw["passkey"][0])
    assert {"method", "trained", "protocol", "length", "value", "low", "high"} <= set(raw["perplexity"][0])
    assert raw["versions"]["torch"]
    assert raw["commit"].startswith("0123")


def test_every_field_is_documented():
    text = DOC.read_text()
    rows = [kind for kind in vars(schema).values() if isinstance(kind, type) and issubclass(kind, BaseModel)]
    fields = {name for kind in rows if kind is not schema.ReportNotes for name in kind.model_fields}
    assert {name for name in fields if not re.search(rf"\b{name}\b", text)} == set()


def test_passkey_rows_are_the_counts_of_the_scores(report, fake_runs):
    scored = {}
    for run in fake_runs:
        for s in read_scores(run / "eval" / "passkey.jsonl"):
            scored[s.method, s.arm, s.trained_steps, s.length, s.depth] = (s.n, s.correct)
    rows = {(r.method, r.arm, r.trained, r.length, r.depth): (r.n, r.correct) for r in report.passkey}
    assert rows == scored


def test_k_max_is_the_last_length_before_the_first_failure(report):
    cells = {}
    for row in report.passkey:
        by_length = cells.setdefault((row.method, row.arm, row.trained), {})
        correct, n = by_length.get(row.length, (0, 0))
        by_length[row.length] = (correct + row.correct, n + row.n)
    assert len(report.k_max) == 4 * len(cells)
    for row in report.k_max:
        by_length = cells[row.method, row.arm, row.trained]
        passing = [
            length
            for length in by_length
            if all(c / n >= row.threshold for at, (c, n) in by_length.items() if at <= length)
        ]
        assert row.k_max == max(passing, default=0)
        assert row.low <= row.k_max <= row.longest


def test_steps_to_the_full_window(report):
    found = {row.method: row.steps for row in report.steps_to_window}
    assert found == {"yarn:8": 50, "linear:8": 200, "none": 400}


def test_a_window_that_is_lost_again_or_never_reached_is_told():
    from ropewalk.report.tables import steps_to_window

    def course(*k_maxes: int, longest: int = 2048):
        return [
            schema.KMaxRow(method="linear:8", arm="a", trained=25 * i, threshold=0.9, k_max=k, low=0, longest=longest)
            for i, k in enumerate(k_maxes)
        ]

    (lost,) = steps_to_window(course(0, 2048, 1024), {"a": 2048}, None)
    assert (lost.steps, lost.held) == (25, False)
    (never,) = steps_to_window(course(0, 1024, 1536), {"a": 2048}, None)
    assert (never.steps, never.tried) == (None, 50)
    assert steps_to_window(course(0, 1024, longest=1024), {"a": 2048}, None) == ()  # not measured: no row


def test_the_page_needs_nothing_but_itself(page):
    assert not re.search(r"<(script|link|img|iframe|object|embed)\b", page)
    outside = re.findall(r'(?:src|href)\s*=\s*"(?!#)([^"]+)"|url\((?!#)([^)]+)\)|@import', page)
    assert outside == []


def test_ids_are_unique_and_every_reference_has_its_target(page):
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert [name for name, count in Counter(ids).items() if count > 1] == []
    targets = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', page)
    assert {a or b for a, b in targets} <= set(ids)


def test_nothing_private_is_told(built):
    for path in (built / "report.json", built / "report.html", *built.glob("figures/*.svg")):
        text = path.read_text()
        assert "/home/" not in text, path.name
        assert "someone" not in text, path.name
        assert str(built) not in text, path.name


def test_text_is_escaped(page):
    assert "A note on &lt;few&gt; trials." in page
    assert "<title>Tiny base &amp; friends</title>" in page


def test_figures_are_svg_with_real_text(built):
    files = sorted(built.glob("figures/*.svg"))
    names = {file.stem for file in files}
    assert {"perplexity-by-length", "perplexity-by-gap", "loss-by-position", "training-loss"} <= names
    assert sum(name.startswith("passkey-") for name in names) == 17  # 6 + 5 + 6 measured models
    for file in files:
        root = ET.fromstring(file.read_text())
        assert root.tag.endswith("svg")
        assert [node for node in root.iter() if node.tag.endswith("}text")], file.name
    assert "L = 256" in (built / "figures" / "perplexity-by-length.svg").read_text()


def test_each_passkey_cell_tells_its_counts_and_interval(page, report):
    row = next(r for r in report.passkey if 0 < r.correct < r.n)
    low, high = wilson(row.correct, row.n)
    told = f"{row.length:,} tokens, depth {100 * row.depth:.0f}\u00a0%: {row.correct} of {row.n} keys found "
    assert f"<title>{told}(95 % interval {100 * low:.0f} to {100 * high:.0f} %)</title>" in page
    assert page.count("keys found (95 % interval") == sum(r.arm != "untrained" for r in report.passkey) + 75


def test_the_same_scores_twice_change_nothing(tmp_path, fake_runs, report):
    run = fake_runs[1]
    build_report([run, run / "eval"], tmp_path, "t", None)
    twice = Report.model_validate_json((tmp_path / "report.json").read_text())
    assert set(twice.passkey) <= set(report.passkey)
    assert twice.cautions == ()


def test_what_was_not_measured_is_left_out(tmp_path, make_scores):
    scores = [s for s in make_scores("none", "untrained", 0) if s.task == "passkey"]
    append_scores(tmp_path / "scores" / "passkey.jsonl", scores)
    build_report([tmp_path / "scores"], tmp_path / "out", "t", None)
    raw = json.loads((tmp_path / "out" / "report.json").read_text())
    assert raw["perplexity"] == raw["gap"] == raw["cost"] == raw["runs"] == []
    html = (tmp_path / "out" / "report.html").read_text()
    assert set(re.findall(r'<section id="([^"]+)"', html)) == {"before-after", "retrieval"}
    text = re.sub(r"<style>.*?</style>|<[^>]+>", " ", html, flags=re.S)
    assert not re.search(r"\bnan\b|\bNone\b|-1\b", text)


def test_a_run_with_no_scores_yet_has_a_page(tmp_path, make_run, fake_runs):
    run = make_run(tmp_path / "demo-yarn-8x", "yarn:8")
    for file in (run / "eval").glob("*"):
        file.unlink()
    html = build_report([run], tmp_path / "out", "t", None).read_text()
    sections = {"cautions", "training", "cost", "load", "recipes", "origins"}
    assert sections == set(re.findall(r'<section id="([^"]+)"', html))
    assert "demo-yarn-8x has no scores" in html
    assert "was measured" not in html


def test_a_rebuild_leaves_no_old_figure(tmp_path, fake_runs):
    stale = tmp_path / "figures" / "passkey-of-another-report.svg"
    stale.parent.mkdir()
    stale.write_text("<svg/>")
    build_report(fake_runs[1:2], tmp_path, "t", None)
    first = {file.name: file.read_text() for file in tmp_path.glob("figures/*")}
    build_report(fake_runs[1:2], tmp_path, "t", None)
    assert not stale.exists()
    assert first == {file.name: file.read_text() for file in tmp_path.glob("figures/*")}  # and figures are reproducible


def test_rows_of_the_fine_tuning_data_are_said_plainly(page):
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page)).replace("\u00a0", " ")
    assert "50 % of the micro batches: rows of 256 tokens, with positions that skip ahead" in text
    assert "50 % text, 40 % passkey prompts with their answer and 10 % a text segment given twice" in text
    assert "About 40 % of the rows are passkey prompts" in text


class TestRefusals:
    def test_a_folder_of_neither(self, tmp_path):
        with pytest.raises(ConfigError, match="neither a run folder"):
            build_report([tmp_path], tmp_path / "out", "t", None)

    def test_an_unreadable_run_record(self, tmp_path):
        (tmp_path / "run.json").write_text('{"config": {}}')
        with pytest.raises(ConfigError, match=r"run\.json"):
            build_report([tmp_path], tmp_path / "out", "t", None)

    def test_one_run_twice(self, tmp_path, fake_runs):
        with pytest.raises(ConfigError, match="demo-yarn-8x"):
            build_report([fake_runs[1], fake_runs[1]], tmp_path / "out", "t", None)

    def test_two_base_models(self, tmp_path, make_scores, fake_runs):
        other = [s.model_copy(update={"weights_hash": "other"}) for s in make_scores("none", "untrained", 0)]
        append_scores(tmp_path / "passkey.jsonl", other)
        with pytest.raises(EvalError, match="different base models"):
            build_report([fake_runs[1], tmp_path], tmp_path / "out", "t", None)

    def test_a_broken_metrics_line_in_the_middle_but_not_a_torn_last_one(self, tmp_path, make_run):
        run = make_run(tmp_path / "demo-yarn-8x", "yarn:8")
        lines = (run / "metrics.jsonl").read_text().splitlines()
        (run / "metrics.jsonl").write_text("\n".join([*lines, lines[-1][:20]]))
        assert len(collect([run]).runs[0].steps) == len(lines) == 200
        (run / "metrics.jsonl").write_text("\n".join([lines[0][:20], *lines]))
        with pytest.raises(ConfigError, match=r"metrics\.jsonl:1"):
            collect([run])


def test_conflicting_measurements_and_mixed_code_are_told(tmp_path, make_scores, make_run, fake_runs):
    run = make_run(tmp_path / "demo-yarn-8x", "yarn:8")
    record = json.loads((run / "run.json").read_text())
    record["git"] = {"commit": "f" * 40, "dirty": True}
    (run / "run.json").write_text(json.dumps(record))
    scores = [s for s in make_scores("none", "untrained", 0) if s.task == "perplexity"]
    append_scores(run / "eval" / "z.jsonl", [s.model_copy(update={"value": 2 * s.value}) for s in scores])
    told = " ".join(collect([fake_runs[2], run]).cautions)
    assert "5 measurements were made twice" in told
    assert "different commits" in told
    assert "in no commit" in told


def test_importing_the_report_loads_no_torch():
    code = (
        "import sys, ropewalk.report; "
        "print([m for m in ('torch', 'transformers', 'matplotlib', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
