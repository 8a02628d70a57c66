"""Compiled graphs of LangGraph (1.x) behind a card.

Invariant: a thread belongs to one conversation of one caller with one agent. A task never uses a thread in which
another one works or waits for its caller. A caller whose message does not fit the graph's input is told what would: the
task is rejected, not failed. An answer that is data is given to the graph unchanged.
"""

import base64
import importlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, get_type_hints

from dragoman.agents.content import json_of
from dragoman.agents.frameworks.calls import Calls, approval_of, approved, denial
from dragoman.agents.frameworks.conversation import PlainFile, PlainMessage, history, message, session_of
from dragoman.agents.frameworks.runs import FrameworkRun, RunPause, RunQuestion, build_agent, flush_output, text_sink
from dragoman.agents.python.agent import Agent
from dragoman.agents.python.context import Answer, Context
from dragoman.engine.api import CheckResult, Reject
from dragoman.model.message import Part

MODES = ["messages", "updates", "values", "custom"]
"""The streamed events: tokens, what each node did, the state after each step, and what nodes write themselves."""

STRUCTURED = "structured_response"
"""The key under which LangChain's agents leave a structured answer."""

MESSAGES = "messages"
"""The key of a state that holds a conversation, by LangGraph's own convention (MessagesState)."""

OBJECT = ""
"""The key in the result of `keys_of` for an input that is not an object."""

TEXTS = ("question", "message", "query", "prompt", "description", "text", "task")
"""Keys that may hold the question in the value of an interrupt."""

ACTIONS = "action_requests"
"""The key of tool approvals by LangChain's HumanInTheLoopMiddleware."""


def adapts(value: object) -> bool:
    """Whether the object is a compiled graph."""
    return callable(getattr(value, "astream", None)) and callable(getattr(value, "aget_state", None))


def adapt(value: Any, agent_id: str) -> Agent:
    """Put the graph behind a card. Without a checkpointer, it gets one in memory, for the length of a task."""
    remembers = value.checkpointer not in (None, False, True)
    if not remembers:
        saver = importlib.import_module("langgraph.checkpoint.memory").InMemorySaver()
        value = value.copy({"checkpointer": saver})
    keys, busy = keys_of(value), set[str]()
    name = value.name if value.name not in (None, "LangGraph") else None
    agent = build_agent(
        agent_id,
        lambda ctx: GraphRun(value, keys, agent_id, ctx, busy, remembers=remembers),
        name=name,
        input_modes=("text/plain", "application/json", "image/*")
        if MESSAGES in keys
        else ("text/plain", "application/json"),
    )
    agent.checks = lambda: _check(value, keys, remembers=remembers)
    return agent


