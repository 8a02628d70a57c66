"""SwitchWatch: ends what is at work for agents that operators have disabled, and takes up what waited for them.

    disabled, cancel ─► runs here are cut off at once, and their tasks end
                     ─► other tasks at work, which the store knows: those of workers and of dead replicas at once, those
                        of living replicas `OTHERS_S` later, since these cut off their own
    a member of a pool disabled, cancel ─► the runs here whose tasks it has; those of dead replicas begin again, and are
                                           cut off then
    disabled no more ─► what nobody has is claimed

Invariant: rows say what has to end, so that any replica ends it if the one that was told dies. An end does not wait for
its agent: what the agent says later is refused. While an agent is disabled, the rows are looked at every `claim_s`, and
where nobody else writes to the store, only after a commit.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from dragoman.admin.switches import Switch
from dragoman.engine.auto_runs import AutoRuns
from dragoman.engine.intake import Intake
from dragoman.engine.log import Log
from dragoman.engine.policy import EngineSettings
from dragoman.engine.recovery import Recovery
from dragoman.engine.supervisor import Supervisor
from dragoman.engine.switches import DISABLED, agents_of, record_id
from dragoman.engine.upstream_notes import MEMBER
from dragoman.model.errors import AgentOffline
from dragoman.store.api import OutcomeUnknown, Refused, Store, StoreError
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger("dragoman.runs")

CUT_S = 0.25
"""How often the runs here are looked at while an agent is disabled: a message let in just before may start one."""

OTHERS_S = 1.0
"""How long after a switch the tasks of living replicas are left to these."""

LOOK_MAX = 200
"""How many tasks one look at the rows finds."""


class SwitchWatch:
    """Carries out what the switches say, for all agents."""

    def __init__(
        self,
        store: Store,
        supervisor: Supervisor,
        auto_runs: AutoRuns,
        intake: Intake,
        recovery: Recovery,
        settings: EngineSettings,
    ) -> None:
        self._store = store
        self._supervisor = supervisor
        self._switches = supervisor.leases.served.switches
        self._auto_runs = auto_runs
        self._intake = intake
        self._recovery = recovery
        self._claim_s = settings.claim_s
        self._retry_s = settings.retry_s
        self._alone = settings.poll_s == 0
        self._watching: asyncio.Task[None] | None = None
        self._disabled: frozenset[str] = frozenset()
        """The agents that were disabled at the last look."""
        self._look_s = 0.0
        """When the rows are looked at next, a time of the loop."""
        self._looked = 0
        """How often all of them were looked at since the last change."""
        self._others_s: float | None = None
        """When the tasks of living replicas are ended, too, a time of the loop; None: since the last change nobody has
        looked."""
        self._looked_at = -1
        """The number of commits at the last look."""
        self._failing = False

    def start(self, jobs: JobGroup) -> None:
        """Carry out the switches from now on."""
        self._watching = jobs.keep("switches", self._watch)

    def stop(self) -> None:
        """Carry out nothing more. The next start finds what is left."""
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self) -> None:
        while True:
            cancels = self._switches.cancels
            self._cut_off(cancels)
            try:
                await self._end_others(cancels)
                await self._take_up()
                self._failing = False
            except (StoreError, OutcomeUnknown) as error:
                if not self._failing:
                    log.warning("tasks of agents that are switched cannot be found: %s", error)
                self._failing = True
            await self._wait(watches=bool(cancels) or self._failing)

    async def _wait(self, *, watches: bool) -> None:
        """Wait for a change of the switches, or for the next look if there is one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CUT_S if watches else None):
                await self._switches.feed.next()
                self._look_s, self._looked, self._others_s = 0.0, 0, None

    # -- what is at work -----------------------------------------------------------------------------------------------

    def _cut_off(self, cancels: Mapping[str, Switch]) -> None:
        """Stop the runs of these agents that work here. One that waits for its caller, or for a time, is left alone."""
        if not cancels:
            return
        for run in self._supervisor.runs:
            agent = run.head.agent
            switch = cancels.get(agent) or cancels.get(record_id(agent, run.log.fold.note_of(MEMBER)))
            if switch is not None and not (run.suspended or run.asleep) and run.cut_off():
                self._supervisor.errands.do(run.log, partial(self._end, switch, run.log))
        for agent in agents_of(cancels):
            offline = AgentOffline(agent, DISABLED)
            self._auto_runs.stop(agent, offline)
            self._intake.stop_answers(agent, offline)

    async def _end_others(self, cancels: Mapping[str, Switch]) -> None:
        """End the tasks of these agents that are at work and have no run here. Raises StoreError."""
        agents, commits = agents_of(cancels), self._store.writing.commits.count
        now_s = self._supervisor.loop.time()
        if not agents or now_s < self._look_s:
            return
        if self._alone and self._looked > 1 and commits == self._looked_at:
            return
        found = await self._store.leased_of(agents, LOOK_MAX)
        here, living = self._supervisor.leases.holder, frozenset[str]()
        if self._others_s is None:
            self._others_s = now_s + OTHERS_S
        if now_s < self._others_s and not self._alone:
            living = frozenset(replica.id for replica in await self._store.replicas.all()) - {here}
        for task in found:
            if task.holder not in living and not self._supervisor.attends_to(task.id):
                self._supervisor.errands.do_on(task.id, partial(self._end, cancels[task.agent]))
        self._looked_at = commits
        if len(found) < LOOK_MAX:
            self._looked += 1
            self._look_s = self._others_s if self._looked == 1 else now_s + self._claim_s

    async def _end(self, switch: Switch, task: Log) -> None:
        """End a task as canceled, unless nobody works on it any more."""
        while True:
            try:
                await self._supervisor.ends.switch_off(task, switch)
            except StoreError:
                await asyncio.sleep(self._retry_s)
            except Refused:
                return
            else:
                return

    # -- what waited ---------------------------------------------------------------------------------------------------

    async def _take_up(self) -> None:
        """Claim what waits for agents that are disabled no more. Raises StoreError."""
        disabled = frozenset(agent for agent in self._switches.all() if not self._switches.takes_on(agent))
        if self._disabled - disabled:
            await self._recovery.take_up()
        self._disabled = disabled
