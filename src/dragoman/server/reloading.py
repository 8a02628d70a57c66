"""The reload: the file is read again, or operators have added agents, and agents are replaced without losing a request.

    SIGHUP ──► the file is read, in a thread ──┐
                                               ├──► all agents of now, the new ones opened ──► served at once
    records of the store ──► added agents ─────┘

Invariant: the agents change in one turn of the event loop, or not at all: no request sees a state in between. One
change is made at a time, to the agents that both ways have by then.
"""

import asyncio
import gc
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.kinds import worker_agents
from dragoman.agents.lifespans import LifespanError
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.bindings.app import CurrentApp
from dragoman.config import Config
from dragoman.engine.api import Generation, Runner
from dragoman.engine.spending import spending_rules
from dragoman.server.assembly import Assembly, Opened
from dragoman.server.callers import agent_keys, check_exposed
from dragoman.server.errors import ReloadError, StartError
from dragoman.server.front import make_app
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger("dragoman.reload")

SAME = "the agents are the same"

LATE_S = 30.0
"""After this long a warning says that modules are still being imported. An import that never ends ends reloading."""

OPEN_S = 0.5
"""How long a change waits for an added agent to open. Then it is served, and goes on opening: its card may be away."""

COLLECT_AFTER_S = (0.0, 1.0, 10.0)
"""Pauses before each collection of the replaced modules. At first, a request that is being answered or a thread that is
ending may still hold them."""


def nothing() -> None:
    """Do nothing: the default for callbacks."""


class Loaded(Struct, frozen=True):
    """A configuration and agents as read. An unchanged agent is the same object as before.

    Call `undo` if they will not be served.
    """

    config: Config
    agents: Sequence[Runner]
    undo: Callable[[], None] = nothing


ReadConfigAgain = Callable[[], Loaded]
"""Reads the whole configuration again, in a thread. Raises ReloadError."""


