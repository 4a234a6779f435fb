"""The `repair` command: parse, call, print, exit code. Nothing heavy is imported before it is needed."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from repair import __version__
from repair.console import ConsoleProgress
from repair.core.errors import ConfigError, Interrupted, RepairError
from repair.core.redaction import redacted

app = typer.Typer(
    name="repair",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="""Turn the retrieval failures of an image-text model into training pairs, and measure what they gain.

One run is one loop: mine, verify, instruct, edit, select, link, grids, train, eval. It can be stopped at any time
and goes on where it was.

[bold]First time[/bold]: `repair run configs/demo.toml` runs everything on a drawn world, offline.
[bold]Your own data[/bold]: `repair init`, edit the file it writes, `repair doctor my.toml`, `repair run my.toml`.
""",
)

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="TOML file of settings (`repair init` writes one).")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, e.g. runs/demo.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="SECTION.KEY=VALUE", help="Change one setting; repeatable. `repair settings` lists all."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print results as JSON on stdout.")]
Reuse = Annotated[
    bool,
    typer.Option(
        "--reuse", help="Go on in a run folder made with other settings: keep what still holds, redo the rest."
    ),
]


RetryFailed = Annotated[
    bool,
    typer.Option(
        "--retry-failed", help="Ask the failed calls of finished stages again, and redo what their answers change."
    ),
]


DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run", help="Ask nothing: print the calls, tokens, money and hours to expect, and what that rests on."
    ),
]


@app.command()
def run(
    config: ConfigPath,
    overrides: Overrides = None,
    reuse: Reuse = False,
    retry_failed: RetryFailed = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Run the whole loop, all rounds, and write the report. Run it again to resume."""
    if dry_run:
        _forecast(config, overrides, as_json=as_json, until=None)
    else:
        _pipeline(config, overrides, reuse=reuse, retry_failed=retry_failed, as_json=as_json, until=None)


def _stage_command(name: str, summary: str) -> None:
    def command(
        config: ConfigPath,
        overrides: Overrides = None,
        reuse: Reuse = False,
        retry_failed: RetryFailed = False,
        dry_run: DryRun = False,
        as_json: AsJson = False,
    ) -> None:
        if dry_run:
            _forecast(config, overrides, as_json=as_json, until=name)
        else:
            _pipeline(config, overrides, reuse=reuse, retry_failed=retry_failed, as_json=as_json, until=name)

    command.__doc__ = f"{summary}\n\nStages before it that are not finished run first; finished ones are kept."
    app.command(name, rich_help_panel="Single stages")(command)


_stage_command("mine", "Find the near misses of the model, both directions, on the train split.")
_stage_command("verify", "Drop failures that are annotation noise or true matches.")
_stage_command("instruct", "Say what must change in each false positive.")
_stage_command("edit", "Make M candidate edits of each false positive.")
_stage_command("select", "Keep the valid candidate closest to the false positive.")
_stage_command("link", "Turn repairs into hard-positive and hard-negative links.")
_stage_command("grids", "Draw the 3x3 grids of every training step.")
_stage_command("train", "Fine-tune on the global batch and the grids.")


