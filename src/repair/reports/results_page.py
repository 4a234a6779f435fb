"""One page of one or several benches: every table below the command lines that make it, figures beside the page."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from repair.core.errors import ConfigError
from repair.reports.bench_tables import bench_tables
from repair.reports.benches import Bench, Table
from repair.reports.curve import figure
from repair.store.files import write_text


def results_page(benches: Sequence[Bench], *, command: Sequence[str], figures: Mapping[str, str] | None = None) -> str:
    """All tables as Markdown. `command` are the words of the line that makes the page, `figures` links to Figure 9 by
    the name of the bench. With several benches each has a section; paths are relative."""
    several = len(benches) > 1
    lines = ["# Results", ""] if several else []
    for bench in benches:
        lines += _section(bench, command, (figures or {}).get(bench.facts["bench"]), level=2 if several else 1)
    return "\n".join(lines).rstrip() + "\n"


def write_results(benches: Sequence[Bench], out: Path, *, command: Sequence[str]) -> list[Path]:
    """The page in `out`, and each bench's Figure 9 beside it. Returns what was written.

    Raises ConfigError for two benches of one name: their figures would be one file.
    """
    names = [str(bench.facts["bench"]) for bench in benches]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(f'two benches are called "{twice[0]}": copy one file of [bench] under another name')
    pictures = {name: figure(bench) for name, bench in zip(names, benches, strict=True)}
    links = {name: f"{out.stem}-{name}-figure-9.svg" for name, picture in pictures.items() if picture}
    for name, link in links.items():
        write_text(out.parent / link, str(pictures[name]))
    write_text(out, results_page(benches, command=command, figures=links))
    return [out, *(out.parent / link for link in links.values())]


def _section(bench: Bench, command: Sequence[str], figure_link: str | None, *, level: int) -> list[str]:
    facts = bench.facts
    made = facts.get("command") or ["repair", "bench", f"configs/{facts['bench']}.toml"]
    lines = [
        f"{'#' * level} {facts['bench']}",
        "",
        "```bash",
        command_line(made),
        command_line(command),
        "```",
        "",
        f"Split `{facts['split']}`, seeds {', '.join(map(str, facts['seeds']))}; means over seeds, differences with "
        "their 95 % interval. Everything is read from the bench's run folders.",
        "",
    ]
    for table in bench_tables(bench):
        lines += table.lines(level=level + 1)
        if figure_link and table.name == "Figure 9":
            lines += [f"![{_described(bench, table)}]({figure_link})", ""]
    return lines


def _described(bench: Bench, table: Table) -> str:
    return f"{table.name}: mean R@1 of every method at each share of the budget, {bench.facts['bench']}"


def command_line(words: Sequence[str]) -> str:
    """To be typed in the project's folder: paths below it are relative, and of others only the name is told."""
    return " ".join(_quoted(_told(word)) for word in words)


def _quoted(word: str) -> str:
    """For a shell; a word with single quotes stands in double ones, where that is easier to read."""
    if "'" not in word or set(word) & set('"$`\\!'):
        return shlex.quote(word)
    return f'"{word}"'


def _told(word: str) -> str:
    """`word` without this machine's folders; of "run.folder=/home/me/x" too."""
    name, equals, value = word.partition("=")
    if equals:
        return f"{name}={_told(value)}" if value.startswith(("/", "~")) else word
    path = Path(word).expanduser()
    if not path.is_absolute():
        return word
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else path.name
