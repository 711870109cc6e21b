"""The command line: thin, and lazy, so that `--help` and `check` answer at once."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from .errors import RopewalkError

app = typer.Typer(
    help="Lengthen the context window of RoPE language models, prove it, publish it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)

Recipe = Annotated[Path, typer.Argument(help="A recipe (YAML).")]
Overrides = Annotated[list[str] | None, typer.Argument(help="section.key=value, over what the recipe says.")]
Out = Annotated[Path | None, typer.Option(help="Run folder; runs/NAME by default.")]
Cache = Annotated[Path, typer.Option(file_okay=False, help="Folder for packages, converted models and tokenised text.")]
DEFAULT_CACHE = Path(".cache/ropewalk")


def main() -> None:
    """Console entry point."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    run_or_explain(lambda: app(obj=debug), debug)


def run_or_explain(run: Callable[[], object], debug: bool) -> None:
    """Run; on a user's error print its message alone and exit with its code (2, or 1 at run time)."""
    try:
        run()
    except RopewalkError as error:
        if debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:  # a disk or a permission, anywhere
        if debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("interrupted; repeat the command to go on", file=sys.stderr)
        sys.exit(130)


@app.command()
def check(recipes: Annotated[list[Path], typer.Argument(help="Recipes to read.")]) -> None:
    """Read recipes strictly and print what they resolve to. Loads neither torch nor transformers."""
    from .recipe_file import check_files

    reports = check_files(recipes)
    for report in reports:
        print(report)
    if any(not report.ok for report in reports):
        raise typer.Exit(2)


@app.command()
def schema() -> None:
    """Print the JSON schema of recipes, for editors."""
    from .recipe_file import schema as recipe_schema

    print(json.dumps(recipe_schema(), indent=2))


@app.command()
def methods(
    method: Annotated[str | None, typer.Argument(help="name:factor[,key=value...]; all methods when absent.")] = None,
    theta: Annotated[float, typer.Option(help="RoPE base of the model.")] = 10000.0,
    head_dim: Annotated[int, typer.Option(help="Rotated dimensions of a head.")] = 128,
    window: Annotated[int, typer.Option(help="Window of the pretrained model, tokens.")] = 4096,
    as_json: Annotated[bool, typer.Option("--json", help="Print frequencies and config form as JSON.")] = False,
) -> None:
    """The table of methods, or what one of them makes of a model's RoPE."""
    from .positional.table import describe, describe_json, methods_table

    if method is None:
        print(json.dumps([row.as_dict() for row in methods_table()], indent=2) if as_json else describe(None))
    else:
        record = describe_json(method, theta, head_dim, window)
        print(json.dumps(record) if as_json else describe(record))


@app.command()
def sources() -> None:
    """List the built-in text sources, which need no data hub."""
    from .data import list_builtin

    for source in list_builtin():
        print(source)


@app.command()
def train(
    context: typer.Context,
    recipe: Recipe,
    overrides: Overrides = None,
    out: Out = None,
    cache: Cache = DEFAULT_CACHE,
    ranks: Annotated[int, typer.Option(min=1, help="Processes on this machine.")] = 1,
) -> None:
    """Fine-tune a recipe; repeat the command to resume."""
    from .recipe_file import load

    load(recipe, overrides or [])  # a fault in the recipe shows before anything heavy is loaded
    words = [str(recipe), *(overrides or []), *(["--out", str(out)] if out else []), "--cache", str(cache)]
    typed = shlex.join(["ropewalk", "train", *words, *(["--ranks", str(ranks)] if ranks > 1 else [])])
    words += ["--typed", typed, *(["--debug"] if context.obj else [])]
    if ranks > 1:
        from .launch import launch

        raise typer.Exit(launch(ranks, words))
    from .train import main as train_main

    train_main(words)


@app.command(name="eval")
def evaluate_command(
    target: Annotated[str, typer.Argument(help="A run folder, a model folder or a hub id.")],
    methods: Annotated[
        str | None, typer.Option(help="Methods separated by ';' or ','; as published when absent.")
    ] = None,
    tasks: Annotated[str, typer.Option(help="perplexity,passkey,gap,nll-by-position")] = "perplexity,passkey",
    lengths: Annotated[str | None, typer.Option(help="Lengths in tokens, separated by commas.")] = None,
    steps: Annotated[str | None, typer.Option(help="Evaluate exports of these steps, or `all`.")] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Passkey trials a cell.")] = None,
    text: Annotated[str | None, typer.Option(help="Built-in source of the text, for models outside a run.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the scores; eval/ of the run by default.")] = None,
    cache: Cache = DEFAULT_CACHE,
) -> None:
    """Measure perplexity and passkey retrieval of one model under many methods, on the same inputs."""
    from .eval.command import run_command

    run_command(target, methods, tasks, lengths, steps, trials, text, out, cache)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders and folders of scores.")],
    out: Annotated[Path, typer.Option(help="Folder of the report.")] = Path("report"),
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Context extension",
) -> None:
    """Write report.json, report.html and figures from the scores of one or more runs."""
    from .report import build_report

    print(build_report(runs, out, title, None))


@app.command(name="fetch-smollm2")
def fetch_smollm2(
    out: Annotated[Path | None, typer.Option(help="Model folder; under the cache by default.")] = None,
    cache: Cache = DEFAULT_CACHE,
) -> None:
    """Convert the SmolLM2-135M that ships inside a Python package into a model folder."""
    from .smollm2 import convert

    print(convert(out or cache / "models" / "smollm2-135m", cache))


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder of runs, scores and the page.")] = Path("out/demo"),
    short: Annotated[bool, typer.Option("--short", help="Few steps and trials: shows that all parts work.")] = False,
    cache: Cache = DEFAULT_CACHE,
) -> None:
    """Extend the tiny base 8 times by two methods, beside direct fine-tuning, and write the page (about 10 minutes)."""
    from .demo import run_demo

    run_demo(out, short, cache)


@app.command(name="demo-real")
def demo_real(
    out: Annotated[Path, typer.Option(help="Folder of runs, scores and the page.")] = Path("out/demo-real"),
    cache: Cache = DEFAULT_CACHE,
) -> None:
    """Extend SmolLM2-135M from 8k to 32k tokens on novels and write the page (about half an hour on two cores)."""
    from .demo import run_demo_real

    run_demo_real(out, cache)
