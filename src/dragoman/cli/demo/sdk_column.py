"""The official SDK's column, if it is installed."""

import json
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from dragoman.cli.demo.column import DemoColumn, DemoPlan
from dragoman.cli.demo.process import DemoProcess

NEEDED = ("a2a.server.cluster", "sqlalchemy", "aiosqlite", "uvicorn", "starlette", "sse_starlette")
"""What its server with a durable store needs."""

EXECUTORS = "a2a.server.agent_execution."
"""The package of the SDK's classes of executors."""

INSTALL = "pip install 'a2a-sdk[http-server,sqlite]' uvicorn"


def is_installed() -> bool:
    """Whether the SDK is installed with all that its server needs."""
    try:
        return all(find_spec(name) is not None for name in NEEDED)
    except ModuleNotFoundError:  # of a package above
        return False


def is_executor(kind: type) -> bool:
    """Whether a class is an executor of the SDK. Nothing of the SDK is imported."""
    return any(each.__module__.startswith(EXECUTORS) for each in kind.__mro__)


def sdk_version() -> str:
    """The version of the SDK; empty if there is none."""
    try:
        return version("a2a-sdk")
    except PackageNotFoundError:
        return ""


class SdkColumn(DemoColumn):
    """Servers of the official SDK, and a caller who uses its client."""

    def __init__(self, plan: DemoPlan, folder: Path, environment: Mapping[str, str]) -> None:
        super().__init__("sdk", f"a2a-sdk {sdk_version()}", plan, folder, environment)
        self._client: DemoProcess | None = None

    @property
    def settings(self) -> str:
        """See DemoColumn."""
        place = f"{len(self.ports)} servers on PostgreSQL" if self.plan.store else "one server on SQLite"
        return (
            f"{place}, with VersionedDatabaseTaskStore, DatabaseTaskEventStream, DatabasePushNotificationConfigStore "
            "and BasePushNotificationSender; its client repeats nothing: subscribe and get_task once a second"
        )

    def make_server(self, number: int, port: int) -> DemoProcess:
        """See DemoColumn."""
        database = self.plan.store or f"sqlite:///{self.folder / 'sdk.db'}"
        arguments = (self.url, str(port), database, *((self.plan.agent,) if self.plan.agent else ()))
        log = self.folder / f"sdk-{number}.log"
        return DemoProcess("dragoman.cli.demo.sdk_server", arguments, self.environment, log)

    async def follow(self, webhook: str) -> None:
        """See DemoColumn."""
        arguments = (self.url, webhook, self.plan.text)
        client = DemoProcess(
            "dragoman.cli.demo.sdk_client", arguments, self.environment, self.folder / "sdk-client.log"
        )
        self._client = client
        await client.start(lines=True)
        while line := await client.read_line():
            said = json.loads(line)
            if "artifact" in said:
                self.take_artifact(said["artifact"])
            elif "state" in said:
                self.take_state(said["state"])
            elif "cut" in said:
                self.take_cut(said["cut"])
        await self.back.wait()

    async def stop(self) -> None:
        """See DemoColumn."""
        if self._client is not None:
            await self._client.stop()
        await super().stop()