class Reloading:
    """Replaces the served agents: those of the file when asked to, the added ones when the store has others.

    `agents` are those of the file, and `served` all that are served at the start. Belongs to the event loop.
    """

    def __init__(
        self,
        config: Config,
        agents: Sequence[Runner],
        served: Sequence[Runner],
        again: ReadConfigAgain | None,
        assembly: Assembly,
        current: CurrentApp,
    ) -> None:
        self._config = config
        self._file = tuple(agents)
        self._agents = tuple(served)
        self._added = assembly.opened.added
        self._removed = self._added.find_removed({agent.profile.id: agent for agent in served})
        """The added agents that take no new task, as they are served."""
        self._turn = asyncio.Lock()
        """Held while agents are replaced."""
        self._opening: dict[int, asyncio.Task[None]] = {}
        """The tasks in which added agents are still opened, by the ids of the runners."""
        self._again = again
        self._assembly = assembly
        self._current = current
        self._engine = assembly.engine
        self._authenticator = assembly.opened.authenticator
        self._lifetimes = assembly.lifetimes
        self._leaving = assembly.leaving
        self._keys_leaving: dict[str, str] = {}
        self._formers: list[WorkerAgent] = []  # their successors have taken over their runs
        self._asked = asyncio.Event()
        self._work: set[asyncio.Task[None]] = set()

    def start(self, group: JobGroup) -> None:
        """Begin to reload when asked to."""
        self._add(group.keep("reload", partial(self._run, group)))
        self._add(group.keep("added agents", partial(self._follow, group)))

    def request(self) -> None:
        """Reload soon. If a reload is under way, another one follows it."""
        self._asked.set()

    async def stop(self) -> None:
        """Stop reloading, give the workers of leaving agents no more work, and do not wait for their tasks."""
        for worker in self._leaving.values():
            worker.leases.close()
        for task in tuple(self._work):
            task.cancel()
        if self._work:
            await asyncio.wait(tuple(self._work))

    def _add(self, task: "asyncio.Task[None]") -> None:
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _run(self, group: JobGroup) -> None:
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                await self._reload(group)
            except ReloadError as error:
                log.error("not reloaded, nothing has changed: %s", error)
            except Exception:  # whatever the user's modules did, the server goes on
                log.exception("not reloaded, nothing has changed")

    async def _reload(self, group: JobGroup) -> None:
        if self._again is None:
            raise ReloadError("these agents were given as objects: there is no file to read again")
        late = asyncio.get_running_loop().call_later(LATE_S, log.warning, "still importing modules after %g s", LATE_S)
        try:
            loaded = await _read_in_thread(self._again)
        finally:
            late.cancel()
        config = replace(self._config, agents=loaded.config.agents, default=loaded.config.default)
        async with self._turn:
            try:
                await self._authenticator.refresh()
                file_ids = [agent.profile.id for agent in loaded.agents]
                check_exposed(config, file_ids, self._authenticator.required, agent_keys(config, file_ids))
                told = await self._replace(group, config, loaded.agents)
                if self._limit_spending(config, loaded.config):
                    told = "budgets" if told == SAME else f"{told}, budgets"
            except (StartError, LifespanError) as error:
                loaded.undo()
                raise ReloadError(str(error)) from error
            except BaseException:
                loaded.undo()
                raise
        ignored = [
            name
            for name in Config.__struct_fields__
            if name not in ("agents", "default") and getattr(loaded.config, name) != getattr(self._config, name)
        ]
        for name in ignored:
            log.warning("%s has changed: restart the server to apply it", name)
        log.info("reloaded: %s", told)

    def _limit_spending(self, config: Config, read: Config) -> bool:
        """Go by the budgets that were read, and by what agents reserve. Returns whether that changes anything.

        Budgets in money are in the currency of the prices, which change with a restart alone.
        """
        if read.prices == config.prices:
            config = replace(config, budgets=read.budgets)
            self._config = replace(self._config, budgets=read.budgets)
        rules = spending_rules(config)
        changed = rules != self._engine.spending.rules
        if changed:
            self._engine.spending.replace(rules)
        return changed

    async def _follow(self, group: JobGroup) -> None:
        """Serve for ever what operators add, change and remove."""
        while True:  # what came before this job began, or failed once, is served first
            async with self._turn:
                await self._authenticator.refresh()
                self._added.take()
                told = await self._replace(group, self._config, self._file)
            if told != SAME:
                log.info("agents added by operators: %s", told)
            await self._added.feed.next()

    async def _replace(self, group: JobGroup, config: Config, file_agents: Sequence[Runner]) -> str:
        """Serve these agents of the file and the added ones. Returns what has changed. Raises LifespanError."""
        before = {agent.profile.id: agent for agent in self._agents}
        now = {agent.profile.id: agent for agent in served_agents(self._assembly.opened, config, file_agents)}
        fresh = [agent for agent_id, agent in now.items() if before.get(agent_id) is not agent]
        left = [agent for agent_id, agent in before.items() if now.get(agent_id) is not agent]
        removed = self._added.find_removed(now)
        await self._open(group, fresh)
        try:
            told = _describe_changes(before, self._config, now, config)
            if (
                told != SAME
                or list(now) != list(before)
                or removed != self._removed
                or config.default != self._config.default
            ):
                self._serve(group, config, now, fresh, left, removed)
        except BaseException:
            await self._lifetimes.close_agents(fresh)
            raise
        self._file = tuple(file_agents)
        self._added.note_served(now)
        self._lifetimes.withhold(self._added.faults())
        return told

    async def _open(self, group: JobGroup, fresh: Sequence[Runner]) -> None:
        """Open agents that are new. Those of the file are open then, and added ones may go on opening."""
        added = [agent for agent in fresh if self._added.has_made(agent)]
        await self._lifetimes.open(group, [agent for agent in fresh if not self._added.has_made(agent)])
        openings = {
            id(agent): group.create_task(self._lifetimes.open(group, (agent,)), name=f"open {agent.profile.id}")
            for agent in added
        }
        for runner_id, task in openings.items():
            self._add(task)
            self._opening[runner_id] = task
            task.add_done_callback(partial(self._note_open, runner_id))
        if openings:
            await asyncio.wait(openings.values(), timeout=OPEN_S)

    def _note_open(self, runner_id: int, _: "asyncio.Task[None]") -> None:
        self._opening.pop(runner_id, None)

    def _serve(
        self,
        group: JobGroup,
        config: Config,
        now: Mapping[str, Runner],
        fresh: Sequence[Runner],
        left: Sequence[Runner],
        removed: frozenset[str],
    ) -> None:
        """Switch to the new agents. This must not await, so that no request sees a state in between."""
        before = {agent.profile.id: agent for agent in self._agents}
        formerly, served = worker_agents(left), worker_agents(fresh)
        gone = {agent_id: agent for agent_id, agent in formerly.items() if agent_id not in served}
        self._leaving |= gone
        app = make_app(self._assembly, config, now, removed)
        for agent_id in (agent.profile.id for agent in fresh):
            former = formerly.get(agent_id) if agent_id in before else self._leaving.pop(agent_id, None)
            if former is not None and agent_id in served:
                served[agent_id].succeed(former)
                self._formers.append(former)
        self._keys_leaving |= agent_keys(self._config, gone)
        old = self._engine.serve(now, removed)
        self._config, self._agents, self._removed = config, tuple(now.values()), removed
        self._rekey()
        self._lifetimes.serve(self._agents)
        self._current.replace(app)
        if left:
            formers = [agent for agent in self._formers if any(agent.leases is last.leases for last in gone.values())]
            self._add(group.create_task(self._close_left(old, [*left, *formers]), name="agents that left"))

    async def _close_left(self, old: Generation, left: Sequence[Runner]) -> None:
        """Close the agents that left with `old`, once their last run has ended."""
        await self._engine.finished(old, left)
        self._formers = [agent for agent in self._formers if agent not in left]
        for agent in left:
            if self._leaving.get(agent.profile.id) is agent:
                del self._leaving[agent.profile.id]
                self._keys_leaving.pop(agent.profile.id, None)
                self._rekey()
        if opening := [task for agent in left if (task := self._opening.get(id(agent))) is not None]:
            await asyncio.wait(opening)
        try:
            await self._lifetimes.close_agents(left)
        except Exception:  # an agent that cannot be closed is left open and does not end the server
            log.exception("a removed agent could not be closed")
        python = any(agent.traits.kind == "python" for agent in left)
        del old, left, agent  # these references would keep the modules from being collected
        if python:
            for pause_s in COLLECT_AFTER_S:
                await asyncio.sleep(pause_s)
                _collect()

    def _rekey(self) -> None:
        """Set the agents' keys. The key of a leaving agent stays valid, for its workers."""
        own = agent_keys(self._config, {agent.profile.id for agent in self._agents})
        self._authenticator.replace_agent_keys({**self._keys_leaving, **own})