class GraphRun(FrameworkRun):
    """One task's run. Its state at a pause is the thread's name; the checkpointer has the rest.

    `busy` are the threads in use by tasks of this process.
    """

    def __init__(
        self, graph: Any, keys: dict[str, Any], agent_id: str, ctx: Context, busy: set[str], *, remembers: bool
    ) -> None:
        self._graph = graph
        self._keys = keys
        self._ctx = ctx
        self._calls = Calls(ctx)
        self._remembers = remembers
        self._busy = busy
        self._taken = ""
        self._own = f"{agent_id}//{ctx.task_id}"  # differs from every session, as those begin with a caller
        self._shared = f"{agent_id}/{session_of(ctx)}"
        self._thread = self._own
        self._config = _config(self._own)

    async def holds(self, state: str) -> bool:
        """Whether the checkpointer still has the thread, and the thread waits."""
        thread = json.loads(state)["thread"]
        return bool((await self._graph.aget_state(_config(thread))).interrupts)

    async def begin(self) -> Any:
        """The message, in the conversation's thread if there is one."""
        known: Any = None
        if self._remembers:
            snapshot = await self._graph.aget_state(_config(self._shared))
            whole = None if snapshot.interrupts or self._shared in self._busy else await self._whole(snapshot)
            if whole is not None and self._shared not in self._busy:
                self._take(self._shared)
                self._config = self._config if whole is snapshot else whole.config
                known = whole.values
        given = input_of(self._keys, await message(self._ctx), self._ctx.data)
        if MESSAGES in self._keys and not (isinstance(known, dict) and known.get(MESSAGES)):
            past = [message_of(words) for words in await history(self._ctx)]
            given = given | {MESSAGES: [*past, *given.get(MESSAGES, [])]}
        return given

    async def _whole(self, snapshot: Any) -> Any:
        """The thread's state after its last complete run; None if there is none.

        A run that broke off may have left tool calls without results, which model providers refuse from then on.
        """
        if not snapshot.next:
            return snapshot
        async for earlier in self._graph.aget_state_history(_config(self._shared)):
            if not earlier.next:
                return earlier
        return None

    async def resume(self, state: str, answers: Sequence[Answer]) -> Any:
        """The answers, for the thread that waits for them."""
        noted = json.loads(state)
        self._calls.open |= noted["open"]
        self._take(noted["thread"])
        command = importlib.import_module("langgraph.types").Command
        given = {
            each: resumption(value, answer)
            for (each, value), answer in zip(noted["_question_of"], answers, strict=True)
        }
        return command(resume=given)

    async def close(self) -> None:
        """Release the thread. The thread of a graph without a memory is deleted."""
        self._busy.discard(self._taken)
        if not self._remembers:
            await self._graph.checkpointer.adelete_thread(self._own)

    def _take(self, thread: str) -> None:
        self._thread = self._taken = thread
        self._config = _config(thread)
        self._busy.add(thread)

    async def work(self, given: Any) -> AsyncGenerator[object, None]:
        """Run the graph."""
        interrupts: dict[str, Any] = {}
        values: Any = None
        told, speaks, say = MessageTexts(self._ctx), MESSAGES in self._keys, text_sink()
        options = {} if self._remembers else {"durability": "exit"}
        async with (
            self._calls,
            aclosing(self._graph.astream(given, self._config, stream_mode=MODES, **options)) as events,
        ):
            async for mode, event in events:
                if mode == "messages":
                    if (text := told.text(event[0])) and speaks:
                        if not say(text):
                            await flush_output()
                    elif event[0].type == "tool":
                        await self._report_result(event[0])
                elif mode == "updates":
                    for interrupt in event.get("__interrupt__", ()):
                        interrupts[interrupt.id] = interrupt.value
                    await self._report_calls(event)
                elif mode == "values":
                    values = event
                else:
                    await flush_output()
                    await self._ctx.status(event if isinstance(event, str) else json_of(event))
        if interrupts:
            yield self._pause(interrupts)
        elif (result := self._result(values)) is not None:
            yield result

    def _pause(self, interrupts: dict[str, Any]) -> RunPause:
        questions = tuple(_question_of(value) for value in interrupts.values())
        values = [(each, question.data) for each, question in zip(interrupts, questions, strict=True)]
        return RunPause(
            questions, json.dumps({"thread": self._thread, "_question_of": values, "open": self._calls.open})
        )

    def _result(self, values: Any) -> object:
        """The graph's result, if it was not streamed."""
        if MESSAGES in self._keys:
            structured = values.get(STRUCTURED) if isinstance(values, dict) else None
            return None if structured is None else Part(data=json_of(structured))
        keys = self._graph.output_channels
        if isinstance(values, dict):
            names = [keys] if isinstance(keys, str) else keys
            values = {name: values[name] for name in names if name in values}
            if len(values) == 1:
                (values,) = values.values()
        return values if isinstance(values, str) or values is None else Part(data=json_of(values))

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


class MessageTexts:
    """The messages of models as they arrive, token by token or whole."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._last: str | None = None
        self._model: tuple[str | None, str] = (None, "")
        """The message that named its model last, and that name. The tokens come in a chunk of their own."""

    def text(self, said: Any) -> str:
        """The text that a message adds to the answer, with paragraphs between messages. Counts its usage."""
        if said.type not in ("AIMessageChunk", "ai"):
            return ""
        if name := said.response_metadata.get("model_name") or said.response_metadata.get("model"):
            self._model = said.id, name if isinstance(name, str) else ""
        if used := said.usage_metadata:
            message, model = self._model
            self._ctx.usage(
                input=used.get("input_tokens", 0),
                output=used.get("output_tokens", 0),
                model=model if message == said.id else "",
            )
        content = said.content
        text = content if type(content) is str else plain(content)
        if text and said.id != self._last:
            if self._last is not None:
                text = f"\n\n{text}"
            self._last = said.id
        return text


def plain(content: Any) -> str:
    """The text in the content of a message."""
    if isinstance(content, str):
        return content
    blocks = (block if isinstance(block, str) else block.get("text", "") for block in content)
    return "".join(block for block in blocks if isinstance(block, str))


def keys_of(graph: Any) -> dict[str, Any]:
    """The keys of the graph's input, each with its type."""
    builder = getattr(graph, "builder", None)
    schema = getattr(builder, "input_schema", None)
    try:
        keys = get_type_hints(schema)
    except (TypeError, NameError):  # no class, or one with names that cannot be resolved here
        keys = {}
    channels = graph.input_channels
    return keys or ({OBJECT: object} if isinstance(channels, str) else dict.fromkeys(channels, object))


