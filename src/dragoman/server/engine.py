"""Assembly of the engine and of what it works with: the audit trail, files, webhooks, the bus, and workers' leases.

Invariant: nothing here runs or listens yet. All of it outlives a reload.
"""

import socket
from collections.abc import Mapping

from msgspec import Struct

from dragoman.agents.worker.attendance import Attendance
from dragoman.auth.authenticator import Authenticator
from dragoman.auth.signatures import SigningRoom
from dragoman.bus.api import Bus
from dragoman.config import Config
from dragoman.engine.api import Runner
from dragoman.engine.engine import Engine
from dragoman.engine.handlers.audit import Trail
from dragoman.engine.policy import EngineSettings
from dragoman.server.files import ServedFiles, open_files
from dragoman.server.observation import Observation
from dragoman.server.replicas import server_bus
from dragoman.server.webhooks import WebhookParts, make_webhooks
from dragoman.store.api import Store
from dragoman.store.path import store_path

POLL_S = 1.0
"""How often a replica reads what others wrote to the tasks that it follows or runs, as long as the bus brings no hints.
While it does, `EngineSettings.healthy_poll_s` counts."""


class EngineParts(Struct, frozen=True):
    """The engine and what it works with. `attendance` is what replicas know of each other's workers.

    `holder` is the name under which this process has the store open, which no other has.
    """

    store: Store
    holder: str
    signing: SigningRoom
    trail: Trail
    files: ServedFiles
    webhooks: WebhookParts
    bus: Bus
    engine: Engine
    attendance: Attendance | None

    async def run_attendance(self) -> None:
        """Tell other replicas of the workers here for ever, and learn of theirs."""
        if self.attendance is not None:
            await self.attendance.run()

    async def close_attendance(self) -> None:
        """Tell other replicas that the workers are here no more."""
        if self.attendance is not None:
            await self.attendance.close()


async def make_engine(
    config: Config,
    runners: Mapping[str, Runner],
    store: Store,
    holder: str,
    authenticator: Authenticator,
    observation: Observation,
) -> EngineParts:
    """Make all parts around an open store. Raises StartError for settings that cannot work, StoreError."""
    clock = store.clock
    signing = SigningRoom(store.keys, clock)
    trail = Trail(store.audit, config.audit, observation.counts)
    files = await open_files(config, store, signing, clock)
    webhooks = await make_webhooks(config, store.outbox, clock, signing, observation, files.engine)
    bus = await server_bus(config, store, signing)
    engine = Engine(
        store,
        runners,
        clock=clock,
        settings=_engine_settings(config, store),
        holder=holder,
        observer=observation.make_observer(),
        announcer=webhooks.announcer if config.push else None,
        identified=authenticator.required_for,
        trail=trail,
        name=await _server_name(config, store, signing, holder),
        files=files.engine,
        bus=bus,
    )
    attendance = Attendance(store.shared) if store.replicas.shared else None
    return EngineParts(store, holder, signing, trail, files, webhooks, bus, engine, attendance)


def _engine_settings(config: Config, store: Store) -> EngineSettings:
    return EngineSettings(
        blocking_timeout_s=config.blocking_timeout_s,
        cancel_grace_s=config.cancel_grace_s,
        keepalive_s=config.keepalive_s,
        suspend_max_s=config.suspend_max_s,
        agent_absent_s=config.agent_absent_s,
        max_open_tasks=config.max_open_tasks,
        max_daily_tasks=config.max_daily_tasks,
        max_page_bytes=config.max_page_bytes,
        max_text=config.max_text,
        poll_s=POLL_S if store.replicas.shared else 0.0,
    )


async def _server_name(config: Config, store: Store, signing: SigningRoom, holder: str) -> str:
    """A name that tells this server from others, also after a restart. In memory it differs at each start.

    Replicas are one server: their name is that of the key which they share.
    """
    if store.replicas.shared:
        return (await signing.signer()).kid
    path = store_path(config.store)
    return holder if path is None else f"{socket.gethostname()}/{path.absolute()}"
