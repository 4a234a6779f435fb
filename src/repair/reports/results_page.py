"""One page of one or several benches: every table below the command lines that make it, figures beside the page."""

from collections.abc import Sequence
from itertools import count as numbers_from
from pathlib import Path
from urllib.parse import quote

from repair.core.errors import ConfigError
from repair.core.progress import Progress, Silent
from repair.pipeline.bench_lines import seeds_line
from repair.reports.bench_tables import N_TABLES, LeftOut, filled
from repair.reports.benches import Bench, Table
from repair.reports.curve import figure
from repair.reports.paths import command_line
from repair.store.files import write_text

_SILENT = Silent()


def results_page(
    benches: Sequence[Bench],
    *,
    command: Sequence[str],
    figures: Sequence[str | None] = (),
    progress: Progress = _SILENT,
) -> str:
    """All tables as Markdown. `command` are the words of the line that makes the page, `figures` the file beside it
    with each bench's Figure 9. With several benches each has a section; paths are relative."""
    several = len(benches) > 1
    lines = ["# Results", ""] if several else []
    links = [*figures, *([None] * (len(benches) - len(figures)))]
    with progress.task("tables", N_TABLES * len(benches)) as advance:
        for bench, title, link in zip(benches, _titles(benches), links, strict=True):
            tables, left_out = filled(bench, advance)
            lines += _section(bench, title, tables, left_out, command, link, level=2 if several else 1)
    return "\n".join(lines).rstrip() + "\n"


def check_out(out: Path) -> None:
    """Raises ConfigError unless a page can be written there."""
    if out.suffix != ".md" or out.is_dir():
        raise ConfigError(f'--out "{out}": must be a Markdown file whose name ends in .md, e.g. docs/results.md')
    above = next((folder for folder in out.parents if folder.exists()), None)
    if above is not None and not above.is_dir():
        raise ConfigError(f'--out "{out}": {above} is a file, not a folder')


def write_results(
    benches: Sequence[Bench], out: Path, *, command: Sequence[str], progress: Progress = _SILENT
) -> list[Path]:
    """The page in `out`, and each bench's Figure 9 beside it. Returns what was written; a refusal writes nothing.

    Raises ConfigError where `out` is no Markdown file, or a figure's place is a folder.
    """
    check_out(out)
    pictures = [figure(bench) for bench in benches]
    names = [
        f"{out.stem}-{name}-figure-9{'' if number == 1 else f'-{number}'}.svg" if picture else None
        for picture, (name, number) in zip(pictures, _numbered(benches), strict=True)
    ]
    for name in names:
        if name and (out.parent / name).is_dir():
            raise ConfigError(f'--out "{out}": its figure is to be {out.parent / name}, which is a folder')
    page = results_page(benches, command=command, figures=names, progress=progress)
    write_text(out, page)
    written = [out]
    for name, picture in zip(names, pictures, strict=True):
        if name and picture:
            write_text(out.parent / name, picture)
            written.append(out.parent / name)
    return written


def _numbered(benches: Sequence[Bench]) -> list[tuple[str, int]]:
    """Each bench's name, and the how-manieth of that name it is."""
    counters = {bench.name: numbers_from(1) for bench in benches}
    return [(bench.name, next(counters[bench.name])) for bench in benches]


def _titles(benches: Sequence[Bench]) -> list[str]:
    return [name if number == 1 else f"{name} ({number})" for name, number in _numbered(benches)]


def _section(
    bench: Bench,
    title: str,
    tables: Sequence[Table],
    left_out: Sequence[LeftOut],
    command: Sequence[str],
    figure_link: str | None,
    *,
    level: int,
) -> list[str]:
    facts = bench.facts
    made = facts.get("command") or ["repair", "bench", f"configs/{bench.name}.toml"]
    lines = [
        f"{'#' * level} {title}",
        "",
        "```bash",
        command_line(made),
        command_line(command),
        "```",
        "",
        f"Split `{facts['split']}`, {seeds_line(facts['seeds'])}; means over seeds, differences with "
        "their 95 % interval. Everything is read from the bench's run folders.",
        "",
    ]
    for table in tables:
        lines += table.lines(level=level + 1)
        if figure_link and table.name == "Figure 9":
            lines += [f"![{_described(bench, table)}]({quote(figure_link)})", ""]
    return [*lines, *_left_out_lines(left_out)]


def _left_out_lines(left_out: Sequence[LeftOut]) -> list[str]:
    """One line; tables that are left out for one reason stand together."""
    if not left_out:
        return []
    reasons = dict.fromkeys(why for _, why in left_out)
    parts = [f"{', '.join(name for name, why in left_out if why == reason)} ({reason})" for reason in reasons]
    return [f"Left out: {'; '.join(parts)}.", ""]


def _described(bench: Bench, table: Table) -> str:
    text = f"{table.name}: mean R@1 of every method at each share of the budget, {bench.name}"
    return text.replace("[", "(").replace("]", ")")