def input_of(keys: dict[str, Any], words: PlainMessage, data: Any) -> Any:
    """The input. A data part that is an object is used as it is; text goes to `messages`, or to the only text key.

    Raises Reject if neither fits.
    """
    if isinstance(data, dict) and OBJECT not in keys and any(key in keys for key in data):
        texts = [piece for piece in words.pieces if isinstance(piece, PlainFile)]
        bare = PlainMessage(words.agent, tuple(texts))
        return data | ({MESSAGES: [message_of(bare)]} if MESSAGES in keys and MESSAGES not in data and texts else {})
    if MESSAGES in keys:
        return {MESSAGES: [message_of(words)]}
    if OBJECT in keys:
        return words.text if data is None else data
    if (text_key := _text_key(keys)) and data is None:
        return {text_key: words.text}
    raise Reject(f"Send a data part, an object with {', '.join(keys)}.")


def _text_key(keys: Mapping[str, Any]) -> str:
    """The key that takes the text of a message: the only one of type `str`; empty if there is none, or several."""
    texts = [key for key, kind in keys.items() if kind is str]
    return texts[0] if len(texts) == 1 else ""


def message_of(words: PlainMessage) -> Any:
    """A message of LangChain. Images and files go into its content if their bytes are known."""
    messages = importlib.import_module("langchain_core.messages")
    if words.agent:
        return messages.AIMessage(words.text)
    if not words.files:
        return messages.HumanMessage(words.text)
    return messages.HumanMessage([_block(piece) for piece in words.pieces])


def resumption(value: Any, answer: Answer) -> Any:
    """The value for the graph from an answer to the question with that data."""
    if answer.data is not None:
        return answer.data
    actions = value.get(ACTIONS) if isinstance(value, dict) else None
    if not isinstance(actions, list):
        return str(answer)
    decision = {"type": "approve"} if approved(answer) else {"type": "reject", "message": denial(answer)}
    return {"decisions": [decision] * len(actions)}


async def _check(graph: Any, keys: Mapping[str, Any], *, remembers: bool) -> AsyncIterator[CheckResult]:
    """Tell what callers send, and check where the graph's state is and whether it can be read on the event loop."""
    if not ({MESSAGES, OBJECT} & keys.keys() or _text_key(keys)):
        what = f"callers send a data part with {', '.join(keys)}"
        yield CheckResult(True, f"{what}: for text, give the graph an input_schema with one str, or with messages")
    again = "a task that waits is run again from its start after a restart"
    saver = type(graph.checkpointer).__name__
    if not remembers:
        yield CheckResult(True, f"the graph has no checkpointer: {again}")
    elif saver in ("InMemorySaver", "MemorySaver"):
        yield CheckResult(True, f"its checkpointer is in memory: {again}")
    else:
        try:
            await graph.aget_state(_config("check"))
        except NotImplementedError:
            yield CheckResult(
                False, f"its checkpointer {saver} is not asynchronous", "compile the graph with its Async form"
            )
        except Exception as error:  # noqa: BLE001  whatever the user's database says
            yield CheckResult(
                False, f"its checkpointer {saver} cannot be read: {error}", "check that its database exists"
            )
        else:
            yield CheckResult(True, f"its checkpointer {saver} can be read: a task that waits goes on after a restart")


def _config(thread: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread}}


def _block(piece: str | PlainFile) -> dict[str, Any]:
    if isinstance(piece, str):
        return {"type": "text", "text": piece}
    if piece.raw is None:
        return {"type": "text", "text": piece.described}
    content = base64.b64encode(piece.raw).decode()
    if piece.image:
        return {"type": "image_url", "image_url": {"url": f"data:{piece.media_type};base64,{content}"}}
    block = {"type": "file", "base64": content, "mime_type": piece.media_type}
    return block | ({"filename": piece.name} if piece.name else {})


def _question_of(value: Any) -> RunQuestion:
    """The question in the value of an interrupt. A text is a text; programs get any other value whole."""
    if isinstance(value, str):
        return RunQuestion(value)
    try:
        data = json_of(value)
    except (TypeError, ValueError):
        return RunQuestion(str(value))
    if not isinstance(data, dict):
        return RunQuestion(str(value), data)
    actions = data.get(ACTIONS)
    if isinstance(actions, list) and actions:
        named = (approval_of(str(action.get("name")), action.get("args")).text for action in actions)
        return RunQuestion("\n".join(named), data)
    text = next((data[key] for key in TEXTS if isinstance(data.get(key), str)), None)
    return RunQuestion(text or str(value), data)
