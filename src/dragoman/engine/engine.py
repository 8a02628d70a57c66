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
from dragoman.engine.code_versions import CodeVersions
from dragoman.engine.delegated_tasks import DelegatedTasks
from dragoman.engine.delegation import Delegations
from dragoman.engine.deletions import Deletions
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
from dragoman.engine.overspending import Overspending
from dragoman.engine.policy import EngineSettings
from dragoman.engine.record_reader import RecordReader
from dragoman.engine.recovery import Recovery
from dragoman.engine.runs.history import History
from dragoman.engine.runs.places import place_tasks
from dragoman.engine.runs.registry import Runs
from dragoman.engine.runs.services import RunServices
from dragoman.engine.served_agents import Served
from dragoman.engine.spending import NO_RULES, SpendingRules, TaskSpending
from dragoman.engine.stopping import Stopping
from dragoman.engine.subscriptions import Tails, TailServices
from dragoman.engine.supervisor import Supervisor
from dragoman.engine.switch_watch import SwitchWatch
from dragoman.engine.switches import Switches
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
    must not be open yet, and is not used if no other engine writes to the store. `records` has what operators set, such
    as the switches of agents; it has to be read before the engine starts. Without it there are no switches. Agents that
    are `removed` are given no new task. `spending` are the operator's budgets and prices.
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
        records: RecordReader | None = None,
        removed: Collection[str] = (),
        spending: SpendingRules = NO_RULES,
    ) -> None:
        loop, retry_s, files = asyncio.get_running_loop(), settings.retry_s, files or Files()
        effects, stopping = Effects(), Stopping()
        # What is in memory, and whose it is.
        served, runs, hints = Served(runners, Switches(records), removed), Runs(), None
        if settings.poll_s > 0:
            hints = Hints(store, bus, poll_s=settings.poll_s, healthy_poll_s=settings.healthy_poll_s)
            hints.serve(holder, runners)
        self.spending = TaskSpending(store, spending)
        tasks = Tasks(store, served, effects, observer, announcer, hints, self.spending)
        leases = TaskLeases(holder, served, store, clock, retry_s=retry_s, runs=runs, hints=hints)
        replicas = Neighbours(store, leases, settings.agent_absent_s)
        neighbours = None if hints is None else replicas
        # Work on tasks, and its end.
        services = RunServices(
            clock=clock,
            loop=loop,
            past=History(store, files, settings.sharing_teams),
            state=store.state,
            files=files,
            bounds=Bounds(settings.max_text, settings.max_tokens_per_report),
            server=server_name(name or holder),
            effects=effects,
            stopping=stopping,
            suspend_max_s=settings.suspend_max_s,
            suspend_after_s=settings.suspend_after_s,
            max_steps=settings.max_steps,
            retry_s=retry_s,
        )
        ends = TaskEnds(leases, runs, clock, store.worker_leases)
        versions = CodeVersions(leases, ends, replicas, clock, settings.agent_absent_s)
        errands = Errands(tasks, ends, effects, stopping, retry_s=retry_s)
        auto_runs = AutoRuns(services, errands, observer)
        supervisor = Supervisor(leases, runs, tasks, ends, versions, errands, auto_runs, services, observer)
        cancellations = Cancellations(store, tasks, supervisor, effects, settings, observer=observer, hints=hints)
        # What callers ask for.
        webhooks = None if announcer is None else WebhookOperations(store, tasks, leases, announcer)
        delegated = DelegatedTasks(store, tasks, supervisor, cancellations, clock, retry_s=retry_s)
        deletions = Deletions(store, tasks, delegated, files)
        tails = Tails(tasks, TailServices(store, loop, settings.keepalive_s, stopping))
        intake = Intake(store, tasks, supervisor, auto_runs, services, settings, webhooks, self.spending)
        operations = Operations(
            store,
            tasks,
            supervisor,
            cancellations,
            intake,
            tails,
            webhooks,
            neighbours,
            deletions,
            files=files,
            clock=clock,
            settings=settings,
            identified=identified,
        )
        # What follows from it, and what others do.
        delegations = Delegations(
            store, tasks, supervisor, delegated, intake.take, services, trail=trail, neighbours=neighbours
        )
        recovery = Recovery(store, tasks, supervisor, settings, clock, observer)
        self._switch_watch = SwitchWatch(store, supervisor, auto_runs, intake, recovery, settings)
        workers = WorkerWatch(WorkerTasks(store, tasks, supervisor, services, versions, observer), supervisor)
        self.tasks = tasks
        self.operations = operations
        self.operated = OperatedTasks(store, tasks, deletions, runs, tails, files, stopping)
        self._store = store
        self._retry_s = retry_s
        self._served = served
        self._supervisor = supervisor
        self._delegated = delegated
        self._recovery = recovery
        self._workers = workers
        self._effect_loop = EffectLoop(
            effects,
            supervisor,
            cancellations,
            delegated,
            delegations,
            recovery,
            Overspending(self.spending, errands),
            claim_s=settings.claim_s,
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
    def switches(self) -> Switches:
        """The switches of all agents, as this process knows them."""
        return self._served.switches

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
        self._switch_watch.start(group)

    async def drain(self, grace_s: float) -> None:
        """Refuse new work, end all streams with the hint to come back, and give running tasks `grace_s` to end."""
        self._workers.drain()
        await asyncio.gather(self._membership.retire(), drain(self._supervisor, self.tasks, grace_s))
        self._recovery.stop()
        self._switch_watch.stop()
        self._workers.stop()
        self._effect_loop.stop()
        self._membership.stop()
        await self._membership.leave()

    # -- other agents ------------------------------------------------------------------------------------------------

    def serve(self, runners: Mapping[str, Runner], removed: Collection[str] = ()) -> Generation:
        """Replace the agents, all at once. Returns the previous generation, with which existing runs go on.

        Those that are `removed` are given no new task.
        Workers of an agent that is no longer served may go on reporting until `finished` has returned.
        """
        old = self._served.replace(runners, removed)
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
