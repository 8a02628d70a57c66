"""Membership: this engine as one of the replicas on the store, and what it hears of the others.

Invariant: an engine whose id the store has given up takes no work until it has joined under another one. Its tasks are
claimed as anybody's are.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from dragoman.engine.api import Runner
from dragoman.engine.cancellations import Cancellations
from dragoman.engine.effects import ClaimSoon, Effects
from dragoman.engine.hints import Hints
from dragoman.engine.recovery import Recovery
from dragoman.engine.served_agents import served_names
from dragoman.engine.supervisor import Supervisor
from dragoman.engine.tasks import Tasks
from dragoman.engine.worker_watch import WorkerWatch
from dragoman.store.api import Store, StoreError
from dragoman.store.replicas import ReplicaBuried, ReplicaFenced, StoreRewound
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger(__name__)

LEAVE_S = 1.0
"""How long a stop waits until the store has taken down that this replica takes no work, and that it is gone."""


class Membership:
    """Joins the replicas under the id of the leases, follows what becomes of that, and leaves them.

    On SQLite there is one replica, and no `hints`.
    """

    def __init__(
        self,
        store: Store,
        tasks: Tasks,
        supervisor: Supervisor,
        cancellations: Cancellations,
        recovery: Recovery,
        workers: WorkerWatch,
        effects: Effects,
        hints: Hints | None,
        *,
        retry_s: float,
    ) -> None:
        self._store = store
        self._leases = supervisor.leases
        self._tasks = tasks
        self._supervisor = supervisor
        self._cancellations = cancellations
        self._recovery = recovery
        self._workers = workers
        self._effects = effects
        self._hints = hints
        self._retry_s = retry_s
        self._first = supervisor.leases.holder
        self._joined = 0
        """How often this process has tried to join under another id."""
        self._naming = asyncio.Lock()
        """Held by whoever tells other replicas which agents are served here."""
        self._address = ""
        self._jobs: list[asyncio.Task[None]] = []

    def start(self, jobs: JobGroup, address: str) -> None:
        """Follow what becomes of this replica, and what others do, from now on. Operators reach it at `address`."""
        self._address = address
        self._jobs.append(jobs.keep("replicas", self._watch))
        if self._hints is not None:
            self._jobs.append(jobs.keep("poll", partial(self._poll, self._hints)))
            self._jobs.append(jobs.keep("hints", self._hints.run))

    async def join(self) -> None:
        """Become one of the replicas. Raises StoreError."""
        names = served_names(self._leases.served.runners.values())
        await self._store.replicas.join(self._leases.holder, address=self._address, agents=names)

    async def alive(self) -> bool:
        """Whether the others still count on this replica. Raises StoreError."""
        return await self._store.replicas.alive(self._leases.holder)

    def serve(self, runners: Mapping[str, Runner]) -> None:
        """Let other replicas know that these agents are served here now."""
        if self._hints is not None:
            self._hints.serve(self._leases.holder, runners)
            self._supervisor.errands.background(self._serve_again())

    async def _serve_again(self) -> None:
        """Let other replicas know which agents are served here now. The last to be replaced are written last."""
        async with self._naming:
            while self._leases.takes_work:
                try:
                    names = served_names(self._leases.served.runners.values())
                    await self._store.replicas.serve(self._leases.holder, names)
                except StoreError:
                    await asyncio.sleep(self._retry_s)
                else:
                    return

    async def retire(self) -> None:
        """Let other replicas know that this one takes no work any more."""
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(LEAVE_S), self._naming:
                await self._store.replicas.serve(self._leases.holder, ())

    def stop(self) -> None:
        """Hear of the others no more."""
        for job in self._jobs:
            job.cancel()
        if self._hints is not None:
            self._hints.stop()

    async def leave(self) -> None:
        """Be one of the replicas no more. The others take over what this one leaves behind."""
        with suppress(StoreError, TimeoutError):  # without an answer the lease runs out
            async with asyncio.timeout(LEAVE_S):
                await self._store.replicas.leave(self._leases.holder)
        if self._hints is not None:
            for agent in self._leases.served.runners:
                self._hints.queued(agent)

    # -- what becomes of this replica ----------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Follow for ever what becomes of this replica."""
        while True:
            match await self._store.replicas.next_event():
                case ReplicaFenced(replica_id):
                    if replica_id == self._leases.holder:  # others may take its tasks soon
                        self._supervisor.fence()
                case ReplicaBuried(replica_id):
                    if replica_id == self._leases.holder and not self._supervisor.stopping.begun:
                        self._supervisor.errands.background(self._rejoin())
                case StoreRewound():  # the store may have lost what is in memory here
                    self._supervisor.errands.background(self._reread())

    async def _reread(self) -> None:
        await self._tasks.reread(self._retry_s)
        self._workers.rewound()
        self._recovery.wake(lost=True)  # a run that lost its task left it leased to this engine

    async def _rejoin(self) -> None:
        """Go on under another id, and claim what the old one has lost, unless others have."""
        refused = ""
        while not self._supervisor.stopping.begun:
            self._joined += 1
            holder, runners = f"{self._first}+{self._joined}", self._leases.served.runners
            try:
                await self._store.replicas.join(holder, address=self._address, agents=served_names(runners.values()))
            except StoreError as error:
                if str(error) != refused:
                    refused = str(error)
                    log.warning("this server takes no work until it has joined the others again: %s", refused)
                await asyncio.sleep(self._retry_s)
                continue
            self._leases.rejoin(holder)
            if self._hints is not None:
                self._hints.serve(holder, self._leases.served.runners)
            if self._leases.served.runners is not runners:  # they were replaced meanwhile
                self._supervisor.errands.background(self._serve_again())
            self._recovery.wake()
            return

    # -- what others do ------------------------------------------------------------------------------------------------

    async def _poll(self, hints: Hints) -> None:
        """Until the drain is over, find changes by other engines to the tasks in memory that no hint announced."""
        failing = False
        while True:
            due = await hints.due()
            try:
                if due:
                    await hints.refresh()
                else:
                    self._effects.put(ClaimSoon())
                await self._cancellations.stop_marked()
                failing = False
            except StoreError as error:
                if not failing:
                    log.warning("the tasks of other servers cannot be read: %s", error)
                failing = True
