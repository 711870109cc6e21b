"""What `ropewalk methods` prints: the table of methods, or one method worked out for a model's RoPE."""

from __future__ import annotations

import math
import textwrap
from dataclasses import asdict, dataclass
from typing import Any

from . import METHODS, parse_method
from .base import BaseRope

LINE = 100
"""Columns of the printed table."""


@dataclass(frozen=True)
class MethodRow:
    """A row of the table of methods. In formulas w is a frequency of the base, s the factor, L the pretrained window,
    d the rotated dimensions of a head, r = L w / 2 pi the turns a pair makes inside the window.
    """

    method: str
    written: str
    """An example of how it is written."""
    formula: str
    carrier: str
    """The stock `rope_type` that says it."""
    readers: str
    """Who reads that form right, and who does not."""
    paper: str

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return asdict(self)


_EVERYONE = "every reader: rope_theta also stands at the top level"
_GENERAL = "longrope, equal lists"
_LONGROPE = "transformers 4 and 5; vLLM, by short_mscale and long_mscale, which are written too"

_ROWS = (
    MethodRow("none", "none:8", "w' = w (direct extrapolation)", "default", _EVERYONE, "arXiv:2104.09864"),
    MethodRow(
        "linear",
        "linear:8",
        "w' = w / s",
        "linear",
        "transformers 4 and 5; vLLM, which allows s times max_position_embeddings",
        "arXiv:2306.15595",
    ),
    MethodRow(
        "ntk",
        "ntk:8 | ntk:8,form=alpha,alpha=16 | ntk:8,form=critical",
        "theta' = theta s^(d/(d-2)), or with alpha for s; critical: theta' = theta^(ln(sL/2pi) / ln(L/2pi))",
        "default, larger rope_theta",
        _EVERYONE,
        "arXiv:2309.00071 section 3.1; critical: arXiv:2310.05209",
    ),
    MethodRow("abf", "abf:8,theta=5e5", "theta' as given", "default, larger rope_theta", _EVERYONE, "arXiv:2309.16039"),
    MethodRow(
        "yarn",
        "yarn:8 | yarn:8,ramp=turns | yarn:8,ramp=harmonic",
        "w' = w (g/s + 1 - g), ramp g from 0 at r >= beta_fast = 32 to 1 at r <= beta_slow = 1, linear in the pair's "
        "index (or in r; or harmonic: w' = w / (g s + 1 - g)); attention scale 0.1 ln s + 1",
        "yarn; longrope for the other ramps",
        "transformers 4 and 5; vLLM, of which older ones drop an attention_factor other than 0.1 ln s + 1",
        "arXiv:2309.00071; harmonic: arXiv:2309.10400",
    ),
    MethodRow(
        "llama3",
        "llama3:8,low=1,high=4",
        "w' = w (k + (1 - k)/s), k from 0 at r <= low = 1 to 1 at r >= high = 4, linear in r",
        "llama3",
        "transformers 4 and 5; vLLM",
        "arXiv:2407.21783",
    ),
    MethodRow(
        "by_parts",
        "by_parts:8,alpha=1,beta=32",
        "as llama3, from r = alpha = 1 to r = beta = 32",
        "llama3",
        "transformers 4 and 5; vLLM",
        "arXiv:2309.00071 section 3.2",
    ),
    MethodRow(
        "longrope",
        "longrope:8,divisors=1/1.2/.../8 | longrope:8,divisors=@list.json",
        "w'_i = w_i / divisors_i; attention scale sqrt(1 + ln s / ln L)",
        _GENERAL,
        _LONGROPE,
        "arXiv:2402.13753",
    ),
    MethodRow(
        "resonance",
        "resonance:8,of=yarn",
        "w' = 2pi / round(2pi / v), v of the inner method (none, linear, ntk or yarn)",
        _GENERAL,
        _LONGROPE,
        "arXiv:2403.00071",
    ),
    MethodRow(
        "cope",
        "cope:8,num=20,theta=5e5",
        "w' = v (1 + cos(pi k / (num-1))) / 2, k = 0, 1, ... over the num slowest pairs; v of theta (or of ntk)",
        _GENERAL,
        _LONGROPE,
        "arXiv:2602.05258",
    ),
    MethodRow(
        "p_rope",
        "p_rope:8,share=0.25",
        "w' = w for the fastest share of the pairs, 0 for the others",
        "proportional; longrope beside partial rotary",
        "transformers 5; unknown to transformers 4",
        "arXiv:2410.06205",
    ),
    MethodRow(
        "dynamic",
        "dynamic:8",
        "theta' = theta (s l/L - s + 1)^(d/(d-2)) at length l > L",
        "dynamic",
        "evaluation only: its frequencies change with the length, and readers disagree",
        "arXiv:2309.00071 section 3.3",
    ),
)


def methods_table() -> list[MethodRow]:
    """A row for every method, in the order of the registry."""
    rows = {row.method: row for row in _ROWS}
    return [rows[name] for name in METHODS]


def describe_json(method_text: str, theta: float, head_dim: int, window: int) -> dict[str, Any]:
    """What a method makes of a model's RoPE: `inv_freq` (float64, fastest first), `attention_scale` and the stock
    `rope_parameters`. `head_dim` counts rotated dimensions. Raises MethodError.
    """
    method, base = parse_method(method_text), BaseRope(theta=theta, head_dim=head_dim, window=window)
    rotary = method.rotary(base)
    return {
        "inv_freq": list(rotary.inv_freq_F),
        "attention_scale": rotary.attention_scale,
        "rope_parameters": method.rope_parameters(base),
    }


def describe(record: dict[str, Any] | None) -> str:
    """Readable lines of what `describe_json` gave, or of the table of methods when there is none."""
    return _described(record) if record is not None else "\n".join(_printed(row) for row in methods_table()) + _LEGEND


_LEGEND = (
    "\nw: a frequency; s: factor; L: pretrained window; d: rotated dimensions; r = L w / 2pi: turns inside L."
    "\nWritten name:factor[,key=value...]. One worked out: ropewalk methods yarn:8 --head-dim 128 --window 4096"
)


def _printed(row: MethodRow) -> str:
    lines = [f"{row.method:<10}{row.written}"]
    for head, text in (("", row.formula), ("stock ", row.carrier), ("read by ", row.readers), ("", row.paper)):
        lines += textwrap.wrap(head + text, LINE, initial_indent=" " * 10, subsequent_indent=" " * 12)
    return "\n".join(lines) + "\n"


def _described(record: dict[str, Any]) -> str:
    freqs, parameters = record["inv_freq"], record["rope_parameters"]
    lines = [f"attention scale  {record['attention_scale']:.6g}", "rope_parameters"]
    for key, value in parameters.items():
        shown = f"{len(value)} numbers, {value[0]:.6g} to {value[-1]:.6g}" if isinstance(value, list) else value
        lines.append(f"  {key:<34}{shown}")
    lines += ["", "pair  radians a position  wavelength (positions)"]
    for pair in sorted({round(i * (len(freqs) - 1) / 8) for i in range(9)}):
        wavelength = f"{2 * math.pi / freqs[pair]:,.1f}" if freqs[pair] else "does not turn"
        lines.append(f"{pair:>4}  {freqs[pair]:<18.6g}  {wavelength}")
    return "\n".join(lines)
