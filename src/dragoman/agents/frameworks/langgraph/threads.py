"""The threads of LangGraph in which a graph's tasks run, and where their checkpoints are.

`StoredThreads` are kept in our store, `OwnThreads` in a checkpointer of the graph's author. `BriefThreads` are in
memory and last for a task: for a graph whose table says `checkpointer = "none"`, and for runs without a store.

Invariant: a task never uses a thread in which another one works or waits for its caller. A thread in the store is held
by an entry, so that this is true among replicas, too.
"""

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from msgspec import Struct

from dragoman.agents.frameworks.langgraph.checkpoints import RUN_ID, CheckpointSaver
from dragoman.agents.frameworks.langgraph.outputs import OUTPUTS, TaskOutputs, load_outputs
from dragoman.engine.api import Run
from dragoman.engine.runs.replay import ReplayMismatch
from dragoman.engine.state_space import StateSpace, read_below
from dragoman.store.api import StateChanged
from dragoman.store.state import StatePut, key_segment


class Entered(Struct, frozen=True):
    """A thread that a run has entered. `values` are those that it has; None if it is new.

    With `resumes` the thread is in the middle of this task, which an earlier run began.
    """

    config: dict[str, Any]
    values: Any = None
    resumes: bool = False


class GraphThreads(Protocol):
    """The threads of one run."""

    graph: Any
    """The graph with the checkpointer that has them."""
    options: dict[str, Any]
    """Options for `astream`."""
    first_step: int
    """The number of the first step of the task in its thread, if it is another one in a later run; else 0."""
    outputs: TaskOutputs | None
    """The output of the run, if it has to be kept for a later run of the task."""

    async def holds(self, noted: Any) -> bool:
        """Whether a pause can be resumed: its thread is there."""
        ...

    async def enter(self) -> Entered:
        """Enter a thread for the message of the task."""
        ...

    async def enter_again(self, noted: Any) -> Entered:
        """Enter the thread of a pause. It `resumes` if what was asked at the pause is not open any more."""
        ...

    async def note(self) -> dict[str, Any]:
        """Return what has to be noted at a pause."""
        ...

    async def end(self) -> None:
        """The graph has come to its end in the thread."""
        ...

    async def settle(self) -> None:
        """Return once a later run would not repeat the steps that are done. For a run that keeps its `outputs`.

        It is called before each step, because LangGraph's own `durability="sync"` breaks subgraphs that are compiled
        with `checkpointer=False` (1.2.22).
        """
        return

    async def leave(self) -> None:
        """The run is over, or given up."""
        ...


def config_of(thread: str) -> dict[str, Any]:
    """The config that names a thread."""
    return {"configurable": {"thread_id": thread}}


async def _last_whole(graph: Any, config: dict[str, Any], newest: Any) -> Any:
    """The state of a thread after its last complete run, which may be the `newest`; None if there is none.

    A run that broke off may have left tool calls without results, which model providers refuse from then on.
    """
    if not newest.next:
        return newest
    async for earlier in graph.aget_state_history(config):
        if not earlier.next:
            return earlier
    return None


BRANCH = "branch:to:"
"""The beginning of the channels that have a value while the node they name is to be executed next."""

JOIN = "join:"
"""The beginning of the channels that gather the nodes after which a node is executed: `join:a+b:c`."""

SENDS = "__pregel_tasks"
"""The channel of what is sent to nodes that are to be executed next."""


async def check_nodes(graph: Any, config: dict[str, Any]) -> None:
    """Check that a graph, and each of its subgraphs, has the nodes that its thread executes next.

    LangGraph passes over those that are missing (1.2), so that the task would end without their work. Raises
    ReplayMismatch.
    """
    waiting = [(graph, config)]
    while waiting:
        part, at = waiting.pop()
        newest = await graph.checkpointer.aget_tuple(at)
        if newest is None:
            continue
        values = newest.checkpoint["channel_values"]
        nodes = [channel.removeprefix(BRANCH) for channel in values if channel.startswith(BRANCH)]
        gone = [node for node in nodes + [sent.node for sent in values.get(SENDS, ())] if node not in part.nodes]
        gone += [node for channel in values if channel not in part.channels and (node := _joined(channel, values))]
        for node in gone:
            raise ReplayMismatch("the newest checkpoint", f"the node {node} as the next one", "a graph without it")
        if subgraphs := dict(part.get_subgraphs()):
            tasks = (await graph.aget_state(newest.config)).tasks
            waiting += [(subgraphs[task.name], task.state) for task in tasks if isinstance(task.state, dict)]


