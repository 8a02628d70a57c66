"""GraphRun: one task's run of a compiled graph.

Invariant: what a run gives to the graph is the caller's words, or nothing if an earlier run has given them.
"""

import importlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from dragoman.agents.content import json_of
from dragoman.agents.frameworks.calls import Calls
from dragoman.agents.frameworks.conversation import history, message
from dragoman.agents.frameworks.langgraph.messages import MessageTexts, file_in, files_in, message_of, plain
from dragoman.agents.frameworks.langgraph.nodes import NodeBranches
from dragoman.agents.frameworks.langgraph.questions import question_of, resumption
from dragoman.agents.frameworks.langgraph.state import MESSAGES, input_of
from dragoman.agents.frameworks.langgraph.threads import GraphThreads, check_nodes, config_of
from dragoman.agents.frameworks.runs import FrameworkRun, RunPause, flush_output, text_sink
from dragoman.agents.python.context import Answer, Context
from dragoman.model.message import Part

MODES = ["messages", "updates", "values", "custom"]
"""The streamed events: tokens, what each node did, the state after each step, and what nodes write themselves."""

STRUCTURED = "structured_response"
"""The key under which LangChain's agents leave a structured answer."""


QUESTIONS = "_question_of"
"""The key of a noted pause that has its interrupts, by id. Stores of earlier versions have it."""


class GraphRun(FrameworkRun):
    """One task's run. Its state at a pause is the thread's name, with what its threads have to know; the checkpointer
    has the rest. `find_threads` is asked once."""

    def __init__(self, keys: dict[str, Any], ctx: Context, find_threads: Callable[[], Awaitable[GraphThreads]]) -> None:
        self._keys = keys
        self._ctx = ctx
        self._calls = Calls(ctx)
        self._find_threads = find_threads
        self._found: GraphThreads | None = None
        self._config: dict[str, Any] = {}

    async def _threads(self) -> GraphThreads:
        if self._found is None:
            self._found = await self._find_threads()
        return self._found

    async def holds(self, state: str) -> bool:
        """Whether the thread is there, and waits. Raises ReplayMismatch if the graph lacks the node that waits."""
        threads, noted = await self._threads(), json.loads(state)
        await check_nodes(threads.graph, config_of(noted["thread"]))
        return await threads.holds(noted)

    async def begin(self) -> Any:
        """The message, in the conversation's thread if there is one; nothing, if an earlier run was in the middle.

        Raises ReplayMismatch if the graph lacks a node that is next there.
        """
        threads = await self._threads()
        entered = await threads.enter()
        self._config = entered.config
        if entered.resumes:
            await check_nodes(threads.graph, entered.config)
            return None
        given = input_of(self._keys, await message(self._ctx), self._ctx.data)
        if MESSAGES in self._keys and not (isinstance(entered.values, dict) and entered.values.get(MESSAGES)):
            past = [message_of(words) for words in await history(self._ctx)]
            given = given | {MESSAGES: [*past, *given.get(MESSAGES, [])]}
        return given

    async def resume(self, state: str, answers: Sequence[Answer]) -> Any:
        """The answers, for the thread that waits for them; nothing, if it had gone on with them before a crash."""
        noted = json.loads(state)
        self._calls.open |= noted["open"]
        entered = await (await self._threads()).enter_again(noted)
        self._config = entered.config
        if entered.resumes:
            return None
        command = importlib.import_module("langgraph.types").Command
        given = {
            each: resumption(value, answer) for (each, value), answer in zip(noted[QUESTIONS], answers, strict=True)
        }
        return command(resume=given)

    async def close(self) -> None:
        """Leave the thread."""
        if self._found is not None:
            await self._found.leave()

    async def work(self, given: Any) -> AsyncGenerator[object, None]:
        """Run the graph. The output of nodes that had finished before a crash comes first."""
        threads = await self._threads()
        outputs = threads.outputs
        interrupts: dict[str, Any] = {}
        values: Any = None
        began = False
        """Whether the last event was a task that begins. The first one of a step comes before any of them works."""
        told, speaks, say = MessageTexts(self._ctx), MESSAGES in self._keys, text_sink()
        for piece in outputs.kept if outputs is not None else ():
            told.goes_on = True
            yield piece
        config = self._config | {"callbacks": [NodeBranches(threads.first_step)]}
        modes = MODES if outputs is None else [*MODES, "tasks"]
        async with (
            self._calls,
            aclosing(threads.graph.astream(given, config, stream_mode=modes, **threads.options)) as events,
            aclosing(events if outputs is None else outputs.watch_events(events)) as taken,
        ):
            async for mode, event in taken:
                if mode == "messages":
                    said, metadata = event
                    if (text := told.text(said)) and speaks:
                        if outputs is not None:
                            outputs.add(metadata, text)
                        if not say(text):
                            await flush_output()
                    if said.type == "tool":
                        await self._report_result(said)
                    elif speaks:
                        for file in files_in(said):
                            if outputs is not None:
                                outputs.add(metadata, file)
                            yield file
                elif mode == "updates":
                    for interrupt in event.get("__interrupt__", ()):
                        interrupts[interrupt.id] = interrupt.value
                    await self._report_calls(event)
                elif mode == "values":
                    values = event
                elif mode == "custom":
                    await flush_output()
                    await self._ctx.status(event if isinstance(event, str) else json_of(event))
                elif outputs is not None:
                    if begins := "triggers" in event:
                        outputs.begin(event["id"])
                        if not began:
                            await threads.settle()
                    else:
                        outputs.finish(event["id"])
                    began = begins
                    continue
                began = False
        if interrupts:
            yield await self._pause(threads, interrupts)
            return
        await threads.end()
        if (result := self._result(threads.graph, values)) is not None:
            yield result

    async def _pause(self, threads: GraphThreads, interrupts: dict[str, Any]) -> RunPause:
        questions = tuple(question_of(value) for value in interrupts.values())
        asked_by = [(each, question.data) for each, question in zip(interrupts, questions, strict=True)]
        noted = await threads.note() | {QUESTIONS: asked_by, "open": self._calls.open}
        return RunPause(questions, json.dumps(noted))

    def _result(self, graph: Any, values: Any) -> object:
        """The graph's result, if it was not streamed."""
        if MESSAGES in self._keys:
            structured = values.get(STRUCTURED) if isinstance(values, dict) else None
            return None if structured is None else Part(data=json_of(structured))
        keys = graph.output_channels
        if isinstance(values, dict):
            names = [keys] if isinstance(keys, str) else keys
            values = {name: values[name] for name in names if name in values}
            if len(values) == 1:
                (values,) = values.values()
        if values is None or isinstance(values, str | bytes):
            return values
        return file_in(values) or Part(data=json_of(values))

    async def _report_calls(self, update: Any) -> None:
        for change in update.values():
            for each in change if isinstance(change, list) else [change]:
                messages = each.get(MESSAGES, ()) if isinstance(each, dict) else ()
                for said in messages if isinstance(messages, list | tuple) else [messages]:
                    for call in getattr(said, "tool_calls", ()):
                        await self._calls.report_start(call["id"] or call["name"], call["name"], call["args"])

    async def _report_result(self, returned: Any) -> None:
        ended = self._calls.report_failure if returned.status == "error" else self._calls.report_end
        await ended(returned.tool_call_id, plain(returned.content), name=returned.name or "tool")
