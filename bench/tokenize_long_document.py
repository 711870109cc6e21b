"""Tokens of one long document in pieces, against one `tokenizers` call on the whole text: time, and the same ids.

One thread for both, so that the figure is what cutting is worth, not what a second core adds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from common import Bench, alternate
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from ropewalk.data.builtin import stdlib
from ropewalk.data.tokenize import DocumentTokenizer

CHARS = 4_000_000
REPETITIONS = 3
FOLDER = Path(__file__).parents[1] / "assets" / "tiny-base"


def main() -> None:
    """Measure and judge."""
    text = "\n".join(document.text for document in stdlib(Path()))[:CHARS]
    raw = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    with DocumentTokenizer(AutoTokenizer.from_pretrained(FOLDER), num_threads=1) as pieces:
        timed = alternate(
            {
                "pieces": lambda: next(pieces.map([text])),
                "whole": lambda: np.array(raw.encode(text, add_special_tokens=False).ids),
            },
            REPETITIONS,
        )
    ours, peer = timed["pieces"], timed["whole"]
    np.testing.assert_array_equal(ours.result, peer.result)
    Bench(
        name="tokenize_long_document",
        compared="data/tokenize.py on one thread, against one encode call of tokenizers on the whole text",
        on=f"{CHARS:,} characters of Python's standard library, the tiny base's 2,048-token vocabulary",
        goal=1.2,
    ).finish(
        peer.median / ours.median,
        {
            "pieces_s": round(ours.median, 2),
            "whole_s": round(peer.median, 2),
            "tokens": len(ours.result),
            "repetitions": REPETITIONS,
        },
    )


if __name__ == "__main__":
    main()