def _joined(channel: str, values: Mapping[str, Any]) -> str:
    """The node that a channel joins others to, if all of them have finished; empty otherwise."""
    if not channel.startswith(JOIN):
        return ""
    names, _, node = channel.removeprefix(JOIN).rpartition(":")
    finished = values[channel]
    if isinstance(finished, list | tuple):  # that of a deferred node
        finished = finished[0]
    whole = isinstance(finished, set | frozenset) and len("+".join(finished)) == len(names)
    return f"{node} after {names}" if whole else ""


class BriefThreads(GraphThreads):
    """A thread in memory for each task, which is deleted with its run."""

    first_step = 0
    outputs = None

    def __init__(self, graph: Any, task: str) -> None:
        self.graph = graph
        self.options = {"durability": "exit"}
        self._thread = task

    async def holds(self, noted: Any) -> bool:
        """See `GraphThreads`."""
        return bool((await self.graph.aget_state(config_of(noted["thread"]))).interrupts)

    async def enter(self) -> Entered:
        """See `GraphThreads`."""
        return Entered(config_of(self._thread))

    async def enter_again(self, noted: Any) -> Entered:
        """See `GraphThreads`."""
        return Entered(config_of(self._thread))

    async def note(self) -> dict[str, Any]:
        """See `GraphThreads`."""
        return {"thread": self._thread}

    async def end(self) -> None:
        """See `GraphThreads`."""

    async def leave(self) -> None:
        """See `GraphThreads`."""
        await self.graph.checkpointer.adelete_thread(self._thread)


class OwnThreads(GraphThreads):
    """The conversation's thread in the checkpointer of the graph's author, or one of the task's own.

    `busy` are the threads in use by tasks of this process.
    """

    outputs = None

    def __init__(self, graph: Any, task: str, conversation: str, busy: set[str]) -> None:
        self.graph = graph
        self.options: dict[str, Any] = {}
        self.first_step = 0
        self._conversation = conversation
        self._busy = busy
        self._thread = task
        self._taken = ""

    async def holds(self, noted: Any) -> bool:
        """See `GraphThreads`."""
        return bool((await self.graph.aget_state(config_of(noted["thread"]))).interrupts)

    async def enter(self) -> Entered:
        """See `GraphThreads`."""
        shared = config_of(self._conversation)
        newest = await self.graph.aget_state(shared)
        used = bool(newest.interrupts) or self._conversation in self._busy
        whole = None if used else await _last_whole(self.graph, shared, newest)
        if whole is None or self._conversation in self._busy:
            return Entered(config_of(self._thread))
        self._take(self._conversation)
        self.first_step = int((whole.metadata or {}).get("step", -1)) + 1
        return Entered(shared if whole is newest else whole.config, whole.values)

    async def enter_again(self, noted: Any) -> Entered:
        """See `GraphThreads`."""
        self._take(noted["thread"])
        self.first_step = noted.get("first_step", 0)
        return Entered(config_of(self._thread))

    def _take(self, thread: str) -> None:
        self._thread = self._taken = thread
        self._busy.add(thread)

    async def note(self) -> dict[str, Any]:
        """See `GraphThreads`."""
        return {"thread": self._thread, "first_step": self.first_step}

    async def end(self) -> None:
        """See `GraphThreads`."""

    async def leave(self) -> None:
        """See `GraphThreads`."""
        self._busy.discard(self._taken)


HELD = "t/"
"""The beginning of the keys that say which task holds a thread."""


