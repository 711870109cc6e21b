"""Plain words and numbers: names of methods and arms, formats, and sentences about training rows and results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .schema import UNTRAINED, DataRow

METHOD_NAMES = {
    "linear": "linear (PI)",
    "yarn": "YaRN",
    "ntk": "NTK",
    "abf": "ABF",
    "longrope": "LongRoPE",
    "cope": "CoPE",
    "p_rope": "p-RoPE",
}


def method_title(method: str) -> str:
    """`linear:8` -> `linear (PI) ×8`; parameters beyond the factor are kept as written."""
    name, _, rest = method.partition(":")
    factor, _, parameters = rest.partition(",")
    title = METHOD_NAMES.get(name, name)
    if factor:
        title += f" ×{factor}" if "=" not in factor else f" {factor}"
    return f"{title} ({parameters})" if parameters else title


def arm_labels(
    arms: Iterable[tuple[str, str]], own: Mapping[str, str], suffixes: Mapping[str, str]
) -> dict[tuple[str, str], str]:
    """A short name for each (method, arm).

    `own` is the name of the method each run was trained with: weights measured with another's method say so. `suffixes`
    tell apart arms that share a method; an arm without one goes by its own name where it must.
    """
    arms = list(arms)
    shared = [method for method, arm in arms if arm != UNTRAINED]
    labels = {}
    for method, arm in arms:
        if arm != UNTRAINED and own.get(arm, method_name(method)) != method_name(method):
            label = f"{method_title(method)} on the weights of {arm}"
        else:
            label = untrained_label(method) if arm == UNTRAINED else trained_label(method)
            if arm != UNTRAINED and shared.count(method) > 1:
                label += suffixes.get(arm, f", {arm}")
        labels[method, arm] = label
    return labels


def arm_suffixes(methods: Mapping[str, str], rows: Sequence[DataRow]) -> dict[str, str]:
    """What tells arms of one method apart, where it is that one of them saw plain text only.

    `methods` is the method by arm. Arms for which that does not decide get no suffix here.
    """
    retrieval = {row.arm for row in rows if row.passkey or row.repeat}
    suffixes = {}
    for method in set(methods.values()):
        arms = [arm for arm in methods if methods[arm] == method]
        plain = [arm for arm in arms if arm not in retrieval]
        taught = [arm for arm in arms if arm in retrieval]
        if len(plain) == len(taught) == 1:
            suffixes |= {plain[0]: ", plain text only", taught[0]: ""}
    return suffixes


def method_name(method: str) -> str:
    return method.partition(":")[0]


def trained_label(method: str) -> str:
    return "direct fine-tuning" if method == "none" else method_title(method)


def untrained_label(method: str) -> str:
    return "base model" if method == "none" else method_title(method)


def steps_label(trained: int) -> str:
    return "untrained" if trained == 0 else f"{trained:,} steps" if trained != 1 else "1 step"


def state_label(method: str, trained: int) -> str:
    """As `steps_label`; without a method, untrained is the base model itself."""
    return "base model" if method == "none" and trained == 0 else steps_label(trained)


def compact_tokens(tokens: int) -> str:
    """256, 1k, 1.5k, 32k, with k = 1,024; other lengths in full."""
    if tokens >= 1024 and tokens % 256 == 0:
        return f"{tokens / 1024:g}k"
    return f"{tokens:,}"


def number(value: float) -> str:
    """Three figures or so, never more than one decimal above 10."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def percent(share: float) -> str:
    """With a no-break space, so that the sign never begins a line."""
    return f"{100 * share:.0f}\u00a0%"


def duration(seconds: float) -> str:
    """45 s, 12 min 5 s, 3 h 20 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def byte_size(num_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.0f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.1f} GiB"


def joined(parts: Sequence[str]) -> str:
    """a, b and c"""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def row_sentence(row: DataRow) -> str:
    """One row plan in a sentence, e.g. what share of the micro batches it is and what its rows hold."""
    share = "All micro batches" if row.share > 0.999 else f"{percent(row.share)} of the micro batches"
    skips = "with positions that skip ahead, up to the end of the target window"
    positions = "read in plain order" if row.positions == "dense" else skips
    names = {"text": "text", "passkey": "passkey prompts with their answer", "repeat": "a text segment given twice"}
    held = [f"{percent(getattr(row, kind))} {name}" for kind, name in names.items() if getattr(row, kind) > 0]
    content = held[0].removeprefix("100\u00a0% ") + " only" if len(held) == 1 else joined(held)
    when = ""
    if row.first_step or row.last_step:
        end = f" to {row.last_step:,}" if row.last_step else " on"
        when = f" from step {row.first_step:,}{end}"
    return f"{share}{when}: rows of {row.row_tokens:,} tokens, {positions}; {content}."


def retrieval_sentence(rows: Sequence[DataRow]) -> str:
    """What passkey figures of an arm with these rows can and cannot say."""
    total = sum(row.share * row.steps for row in rows)
    share = sum(row.share * row.steps * row.passkey for row in rows) / total
    if share == 0:
        return "No passkey prompts were trained on: retrieval was only measured."
    return (
        f"About {percent(share)} of the rows are passkey prompts (keys other than the measured ones), so retrieval is "
        "a trained skill here and the figure shows the distance at which it works."
    )