def served_agents(opened: Opened, config: Config, file_agents: Sequence[Runner]) -> tuple[Runner, ...]:
    """The agents of the file, and the added ones that may be served beside them."""
    authenticator = opened.authenticator

    def exposed(agent_ids: Collection[str]) -> bool:
        if opened.parent is not None:  # such a server looks at each caller: see `hosts_of`
            return False
        try:
            check_exposed(config, agent_ids, authenticator.required, ())
        except StartError:
            return True
        return False

    added = opened.added.choose_runners([agent.profile.id for agent in file_agents], exposed)
    return (*file_agents, *added.values())


async def _read_in_thread(again: ReadConfigAgain) -> Loaded:
    """Call `again` in a thread, without leaving a reference to the result there.

    A thread that returns a result holds it until it runs again, which may be after `_collect`. Through `undo` the
    result holds the replaced modules.
    """
    read: list[Loaded] = []
    await asyncio.to_thread(lambda: read.append(again()))
    return read.pop()


def _collect() -> None:
    """Free the replaced modules. They are cycles, and the collector rarely looks at such old objects."""
    gc.unfreeze()  # also the objects of the start: see `server.process`
    gc.collect()


def _describe_changes(before: Mapping[str, Runner], old: Config, now: Mapping[str, Runner], new: Config) -> str:
    keys, others = agent_keys(old, before), agent_keys(new, now)
    added = [agent_id for agent_id in now if agent_id not in before]
    changed = [
        agent_id
        for agent_id in now
        if agent_id in before and (before[agent_id] is not now[agent_id] or keys.get(agent_id) != others.get(agent_id))
    ]
    removed = [agent_id for agent_id in before if agent_id not in now]
    said = [
        f"{what} {', '.join(ids)}"
        for what, ids in (("added", added), ("changed", changed), ("removed", removed))
        if ids
    ]
    return ", ".join(said) or SAME