class StoredThreads(GraphThreads):
    """The conversation's thread in the store, or one of the task's own.

    Nothing of a task is deleted before it has ended, for a later run of it may go on from there. The next task of the
    conversation that enters a thread does that.
    """

    def __init__(
        self, graph: Any, store: Any, space: StateSpace, run: Run, classes: Collection[tuple[str, ...]], name: str
    ) -> None:
        self.saver = CheckpointSaver(space, classes, self)
        self.graph = graph.copy({"checkpointer": self.saver, "store": store})
        self.first_step = 0
        self.options: dict[str, Any] = {}
        self.outputs: TaskOutputs | None = None
        self._space = space
        self._run = run
        self._task = run.head.id
        self._conversation = name
        self._own = f"{name}//{self._task}"
        self._thread = self._own
        self._part = 0

    async def holds(self, noted: Any) -> bool:
        """See `GraphThreads`."""
        return self._is_ours(await self.saver.aget_tuple(self._config(noted["thread"])))

    async def enter(self) -> Entered:
        """See `GraphThreads`."""
        self._thread = self._conversation if await self._hold() else self._own
        config = self._config(self._thread)
        self.outputs = await load_outputs(self._space, self._task, self._part)
        newest = await self.saver.aget_tuple(config)
        if self._is_ours(newest):
            return Entered(config, resumes=True)
        if newest is None:
            return Entered(config)
        newest = await self.graph.aget_state(config)
        whole = await _last_whole(self.graph, config, newest)
        if whole is None:
            await self.saver.adelete_thread(self._thread)
            return Entered(config)
        return Entered(config if whole is newest else config | whole.config, whole.values)

    async def enter_again(self, noted: Any) -> Entered:
        """See `GraphThreads`."""
        self._thread, self._part = noted["thread"], noted["part"]
        self.outputs = await load_outputs(self._space, self._task, self._part)
        config = self._config(self._thread)
        return Entered(config, resumes=await self.saver.open_interrupts(config) != noted["asked"])

    async def note(self) -> dict[str, Any]:
        """See `GraphThreads`."""
        asked = await self.saver.open_interrupts(self._config(self._thread))
        return {"thread": self._thread, "part": self._part + 1, "asked": asked}

    async def end(self) -> None:
        """Keep only the newest checkpoint: nobody goes back to an earlier one."""
        await self.saver.aprune([self._thread])

    async def settle(self) -> None:
        """See `GraphThreads`."""
        assert self.outputs is not None, "the thread is entered before its first step"
        with self.outputs.taking_none():
            await self.saver.settle()

    async def leave(self) -> None:
        """See `GraphThreads`. The next task of the conversation sees by itself that this one has ended."""

    async def entries_of(self, task_id: str) -> list[StatePut]:
        """See `checkpoints.Beside`."""
        return [] if self.outputs is None else await self.outputs.entries_of(task_id)

    def rest(self, step: int) -> list[StatePut]:
        """See `checkpoints.Beside`."""
        return [] if self.outputs is None else self.outputs.rest(step)

    def _config(self, thread: str) -> dict[str, Any]:
        return config_of(thread) | {"metadata": {RUN_ID: self._task}}

    def _is_ours(self, newest: Any) -> bool:
        return newest is not None and newest.metadata.get(RUN_ID) == self._task

    async def _hold(self) -> bool:
        """Hold the conversation's thread, or else one of the task's own. Returns whether it is the conversation's."""
        held = {entry.key: entry async for entry in read_below(self._space, HELD)}
        holders = {key: entry.value.decode() for key, entry in held.items()}
        shared, own = _held_key(self._conversation), _held_key(self._own)
        if holders.get(shared) == self._task or own in holders:
            return own not in holders
        at_work = await self._run.open_tasks([task for task in holders.values() if task != self._task])
        gone = [(key, task) for key, task in holders.items() if task not in at_work]
        mine = own if holders.get(shared) in at_work else shared
        prefixes = [f"{OUTPUTS}{task}/" for _, task in gone]
        for key, task in gone:
            if key != shared:
                prefixes.extend(self.saver.prefixes_of(f"{self._conversation}//{task}"))
        try:
            await self._space.write_entries(
                puts=[StatePut(mine, self._task.encode())],
                deletes=[key for key, _ in gone if key != mine],
                prefixes=prefixes,
                if_versions={shared: held[shared].version if shared in held else 0},
            )
        except StateChanged:  # by another task; or by this one, when nobody heard of it
            return await self._hold()
        return mine == shared


def _held_key(thread: str) -> str:
    return f"{HELD}{key_segment(thread)}"
