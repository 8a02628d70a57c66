"""Shows the columns side by side while they run, and then what was counted.

Where the output is no terminal, each line is printed once, with its column's name before it.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dragoman.cli.demo.column import DemoColumn
from dragoman.cli.demo.counted import Counted
from dragoman.cli.demo.steps import STEPS

FRAMES_PER_S = 8

LINES = 12
"""How many lines of a column are shown at once."""

_STEP = re.compile(rf"step (\d+) of {STEPS}")


class Screen:
    """The terminal of the demo. `quiet`: nothing is shown before the result, which its caller prints."""

    def __init__(self, *, quiet: bool) -> None:
        self._console = Console(quiet=quiet, highlight=False)

    @contextmanager
    def showing(self, columns: Sequence[DemoColumn]) -> Iterator[None]:
        """Show the columns as they are, until the block ends."""
        for column in columns:
            self._console.print(Text.assemble((column.title, "bold"), f": {column.settings}"))
        if self._console.is_terminal:
            with Live(
                get_renderable=lambda: _side_by_side(columns), console=self._console, refresh_per_second=FRAMES_PER_S
            ):
                yield
            return
        printed = dict.fromkeys((column.name for column in columns), 0)
        printing = asyncio.create_task(self._print_lines(columns, printed))
        try:
            yield
        finally:
            printing.cancel()
            self._print_new(columns, printed)

    def warn(self, text: str) -> None:
        """Print a line on stderr, also if nothing else is shown."""
        click.echo(text, err=True)

    def show(self, counted: Sequence[Counted]) -> None:
        """Show the result as a table."""
        table = Table(title="Counted in this run", title_justify="left", title_style="bold")
        table.add_column("")
        for each in counted:
            table.add_column(each.title, justify="right")
        for label, *texts in _rows(counted):
            table.add_row(label, *texts)
        self._console.print(table)

    async def _print_lines(self, columns: Sequence[DemoColumn], printed: dict[str, int]) -> None:
        while True:
            self._print_new(columns, printed)
            await asyncio.sleep(1 / FRAMES_PER_S)

    def _print_new(self, columns: Sequence[DemoColumn], printed: dict[str, int]) -> None:
        width = max(len(column.title) for column in columns)
        for column in columns:
            for at_s, text in column.lines[printed[column.name] :]:
                self._console.print(f"{column.title:<{width}} {at_s:5.1f} s  {text}", markup=False, soft_wrap=True)
            printed[column.name] = len(column.lines)


def _side_by_side(columns: Sequence[DemoColumn]) -> Table:
    grid = Table.grid(expand=True)
    for _ in columns:
        grid.add_column(ratio=1)
    grid.add_row(*(_panel(column) for column in columns))
    return grid


def _panel(column: DemoColumn) -> Panel:
    lines = _joined(column.lines)[-LINES:]
    text = Text("\n".join(lines + [""] * (LINES - len(lines))), no_wrap=True, overflow="ellipsis")
    text.highlight_regex(r"kill -9.*", "bold red")
    text.highlight_regex(r"cut: .*|given up.*", "yellow")
    text.highlight_regex(r"the server runs again|completed$", "bold green")
    body = Group(ProgressBar(total=STEPS, completed=len(column.artifacts)), text) if not column.plan.agent else text
    return Panel(body, title=column.title)


def _joined(lines: Sequence[tuple[float, str]]) -> list[str]:
    """The lines, where steps that follow each other are one, and so are cuts."""
    joined: list[str] = []
    cuts, before = 0, ""
    for at_s, text in lines:
        step = _STEP.fullmatch(text)
        kind = "step" if step is not None else "cut" if text.startswith("cut: ") else ""
        cuts = cuts + 1 if kind == before == "cut" else 1
        if kind == before == "step" and step is not None:
            joined[-1] += f" {step[1]}"
        elif kind == before == "cut":
            joined[-1] = f"{joined[-1].partition(', and ')[0]}, and {cuts - 1} more"
        else:
            joined.append(f"{at_s:5.1f} s  {text if step is None else f'steps {step[1]}'}")
        before = kind
    return joined


def _rows(counted: Sequence[Counted]) -> Iterator[tuple[str, ...]]:
    """The rows that have a figure in some column."""
    own = any(each.steps_done_again is not None for each in counted)
    rows = (
        ("the task is", [each.state or "unknown" for each in counted]),
        ("events lost" if own else "characters lost", [each.events_lost for each in counted]),
        ("finished steps executed again", [each.steps_done_again for each in counted]),
        ("steps begun again, with the cut one", [each.steps_begun_again for each in counted]),
        ("webhooks missing", [each.webhooks_missing for each in counted]),
        ("seconds until the caller had the end", [each.seconds or "never" for each in counted]),
    )
    for label, figures in rows:
        if any(figure is not None for figure in figures):
            yield label, *("–" if figure is None else str(figure) for figure in figures)
