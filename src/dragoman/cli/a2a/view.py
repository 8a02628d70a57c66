"""How a task looks to a person at a terminal: Markdown, a progress bar, files, and a spinner while nothing comes.

Invariant: what an agent sends controls no terminal: control characters are replaced before anything is rendered, and
links are shown rather than made clickable. Without a terminal nothing here is used.
"""

import sys
import time
from collections.abc import Iterator

from msgspec import UNSET
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markdown import Markdown
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from dragoman.cli.a2a.text import describe_file, join_texts, json_text, printable
from dragoman.client.task_fold import TaskFold
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.task import INTERRUPTED, TERMINAL, Progress, TaskState
from dragoman.model.updates import StatusUpdate, Update

FRAMES_PER_S = 12

BESIDE_LINES = 6
"""Lines of the terminal that are left to the state, the progress and the prompt while text grows."""

_COLORS = {
    TaskState.COMPLETED: "green",
    TaskState.FAILED: "red",
    TaskState.REJECTED: "red",
    TaskState.CANCELED: "yellow",
    TaskState.INPUT_REQUIRED: "cyan",
    TaskState.AUTH_REQUIRED: "cyan",
}


def at_terminal() -> bool:
    """Whether stdout is a terminal that can draw."""
    return sys.stdout.isatty()


class TaskScreen:
    """A task that is drawn as its updates come. Use it as a context manager; the final picture stays on the screen."""

    def __init__(self, console: Console | None = None) -> None:
        self.fold = TaskFold()
        self._console = console or Console()
        self._message: Message | None = None
        self._progress: Progress | None = None
        self._note = ""
        self._drawn_s = 0.0
        self._live = Live(console=self._console, refresh_per_second=FRAMES_PER_S, transient=True)

    def __enter__(self) -> "TaskScreen":
        self._live.start()
        self._live.update(self._growing())
        return self

    def __exit__(self, *raised: object) -> None:
        self._live.stop()
        self._console.print(Group(*self._final()))

    def add(self, update: Update) -> None:
        """Draw an update."""
        self.fold.add(update)
        if isinstance(update, Message):
            self._message = update
        if isinstance(update, StatusUpdate):
            self._progress = update.progress or self._progress
            self._note = update.status.message.text if update.status.message is not None else self._note
        now_s = time.monotonic()
        if now_s - self._drawn_s >= 1 / FRAMES_PER_S:  # the picture costs as much as the task is large
            self._drawn_s = now_s
            self._live.update(self._growing())

    def _growing(self) -> RenderableType:
        """The picture while the task runs: the end of the text, the progress, and what the agent does now."""
        rows: list[RenderableType] = []
        text = "".join(part.text or "" for artifact in self._artifacts() for part in artifact.parts)
        if text:
            room = max(self._console.size.height - BESIDE_LINES, 3)
            rows.append(Text("\n".join(printable(text).splitlines()[-room:])))
        if self._progress is not None and self._progress.total > 0:
            rows.append(self._progress_row(self._progress))
        if self.fold.state not in TERMINAL | INTERRUPTED:
            note = " ".join(printable(self._note).split())[:200] or "waiting for the agent"
            rows.append(Spinner("dots", text=Text(note, style="dim")))
        return Group(*rows)

    def _progress_row(self, progress: Progress) -> RenderableType:
        row = Table.grid(padding=(0, 1))
        row.add_row(
            ProgressBar(total=progress.total, completed=min(progress.current, progress.total), width=40),
            Text(f"{progress.current} of {progress.total}", style="dim"),
        )
        return row

    def _final(self) -> Iterator[RenderableType]:
        """The picture that stays: every artifact as a whole, what the agent says last, and the state."""
        if self._message is not None:
            yield from render_parts(self._message.parts)
        for artifact in self._artifacts():
            yield from render_parts(artifact.parts)
        task = self.fold.task()
        if task is None:
            return
        said = task.status.message
        if said is not None and (not task.artifacts or task.status.state is not TaskState.COMPLETED):
            yield from render_parts(said.parts)
        state = task.status.state.removeprefix("TASK_STATE_").lower().replace("_", " ")
        yield Text(f"{state}  task {task.id}", style=f"dim {_COLORS.get(task.status.state, '')}".strip())

    def _artifacts(self) -> tuple[Artifact, ...]:
        task = self.fold.task()
        return () if task is None else task.artifacts


def render_parts(parts: tuple[Part, ...]) -> Iterator[RenderableType]:
    """Yield parts for a terminal: texts as Markdown, data as JSON, files by name and size."""
    for part in join_texts(parts):
        if isinstance(part, str):
            yield Markdown(printable(part), hyperlinks=False)
        elif part.data is not UNSET:
            yield Text(printable(json_text(part.data)))
        else:
            yield Text(f"▤ {printable(describe_file(part))}", style="bold")
