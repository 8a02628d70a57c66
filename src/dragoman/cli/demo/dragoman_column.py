"""Dragoman's column: `dragoman serve` on SQLite, and Dragoman's client."""

from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path

from dragoman import __version__
from dragoman.cli.demo.column import DemoColumn, DemoPlan
from dragoman.cli.demo.process import DemoProcess, ServerFailed
from dragoman.client import ArtifactUpdate, PushConfig, StatusUpdate, Task, Update, connect
from dragoman.client.connection import Connection
from dragoman.model.errors import A2AError
from dragoman.model.ids import new_id
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import StreamMessage
from dragoman.model.task import TaskStatus

WORK = "dragoman.cli.demo.work:agent"

SETTINGS = "dragoman.toml"
"""The servers' file, in the demo's folder, is empty: a file of the user's would add agents, callers and limits."""

REPLICAS = ("--replica-lease-s", "5", "--replica-beat-s", "1")
"""Shorter than by default, so that nobody waits long for the take-over."""


class DragomanColumn(DemoColumn):
    """Servers of Dragoman, and a caller who uses its client."""

    def __init__(self, plan: DemoPlan, folder: Path, environment: Mapping[str, str]) -> None:
        super().__init__("dragoman", f"Dragoman {__version__}", plan, folder, environment)
        self._linked = True

    @property
    def settings(self) -> str:
        """See DemoColumn."""
        server = (
            f"dragoman serve, {len(self.ports)} times on PostgreSQL" if self.plan.store else "dragoman serve on SQLite"
        )
        return f"{server}; dragoman.client, as it is"

    def make_server(self, number: int, port: int) -> DemoProcess:
        """See DemoColumn."""
        store = self.plan.store or f"sqlite:///{self.folder / 'dragoman.db'}"
        arguments: tuple[str, ...] = (
            "serve",
            self.plan.agent or WORK,
            "--config",
            str(self.folder / SETTINGS),
            "--port",
            str(port),
            "--public-url",
            self.url,
            "--store",
            store,
        )
        arguments += ("--no-console", "--log-level", "warning", "--push-allowed-hosts", "127.0.0.1")
        arguments += REPLICAS if self.plan.store else ()
        return DemoProcess("dragoman", arguments, self.environment, self.folder / f"dragoman-{number}.log")

    async def follow(self, webhook: str) -> None:
        """See DemoColumn. The client resumes by itself."""
        try:
            await self._follow(webhook)
        except A2AError as error:
            raise ServerFailed(f"the server refused the message: {error}") from error

    async def _follow(self, webhook: str) -> None:
        async with connect(self.url) as connection:
            message = Message(message_id=new_id(), role=Role.USER, parts=(Part(text=self.plan.text),))
            operation = StreamMessage(message=message, push_config=PushConfig(url=webhook))
            stream = connection.task_stream(operation, on_link=self._note_link)
            async with aclosing(stream.updates()) as updates:
                async for update in updates:
                    self._take(update)
            await self._compare(connection, stream.fold.task())

    def _note_link(self, up: bool) -> None:
        if up == self._linked:
            return
        self._linked = up
        if up:
            self.say("the client continues")
        else:
            self.take_cut("the client tries again")

    def _take(self, update: Update) -> None:
        if isinstance(update, Task):
            for artifact in update.artifacts:
                self.take_artifact(artifact.name or artifact.artifact_id)
            self._take_status(update.status)
        elif isinstance(update, ArtifactUpdate):
            self.take_artifact(update.artifact.name or update.artifact.artifact_id)
        elif isinstance(update, StatusUpdate):
            self._take_status(update.status)

    def _take_status(self, status: TaskStatus) -> None:
        self.why = " ".join(part.text or "" for part in status.message.parts) if status.message is not None else ""
        self.take_state(status.state.value)

    async def _compare(self, connection: Connection, told: Task | None) -> None:
        """Count what the server's task has, and the caller's stream has not brought."""
        if told is not None:
            now = await connection.get(told.id)
            self.lacking = max(0, _characters(now) - _characters(told))


def _characters(task: Task) -> int:
    return sum(len(part.text or "") for artifact in task.artifacts for part in artifact.parts)
