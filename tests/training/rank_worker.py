"""Run by torchrun in test_parallel.py: trains a tiny model on fixed batches and saves what rank 0 saw."""

import json
import sys
from pathlib import Path

import torch

from ropewalk.config import RunConfig
from ropewalk.data.batch import Batch
from ropewalk.engine import Engine, World, start_world
from ropewalk.export import merged_state
from ropewalk.model import load_bundle


class FakeTokenizer:
    """Just the ids that a fresh config asks for."""

    bos_token_id, eos_token_id, pad_token_id = 1, 2, 2


def uneven_batches(num: int) -> list[Batch]:
    """`num` micro batches of 2 x 24 tokens; batch i keeps very different numbers of labels, the first of them none."""
    made = []
    for i in range(num):
        random = torch.Generator().manual_seed(i)
        ids_BT = torch.randint(3, 64, (2, 25), generator=random)
        labels_BT = ids_BT[:, 1:].clone()
        labels_BT[:, : 24 - 5 * i] = -100  # 0, 10, 20, ... valid tokens
        positions_BT = torch.arange(24).expand(2, 24).clone()
        positions_BT[:, 12:] += 7 * i
        made.append(Batch(ids_BT[:, :-1], positions_BT, labels_BT, ("text", "text")))
    return made


def train_case(config: RunConfig, world: World, out: Path) -> None:
    """Train the case's steps; rank 0 leaves `NAME.json` (a row a step) and `NAME.pt` (the final weights) in `out`."""
    bundle = load_bundle(config, FakeTokenizer())  # type: ignore[arg-type]
    engine = Engine(config, bundle.model, world)
    bundle.verify()
    rows = []
    num = config.train.tokens_per_step // config.train.micro_batch_tokens
    for _ in range(config.train.steps):
        result = engine.train_step(uneven_batches(num)[world.rank :: world.size], lr=config.train.lr)
        rows.append({"loss": result.loss, "grad_norm": result.grad_norm, "tokens": result.tokens})
    bundle.verify()
    state = merged_state(engine, bundle.model)
    if world.leads:
        torch.save(state, out / f"{config.name}.pt")
        (out / f"{config.name}.json").write_text(json.dumps(rows))


def main() -> None:
    """Arguments: a JSON file with a list of run configurations, and the folder for what comes out."""
    torch.set_num_threads(1)
    world = start_world()
    for case in json.loads(Path(sys.argv[1]).read_text()):
        train_case(RunConfig.model_validate(case), world, Path(sys.argv[2]))


if __name__ == "__main__":
    main()
