"""Fine-tune one recipe: `ropewalk train recipes/demo-yarn-8x.yaml`, or under a launcher `deepspeed train.py RECIPE`.

Repeat the same command to resume: the run continues from its last complete checkpoint, bit for bit. Ctrl-C and SIGTERM
finish the step at hand, save, and say how to go on.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from ropewalk.checkpoint import TrainState, resume, save_checkpoint
from ropewalk.config import RunConfig
from ropewalk.data import Batch, PreparedData, RowSampler, open_prepared, prepare, train_tokenizer
from ropewalk.engine import Engine, World, learning_rate, start_world, zero3_construction
from ropewalk.errors import RunError
from ropewalk.export import export
from ropewalk.loading import load_tokenizer
from ropewalk.metrics import StepLog, closing
from ropewalk.model import check_base, load_bundle, stock_model
from ropewalk.recipe_file import load
from ropewalk.run_folder import setting_up

MAX_SKIPPED_STEPS = 5
"""Consecutive steps with a non-finite loss or gradient before a run stops."""


def train(config: RunConfig, folder: Path, cache: Path, command: str) -> Path:
    """Run the recipe in `folder` from wherever it stands to its `export/`; returns the run folder.

    `command` is what the user typed, told back when the run stops early. Raises RopewalkError kinds.
    """
    # One process, or one of many: the same path.
    world = start_world()
    check_base(config)  # before anything is written
    with setting_up(config, folder, world.leads):
        # Text becomes tokens once; rank 0 does it, the others read the memory map.
        tokenizer, prepared = prepare_data(config, folder, cache, world)
        sampler = RowSampler(config, prepared, tokenizer)

        # The method enters through the config, before the model is built.
        with zero3_construction(config):
            bundle = load_bundle(config, tokenizer)
        engine = Engine(config, bundle.model, world)
        bundle.verify()  # engines have been known to cast rotary buffers

    # Where the run stands.
    checkpoints = folder / "checkpoints"
    say = print_on_rank_0(world)
    state = resume(engine, checkpoints, say) or TrainState(0, 0, 0.0, world.size)
    if state.step:
        say(f"{config.name}: resuming after step {state.step} of {config.train.steps}")
    log = StepLog(config, folder, stock_model(bundle.model), world.size, state.step) if world.leads else None

    # The loop. Batches are a pure function of (seed, step, index), so the next step's are made while this one computes.
    skipped = 0
    with closing(log), caught_signals() as caught, ThreadPoolExecutor(1) as ahead:
        upcoming = ahead.submit(step_batches, sampler, state.step, world)
        while state.step < config.train.steps:
            started = time.perf_counter()
            batches = upcoming.result()
            upcoming = ahead.submit(step_batches, sampler, state.step + 1, world)
            lr = learning_rate(config, state.step)
            result = engine.train_step(batches, lr)
            seconds = time.perf_counter() - started
            state = TrainState(state.step + 1, state.tokens + result.tokens, state.seconds + seconds, state.world_size)
            if log:
                log.write(state.step, result, lr, seconds, state.tokens)
            skipped = 0 if result.applied else skipped + 1
            if skipped >= MAX_SKIPPED_STEPS:
                save_checkpoint(engine, checkpoints, state, config.checkpoint.keep)
                raise RunError(
                    f"{skipped} steps in a row had a non-finite loss or gradient, the last at step {state.step}. "
                    "A checkpoint was saved. Lower train.lr, or look at the rows of these steps."
                )
            if state.step in config.checkpoint.export_steps:
                export(engine, bundle, folder / "exports" / f"step_{state.step:06d}")
            stop = engine.any_rank(bool(caught))
            if stop or state.step % config.checkpoint.every_steps == 0 or state.step == config.train.steps:
                save_checkpoint(engine, checkpoints, state, config.checkpoint.keep)
            if stop and state.step < config.train.steps:
                say(f"{config.name}: stopped and saved after step {state.step}. Go on with:\n  {command}")
                return folder

    export(engine, bundle, folder / "export")
    say(f"{config.name}: done, {state.tokens:,} tokens in {state.seconds:.0f} s. Model: {folder / 'export'}")
    return folder


def prepare_data(config: RunConfig, folder: Path, cache: Path, world: World):
    """The run's tokenizer and its tokenised documents, made by rank 0 and read by all."""
    if config.model.fresh is not None:
        home = folder / "data" / "tokenizer"
        if world.leads and not home.exists():
            train_tokenizer(config, home, cache)
        world.barrier()
        tokenizer = load_tokenizer(config.model.model_copy(update={"tokenizer": str(home)}))
    else:
        tokenizer = load_tokenizer(config.model)
    prepared: PreparedData | None = None
    if world.leads:
        prepared = prepare(config, tokenizer, folder / "data", cache)
    world.barrier()
    return tokenizer, prepared or open_prepared(folder / "data")


def step_batches(sampler: RowSampler, step: int, world: World) -> list[Batch]:
    """This rank's micro batches of a step: every `world.size`-th one."""
    return [sampler.micro_batch(step, index) for index in range(world.rank, sampler.micro_batches_per_step, world.size)]


def print_on_rank_0(world: World):
    """A `print` that only the leading process does."""
    return (lambda text: print(text, file=sys.stderr, flush=True)) if world.leads else (lambda text: None)


@contextmanager
def caught_signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of dying of them; a second one of either kind acts at once."""
    caught: list[int] = []

    def note(number: int, frame: object) -> None:
        caught.append(number)
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(arguments: list[str] | None = None) -> None:
    """What a launcher starts on every rank."""
    from ropewalk.cli import run_or_explain

    parser = argparse.ArgumentParser(description="Fine-tune one recipe.")
    parser.add_argument("recipe")
    parser.add_argument("overrides", nargs="*", metavar="section.key=value")
    parser.add_argument("--out", type=Path, help="run folder; runs/NAME by default")
    parser.add_argument("--cache", type=Path, default=Path(".cache/ropewalk"))
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.add_argument("--typed", help=argparse.SUPPRESS)  # what the user typed to get here
    parser.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)  # DeepSpeed's launcher adds it
    given = parser.parse_args(arguments)

    def run() -> None:
        config = load(given.recipe, given.overrides)
        command = given.typed or "the same launcher command as before"
        train(config, given.out or Path("runs") / config.name, given.cache, command)

    run_or_explain(run, given.debug)


if __name__ == "__main__":
    main()
