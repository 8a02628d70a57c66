"""Compiled graphs of LangGraph (1.x) behind a card.

`graph_run` is one task's run. `state` turns a caller's message into the graph's input, `questions` interrupts into
questions, `messages` LangChain's messages into text and files, and back. `threads` are where a graph's checkpoints are;
those that our store has are written by `checkpoints`, together with `outputs`, what finished nodes have said. `items`
has LangGraph's long-term memory, `nodes` the places of what nodes tell of the run.

Invariant: a thread belongs to one conversation of one caller with one agent. A caller whose message does not fit the
graph's input is told what would: the task is rejected, not failed. LangGraph itself is imported only where a graph is
served: whether an object is a graph is asked of objects without it, too.
"""

import importlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from dragoman.agents.frameworks.conversation import session_of
from dragoman.agents.frameworks.langgraph.state import MESSAGES, OBJECT, classes_of, keys_of, text_key
from dragoman.agents.frameworks.runs import build_agent
from dragoman.agents.python.agent import Agent
from dragoman.agents.python.context import Context, run_of
from dragoman.engine.api import CheckResult

if TYPE_CHECKING:
    from dragoman.agents.frameworks.langgraph.threads import GraphThreads

OPENED_IN_LOOP = (
    "open its Async form in the loop of the server: let `run` name a function with @asynccontextmanager that opens it "
    "and yields the compiled graph (docs/agents/langgraph.md#a-checkpointer-of-your-own)"
)
"""The fix for a checkpointer that was opened as the module was imported, when there was no loop to open it in."""


def adapts(value: object) -> bool:
    """Whether the object is a compiled graph."""
    return callable(getattr(value, "astream", None)) and callable(getattr(value, "aget_state", None))


def name_of(value: Any) -> str:
    """The graph's name, if it was compiled with one."""
    return "" if value.name in (None, "LangGraph") else str(value.name)


def adapt(value: Any, agent_id: str, *, checkpointer: Literal["none"] | None = None) -> Agent:
    """Put the graph behind a card. Without a checkpointer of its own its threads are kept in the store.

    With `checkpointer` "none" they are in memory, for the length of a task. Without a store of its own the graph gets
    ours, too. The graph itself is not changed.
    """
    from dragoman.agents.frameworks.langgraph.graph_run import GraphRun
    from dragoman.agents.frameworks.langgraph.items import ItemStore
    from dragoman.agents.frameworks.langgraph.threads import BriefThreads, OwnThreads, StoredThreads

    keys, classes, busy = keys_of(value), classes_of(value), set[str]()
    remembers = value.checkpointer not in (None, False, True)
    saver = importlib.import_module("langgraph.checkpoint.memory").InMemorySaver()

    async def find_threads(ctx: Context) -> "GraphThreads":
        task, conversation = f"{agent_id}//{ctx.task_id}", f"{agent_id}/{session_of(ctx)}"
        run = run_of(ctx)
        store = ItemStore(lambda: run.state("store", wide=True), classes) if value.store is None else value.store
        if remembers:
            return OwnThreads(value.copy({"store": store}), task, conversation, busy)
        space = None if checkpointer == "none" else await run.state("checkpoint")
        if space is None:
            return BriefThreads(value.copy({"store": store, "checkpointer": saver}), task)
        return StoredThreads(value, store, space, run, classes, conversation)

    agent = build_agent(
        agent_id,
        lambda ctx: GraphRun(keys, ctx, lambda: find_threads(ctx)),
        name=name_of(value),
        file_modes=("image/*",) if MESSAGES in keys else (),
    )
    if not remembers and checkpointer != "none":
        agent.traits = replace(agent.traits, restartable=True, checkpoints=True)
    agent.checks = lambda: _check(value, keys, stored=not remembers and checkpointer != "none")
    return agent


async def _check(graph: Any, keys: Mapping[str, Any], *, stored: bool) -> AsyncIterator[CheckResult]:
    """Tell what callers send, and check where the graph's state is and whether it can be read on the event loop."""
    if not ({MESSAGES, OBJECT} & keys.keys() or text_key(keys)):
        what = f"callers send a data part with {', '.join(keys)}"
        yield CheckResult(True, f"{what}: for text, give the graph an input_schema with one str, or with messages")
    again = "a task that waits is run again from its start after a restart"
    saver = type(graph.checkpointer).__name__
    if stored:
        yield CheckResult(True, "its checkpoints are in the store: a task continues after a restart or a crash")
    elif graph.checkpointer in (None, False, True):
        yield CheckResult(True, f"the graph has no checkpointer: {again}")
    elif saver in ("InMemorySaver", "MemorySaver"):
        instead = "compile it without one, and its checkpoints are in the store"
        yield CheckResult(True, f"its checkpointer is in memory: {again}; {instead}")
    else:
        from dragoman.agents.frameworks.langgraph.threads import config_of

        try:
            await graph.aget_state(config_of("check"))
        except NotImplementedError:
            yield CheckResult(False, f"its checkpointer {saver} is not asynchronous", OPENED_IN_LOOP)
        except Exception as error:  # noqa: BLE001  whatever the user's database says
            fix = f"check that its database exists; if it does, {OPENED_IN_LOOP}"
            yield CheckResult(False, f"its checkpointer {saver} cannot be read: {error}", fix)
        else:
            yield CheckResult(
                True, f"its checkpointer {saver} can be read: a task that waits continues after a restart"
            )
