"""The engine: its parts, put together, and its life from the start to the end of its drain.

Invariant: what is built here once stays as it is. Agents may be replaced, all at once, while the engine works. What
operations mean is in `engine.operations`, and the other parts are in the drawing of docs/architecture/engine.md.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping

from dragoman.bus.api import Bus
from dragoman.engine.announcements import Announcer
from dragoman.engine.api import Generation, Runner
from dragoman.engine.auto_runs import AutoRuns
from dragoman.engine.bounds import Bounds
from dragoman.engine.cancellations import Cancellations
from dragoman.engine.delegated_tasks import DelegatedTasks
from dragoman.engine.delegation import Delegations
from dragoman.engine.drain import drain
from dragoman.engine.effect_loop import EffectLoop
from dragoman.engine.effects import Effects
from dragoman.engine.ends import TaskEnds
from dragoman.engine.errands import Errands
from dragoman.engine.files import Files
from dragoman.engine.handlers.audit import Trail
from dragoman.engine.hints import Hints
from dragoman.engine.intake import Intake
from dragoman.engine.leases import Neighbours, TaskLeases
from dragoman.engine.lineage import server_name
from dragoman.engine.membership import Membership
from dragoman.engine.observer import Observer
from dragoman.engine.operated_tasks import OperatedTasks
from dragoman.engine.operations import Operations
from dragoman.engine.policy import EngineSettings
from dragoman.engine.recovery import Recovery
from dragoman.engine.runs.history import History
from dragoman.engine.runs.places import place_tasks
from dragoman.engine.runs.registry import Runs
from dragoman.engine.runs.services import RunServices
from dragoman.engine.served_agents import Served
from dragoman.engine.stopping import Stopping
from dragoman.engine.subscriptions import Tails, TailServices
from dragoman.engine.supervisor import Supervisor
from dragoman.engine.tasks import Tasks
from dragoman.engine.webhooks import WebhookOperations
from dragoman.engine.worker_tasks import WorkerTasks
from dragoman.engine.worker_watch import WorkerWatch
from dragoman.model.ids import Clock
from dragoman.store.api import Store, StoreError
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger(__name__)


class Engine:
    """The engine of one process. Belongs to the running event loop.

    `operations` answers callers, and `operated` reads any task for operators. `tasks` are the task logs that are in
    memory: only those that somebody here runs, waits for, follows or writes to.

    Without an `announcer` there are no webhooks. `identified` says whether an agent requires its callers to
    authenticate at present; only then does it have an extended card. `trail` records what agents delegate. The `bus`
    must not be open yet, and is not used if no other engine writes to the store.
    """

    def __init__(
        self,
        store: Store,
        runners: Mapping[str, Runner],
        *,
        clock: Clock,
        settings: EngineSettings,
        holder: str,
        observer: Observer | None = None,
        announcer: Announcer | None = None,
        identified: Callable[[str], bool] | None = None,
        trail: Trail | None = None,
        name: str = "",
        files: Files | None = None,
        bus: Bus | None = None,
    ) -> None:
        loop, retry_s, files = asyncio.get_running_loop(), settings.retry_s, files or Files()
        effects, stopping = Effects(), Stopping()
        # What is in memory, and whose it is.
        served, runs, hints = Served(runners), Runs(), None
        if settings.poll_s > 0:
            hints = Hints(store, bus, poll_s=settings.poll_s, healthy_poll_s=settings.healthy_poll_s)
            hints.serve(holder, runners)
        tasks = Tasks(store, served, effects, observer, announcer, hints)
        leases = TaskLeases(holder, served, store, clock, retry_s=retry_s, runs=runs, hints=hints)
        neighbours = None if hints is None else Neighbours(store, leases, settings.agent_absent_s)
        # Work on tasks, and its end.
        services = RunServices(
            clock=clock,
            loop=loop,
            past=History(store, files),
            files=files,
            bounds=Bounds(settings.max_text),
            server=server_name(name or holder),
            effects=effects,
            stopping=stopping,
            suspend_max_s=settings.suspend_max_s,
            retry_s=retry_s,
        )
        ends = TaskEnds(leases, runs, clock, store.worker_leases)
        errands = Errands(tasks, ends, effects, stopping, retry_s=retry_s)
        auto_runs = AutoRuns(services, errands, observer)
        supervisor = Supervisor(leases, runs, tasks, ends, errands, auto_runs, services, observer)
        cancellations = Cancellations(store, supervisor, effects, settings, observer=observer, hints=hints)
        # What callers ask for.
        webhooks = None if announcer is None else WebhookOperations(store, tasks, leases, announcer)
        tails = Tails(tasks, TailServices(store, loop, settings.keepalive_s, stopping))
        intake = Intake(store, tasks, supervisor, auto_runs, services, settings, webhooks)
        operations = Operations(
            store,
            tasks,
            supervisor,
            cancellations,
            intake,
            tails,
            webhooks,
            neighbours,
            files=files,
            clock=clock,
            settings=settings,
            identified=identified,
        )
        # What follows from it, and what others do.
        delegated = DelegatedTasks(store, tasks, supervisor, cancellations, clock, retry_s=retry_s)
        delegations = Delegations(
            store, tasks, supervisor, delegated, intake.take, services, trail=trail, neighbours=neighbours
        )
        recovery = Recovery(store, tasks, supervisor, settings, observer)
        workers = WorkerWatch(WorkerTasks(store, tasks, supervisor, services, observer), supervisor)
        self.tasks = tasks
        self.operations = operations
        self.operated = OperatedTasks(store, tasks, delegated, runs, tails, files, stopping)
        self._store = store
        self._retry_s = retry_s
        self._served = served
        self._supervisor = supervisor
        self._delegated = delegated
        self._recovery = recovery
        self._workers = workers
        self._effect_loop = EffectLoop(
            effects, supervisor, cancellations, delegated, delegations, recovery, claim_s=settings.claim_s
        )
        self._membership = Membership(
            store, tasks, supervisor, cancellations, recovery, workers, effects, hints, retry_s=retry_s
        )

    @property
    def replica_id(self) -> str:
        """The id under which this engine leases tasks at present."""
        return self._supervisor.leases.holder

    @property
    def worker_tasks(self) -> WorkerTasks:
        """The engine as agents of workers need it: see `agents.worker.leases`."""
        return self._workers.tasks

    @property
    def taken_over(self) -> int:
        """How many tasks that nobody alive worked on this engine has claimed while it runs."""
        return self._recovery.taken_over

    @property
    def fenced(self) -> bool:
        """Whether this engine cannot prove at present that it is alive, and takes no work."""
        return self._supervisor.leases.fenced

    async def start(self, group: JobGroup, address: str = "") -> None:
        """Recover what a previous process left behind. The store must be open. Errands run in `group` from now on.

        `address` is where operators reach this replica.
        """
        place_tasks(self._supervisor.loop)
        self._supervisor.errands.start(group)
        self._effect_loop.start(group)
        self._membership.start(group, address)
        await self._membership.join()
        try:
            await self._recovery.settle_all()
        except StoreError:
            if await self._membership.alive():
                raise
            log.warning("the store has not heard of this server for too long while it started")  # an event says so next
        await self._delegated.left(await self._store.asking())
        self._recovery.start(group)
        self._effect_loop.watch()
        self._workers.start(group)

    async def drain(self, grace_s: float) -> None:
        """Refuse new work, end all streams with the hint to come back, and give running tasks `grace_s` to end."""
        self._workers.drain()
        await asyncio.gather(self._membership.retire(), drain(self._supervisor, self.tasks, grace_s))
        self._recovery.stop()
        self._workers.stop()
        self._effect_loop.stop()
        self._membership.stop()
        await self._membership.leave()

    # -- other agents ------------------------------------------------------------------------------------------------

    def serve(self, runners: Mapping[str, Runner]) -> Generation:
        """Replace the agents, all at once. Returns the previous generation, with which existing runs go on.

        Workers of an agent that is no longer served may go on reporting until `finished` has returned.
        """
        old = self._served.replace(runners)
        self._membership.serve(runners)
        return old

    async def finished(self, old: Generation, left: Collection[Runner]) -> None:
        """Wait until no call and no run uses the agents that `left` with the generation `old`.

        A task that waits for its caller counts as long as its run is kept (`suspend_max_s`).
        """
        await old.idle()
        ids, supervisor = {runner.profile.id for runner in left}, self._supervisor
        loop = supervisor.loop
        for task in self.tasks.all():
            while task.head.agent in ids and task.writes.busy and supervisor.runs.of(task) is None:
                # The sender did not wait, so that the generation does not count this call.
                await task.followers.wait(task, loop, loop.time() + self._retry_s)
        await supervisor.wait_for(left)
        for runner in left:
            if runner.workers is not None and self._served.leaving.get(runner.profile.id) is runner:
                await runner.workers.left()
        self._served.dismiss(left)
