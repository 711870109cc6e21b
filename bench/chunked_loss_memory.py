"""Peak memory of a training step's loss with the head in chunks, against the loss that stock transformers computes.

One decoder layer, so that the logits weigh as they do at the end of a large model: forward and backward of `TokenLoss`
against the same model called with `labels`. Each arm runs in a process of its own, as a process's peak never falls.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys

import torch
from common import Bench
from transformers import LlamaConfig, LlamaForCausalLM

from ropewalk.loss import TokenLoss

POSITIONS = 3072
VOCABULARY = 128_256
CHUNK = 256
REPETITIONS = 2
BYTES = 1 if sys.platform == "darwin" else 1024
"""Unit of ru_maxrss."""


def main() -> None:
    """Measure both arms in turn and judge; with `--arm`, be one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arm", choices=("chunked", "full"))
    if arm := parser.parse_args().arm:
        print(json.dumps(measure(arm)))
        return
    found: dict[str, list[dict[str, float]]] = {"chunked": [], "full": []}
    for _ in range(REPETITIONS):
        for arm, results in found.items():
            done = subprocess.run([sys.executable, __file__, "--arm", arm], check=True, capture_output=True, text=True)
            results.append(json.loads(done.stdout))
    for key in ("loss", "grad_norm"):
        ours, peer = found["chunked"][0][key], found["full"][0][key]
        assert abs(ours - peer) <= 1e-4 * abs(peer), f"{key}: chunked {ours}, full {peer}"
    peak = {arm: statistics.median(result["step_bytes"] for result in results) for arm, results in found.items()}
    Bench(
        name="chunked_loss_memory",
        compared=f"loss.py in chunks of {CHUNK} tokens, against LlamaForCausalLM(labels=...): memory of one step's "
        "forward and backward pass, beyond what the process held after a step of 16 tokens",
        on=f"{POSITIONS:,} positions, {VOCABULARY:,} words, width 128, one layer, float32, separate processes",
        goal=5,
    ).finish(
        peak["full"] / peak["chunked"],
        {
            "chunked_mib": round(peak["chunked"] / 2**20),
            "full_mib": round(peak["full"] / 2**20),
            "one_logits_tensor_mib": round(POSITIONS * VOCABULARY * 4 / 2**20),
            "loss": {arm: results[0]["loss"] for arm, results in found.items()},
            "grad_norm": {arm: results[0]["grad_norm"] for arm, results in found.items()},
            "repetitions": REPETITIONS,
        },
    )


def measure(arm: str) -> dict[str, float]:
    """Loss, gradient norm and the growth of the peak in one step, bytes."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=POSITIONS,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config)
    ids_BT = torch.randint(0, VOCABULARY, (1, POSITIONS + 1))
    step(arm, model, ids_BT[:, :17])
    model.zero_grad(set_to_none=False)
    before = peak_bytes()
    loss = step(arm, model, ids_BT)
    grown = peak_bytes() - before
    grads = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return {"loss": loss, "grad_norm": float(torch.nn.utils.get_total_norm(grads)), "step_bytes": grown}


def step(arm: str, model: LlamaForCausalLM, ids_BT: torch.Tensor) -> float:
    """Forward and backward of the mean loss; every token but the first is predicted."""
    inputs_BT, targets_BT = ids_BT[:, :-1], ids_BT[:, 1:]
    if arm == "chunked":
        positions_BT = torch.arange(inputs_BT.shape[1])[None]
        loss = TokenLoss(model, CHUNK)(inputs_BT, positions_BT, targets_BT, None).mean()
    else:
        loss = model(input_ids=inputs_BT, labels=inputs_BT, shift_labels=targets_BT, use_cache=False).loss
    loss.backward()
    return float(loss)


def peak_bytes() -> int:
    """The most memory this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * BYTES


if __name__ == "__main__":
    main()