@app.command("eval", rich_help_panel="Single stages")
def evaluate(
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG]", help="TOML file of settings: measure a run before and after.")
    ] = None,
    overrides: Overrides = None,
    reuse: Reuse = False,
    retry_failed: RetryFailed = False,
    dry_run: DryRun = False,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ENCODER[:WHAT]",
            help="Measure any encoder without a run: small, towers:CHECKPOINT, open_clip:MODEL, hf:MODEL, or a run's "
            "folder (RUN, RUN@base, RUN@round-0). Repeatable: side by side, with paired tests. Seeds: A1,A2,A3.",
        ),
    ] = None,
    suite: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[(OPTION=…)]", help="What to measure; repeatable. docs/evaluation.md lists all."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="File or folder of the suite; one for all, or one for each."),
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="Folder of the pictures, if they are not beside the data.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Which split of the data; default: test, or the only one.")] = None,
    out: Annotated[Path | None, typer.Option(help="Also write results, items and schema into this folder.")] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Run what is there, and label the result partial.")
    ] = False,
    export: Annotated[
        str | None, typer.Option(metavar="clip-benchmark", help="Also write CLIP_benchmark's files.")
    ] = None,
    fit: Annotated[
        str | None, typer.Option(metavar="DATA", help="Data whose train split an encoder without heads is fitted on.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(metavar="ENCODER[:WHAT]", help="For --suite drift: the model to measure from.")
    ] = None,
    cache: Annotated[Path, typer.Option(help="Folder of prepared inputs and embeddings.")] = Path("runs/.cache"),
    n_bootstrap: Annotated[int, typer.Option(min=1, help="Resamples behind every interval.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Of the resamples, and of heads that --fit fits.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Measure: with CONFIG a run's retrieval before and after; with --model any encoders on any suites.

    repair eval --model runs/demo@base --model runs/demo --suite world --out results/demo
    """
    if (config is None) == (not model):
        raise ConfigError("eval: give a CONFIG (a run), or --model with --suite (an encoder by itself)")
    if config is not None:
        alone = {"--suite": suite, "--data": data, "--out": out, "--export": export, "--reference": reference}
        given = [name for name, value in alone.items() if value]
        if given:
            raise ConfigError(f"eval CONFIG measures a run; {given[0]} goes with --model")
        if dry_run:
            _forecast(config, overrides, as_json=as_json, until="eval")
        else:
            _pipeline(config, overrides, reuse=reuse, retry_failed=retry_failed, as_json=as_json, until="eval")
        return
    if overrides or reuse or retry_failed or dry_run:
        raise ConfigError("eval --model takes no --set, --reuse, --retry-failed or --dry-run: they go with a CONFIG")
    from repair.pipeline.judging import judge

    found = judge(
        models=model or (),
        suites=suite or (),
        data=data or (),
        images=images,
        split=split,
        allow_missing=allow_missing,
        fit=fit,
        reference=reference,
        out=out,
        export=export,
        cache=cache,
        n_bootstrap=n_bootstrap,
        seed=seed,
        progress=ConsoleProgress(),
    )
    _emit(found.to_json(), as_json, lambda _: found.lines())


@app.command(rich_help_panel="Compare")
def compare(
    run_a: Annotated[
        str,
        typer.Argument(
            metavar="RUN_A",
            help="A folder of `repair eval --out`, or of a run (RUN@base, RUN@round-0). Seeds: A1,A2,A3.",
        ),
    ],
    run_b: Annotated[str, typer.Argument(metavar="RUN_B", help="Likewise: what is compared with RUN_A.")],
    page: Annotated[Path, typer.Option(help="The HTML page to write, with pictures.")] = Path("compare.html"),
    n_bootstrap: Annotated[int, typer.Option(min=1, help="Resamples behind every interval.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Of the resamples, and of which items are shown.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Where two models differ, item by item: paired differences with intervals, and a page with pictures."""
    from repair.evaluation.versus import versus_lines
    from repair.pipeline.comparing import compare as compare_runs
    from repair.reports.compared import write_comparison

    facts, found, side = compare_runs(run_a, run_b, n_bootstrap=n_bootstrap, seed=seed)
    written = write_comparison(page, facts, found, side, seed=seed)
    _emit({**facts, "page": str(written)}, as_json, versus_lines)


@app.command(rich_help_panel="Look")
def report(config: ConfigPath, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Write report.html of a run from what its folder holds. CONFIG may also be the run's folder."""
    from repair.pipeline.run import locate_run
    from repair.reports.html import write_report

    path = write_report(locate_run(config, overrides or ()), ConsoleProgress())
    _emit({"report": str(path)}, as_json, lambda _: [f"report: {path}"])


@app.command(rich_help_panel="Look")
def status(run: RunPath, as_json: AsJson = False) -> None:
    """Where a run stands: stages done, what they kept and dropped, calls, tokens and money so far."""
    from repair.pipeline.look import run_status, status_lines

    _emit(run_status(run), as_json, status_lines)


@app.command(rich_help_panel="Look")
def show(
    run: RunPath,
    failure_id: Annotated[str, typer.Argument(metavar="FAILURE_ID", help="As in failures.parquet; a prefix will do.")],
    images: Annotated[
        Path | None, typer.Option(help="Also write the pictures of this failure into this folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The lineage of one failure: query, false positive, verdict, instruction, candidates, repair, grids, calls."""
    from repair.pipeline.look import lineage, lineage_lines

    _emit(lineage(run, failure_id, images=images), as_json, lineage_lines)


prompts_app = typer.Typer(no_args_is_help=True, help="The prompts that chat models and image editors are asked with.")
app.add_typer(prompts_app, name="prompts", rich_help_panel="Look")


@prompts_app.callback()
def _prompts() -> None:
    pass


@prompts_app.command("show")
def prompts_show(
    task: Annotated[str, typer.Argument(metavar="TASK", help="verify, instruct, edit or plan.")],
    failure: Annotated[
        str | None, typer.Option(metavar="ID", help="Fill it in with this failure of a run; a prefix will do.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Folder of the run; by default the newest below runs/.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a prompt, filled in with one failure as a model would get it. Nothing is asked."""
    from repair.pipeline.prompting import prompt_lines, shown_prompt

    _emit(shown_prompt(task, failure_id=failure, run=run), as_json, prompt_lines)


@app.command(rich_help_panel="Start")
def init(
    path: Annotated[Path, typer.Argument(metavar="CONFIG", help="The file to write.")] = Path("repair.toml"),
    data: Annotated[str, typer.Option(help="Data source: jsonl, csv, karpathy, coco, folder or world.")] = "jsonl",
    encoder: Annotated[str, typer.Option(help="Encoder: towers or small.")] = "towers",
    force: Annotated[bool, typer.Option(help="Overwrite the file if it exists.")] = False,
) -> None:
    """Write a commented config for your own data: every setting with its meaning and default."""
    from repair.pipeline.template import write_template

    write_template(path, source=data, encoder=encoder, force=force)
    _emit(str(path), False, lambda _: [f"wrote {path}", f"next: edit its [data] section, then `repair doctor {path}`"])


@app.command(rich_help_panel="Start")
def doctor(
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG]", help="Also check this config's data and backends.")
    ] = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Check environment, data and backends, and say what to fix."""
    from repair.pipeline.doctor import check_lines, checks

    found = checks(config, overrides or (), progress=ConsoleProgress())
    _emit(found, as_json, check_lines)
    if any(check["status"] == "fail" for check in found):
        raise typer.Exit(1)


@app.command(rich_help_panel="Start")
def settings(as_json: AsJson = False) -> None:
    """List every setting with its default, type and meaning."""
    from repair.config import settings as all_settings

    rows = [
        {"name": name, "default": default, "type": kind, "description": description}
        for name, default, kind, description in all_settings()
    ]
    _emit(
        rows,
        as_json,
        lambda rows: [f"{r['name']} = {r['default']}  ({r['type']})\n    {r['description']}" for r in rows],
    )


@app.command(rich_help_panel="Compare")
def bench(
    config: ConfigPath,
    overrides: Overrides = None,
    match: Annotated[
        str | None,
        typer.Option(help="Equal budgets: samples, calls or steps; default: the file's bench.match, else none."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Only this variant and the references; may be given several times.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run several variants over several seeds at equal budgets, and print the table with intervals. Resumes."""
    from repair.pipeline.bench import run_bench
    from repair.pipeline.bench_lines import bench_lines

    found = run_bench(config, overrides or (), progress=ConsoleProgress(), match=match, only=only or ())
    _emit(found, as_json, bench_lines)


@app.command(rich_help_panel="Compare")
def sweep(
    config: ConfigPath,
    values: Annotated[
        str, typer.Option(help="The setting and its values, section.key=value,value,… (the paper's learning rates).")
    ] = "training.lr=1e-5,5e-6,2e-6,1e-6",
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Run one setting over several values and choose by mean R@1 on val. Resumes."""
    from repair.pipeline.sweep import run_sweep, sweep_lines

    _emit(run_sweep(config, overrides or (), values, progress=ConsoleProgress()), as_json, sweep_lines)


@app.command(rich_help_panel="Look")
def export(
    run: RunPath,
    kind: Annotated[
        str, typer.Argument(metavar="FORMAT", help="model, open-clip, negclip, webdataset, datasets or triplets.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write.")],
    round: Annotated[int | None, typer.Option(help="Of this round; default: the last one.")] = None,
    force: Annotated[bool, typer.Option(help="Replace the folder if it exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the trained model with its card, or pairs and grids for other training code."""
    from repair.pipeline.export import export as write_export
    from repair.pipeline.export import export_lines

    _emit(write_export(run, kind, out, round=round, force=force), as_json, export_lines)


@app.command(rich_help_panel="Compare")
def tables(
    benches: Annotated[
        list[Path],
        typer.Argument(
            metavar="BENCH",
            help="Folders of benches, e.g. runs/bench-methods, or .json files of benches in them; one page for all.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write the page here, e.g. docs/results.md, and its figures beside it.")
    ] = None,
) -> None:
    """The paper's tables and figures from finished benches, beside the paper's numbers."""
    from repair.reports.benches import Bench
    from repair.reports.results_page import check_out, results_page, write_results

    progress = ConsoleProgress()
    if out is not None:
        check_out(out)
    opened = [Bench.open(given) for given in benches]
    command = ["repair", "tables", *map(str, benches), *(["--out", str(out)] if out is not None else [])]
    if out is not None:
        lines = [f"wrote {path}" for path in write_results(opened, out, command=command, progress=progress)]
    else:
        lines = results_page(opened, command=command, progress=progress).splitlines()
    _emit(lines, False, list)


def _pipeline(
    config: Path,
    overrides: list[str] | None,
    *,
    reuse: bool,
    retry_failed: bool,
    as_json: bool,
    until: str | None,
) -> None:
    from repair.pipeline.places import config_at
    from repair.pipeline.processes import crew
    from repair.pipeline.run import run_pipeline, summary_lines

    progress = ConsoleProgress()
    settings = config_at(config, overrides=overrides or ())
    command = _command()
    try:
        with crew(settings) as leads:
            if not leads:
                return
            outcome = run_pipeline(
                settings, until=until, reuse=reuse, progress=progress, retry_failed=retry_failed, command=command
            )
    except KeyboardInterrupt:  # between calls: there is nothing in flight to wait for
        raise Interrupted(f"interrupted; everything finished is kept: `{command}` goes on from here") from None
    if until is None:
        from repair.reports.html import write_report

        outcome["report"] = str(write_report(settings.run_path(), progress))
    _emit(outcome, as_json, summary_lines)


def _forecast(config: Path, overrides: list[str] | None, *, as_json: bool, until: str | None) -> None:
    from repair.pipeline.forecast import forecast, forecast_lines
    from repair.pipeline.places import config_at
    from repair.pipeline.run import stages_until

    settings = config_at(config, overrides=overrides or ())
    _emit(forecast(settings, stages=stages_until(settings, until)), as_json, forecast_lines)


def _command() -> str:
    """What the user typed, to be typed again."""
    return shlex.join(["repair", *sys.argv[1:]])


def _emit(value: Any, as_json: bool, lines: Callable[[Any], list[str]]) -> None:
    """Results go to stdout; progress and errors to stderr."""
    if as_json:
        text = json.dumps(value, indent=2, sort_keys=True, default=str)
    else:
        text = "\n".join(lines(value))
    sys.stdout.write(text + "\n")


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"repair {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The entry point: user mistakes and broken inputs are one clear line and an exit code, never a traceback."""
    try:
        app()
    except RepairError as error:
        sys.stderr.write("".join(f"repair: {line}\n" for line in redacted(str(error)).splitlines()))
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.exit(141)
