"""The page in a real browser: nothing runs over the edge of a phone, and each screen gets its own figures."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--virtual-time-budget=5000", "--dump-dom"),
)
PROBE = """
<pre id="seen"></pre>
<script>
const frame = document.querySelector("iframe");
frame.onload = () => {
  const page = frame.contentDocument, all = (query) => [...page.querySelectorAll(query)];
  const shown = (query) => all(query).filter((e) => e.clientWidth);
  const inside = (e) => e.closest(".scroll, pre, svg") !== null;
  const right = (e) => e.getBoundingClientRect().right;
  const over = all("body *").filter((e) => !inside(e) && right(e) > frame.clientWidth + 1);
  const text = shown("svg").flatMap((s) => [...s.querySelectorAll("text")].map((t) => [s, t]));
  const cut = text.filter(([s, t]) => {
    const box = s.getBoundingClientRect(), at = t.getBoundingClientRect();
    return at.left < box.left - 1 || at.right > box.right + 1 || at.bottom > box.bottom + 1;
  });
  document.querySelector("#seen").textContent = JSON.stringify({
    width: frame.clientWidth, scroll: page.documentElement.scrollWidth,
    over: over.map((e) => e.tagName + "." + e.className), cut: cut.map(([, t]) => t.textContent),
    wide: shown(".wide").length, narrow: shown(".narrow").length,
    smallest: Math.min(...text.map(([, t]) => t.getBoundingClientRect().height)),
  });
};
</script>
"""


def look_at(page: str, width: int, folder) -> dict:
    """What a browser `width` pixels wide makes of the page: sizes, overflows, and texts cut off by their figure.

    The page stands in a frame, because headless windows have a least width above a phone's.
    """
    frame = f'<iframe style="border:0;width:{width}px;height:900px" srcdoc="{html.escape(page)}"></iframe>'
    (folder / "frame.html").write_text(f"<!doctype html><body style='margin:0'>{frame}{PROBE}")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", "--window-size=1400,900"]
    done = subprocess.run([*command, f"file://{folder / 'frame.html'}"], capture_output=True, text=True, timeout=120)
    found = re.search(r'<pre id="seen">(\{.*?\})</pre>', done.stdout, flags=re.S)
    assert found, f"the browser did not report: {done.stderr[-500:]}"
    return json.loads(html.unescape(found[1]))


@pytest.mark.skipif(CHROMIUM is None, reason="NOT CHECKED: no Chromium here, so the page was seen by no browser")
class TestInChromium:
    @pytest.mark.parametrize(("width", "shown", "hidden"), [(390, "narrow", "wide"), (1280, "wide", "narrow")])
    def test_nothing_runs_over_the_edge(self, built, tmp_path, width, shown, hidden):
        seen = look_at((built / "report.html").read_text(), width, tmp_path)
        assert seen["width"] == width
        assert seen["scroll"] <= width
        assert seen["over"] == []
        assert seen["cut"] == []
        assert seen[shown] == 5
        assert seen[hidden] == 0
        assert seen["smallest"] >= 9  # pixels from ascent to descent

    def test_the_check_sees_an_overflow(self, built, tmp_path):
        page = (built / "report.html").read_text().replace("<main>", '<main><div style="width:500px">wide</div>')
        seen = look_at(page, 390, tmp_path)
        assert seen["scroll"] > 390
        assert seen["over"]
