"""Crews and agents of CrewAI (1.x) behind a card.

Invariant: a copy of the crew or agent runs each task, in a thread of its own, since CrewAI blocks. Canceling the task
ends the run at its next event. Only the answer is streamed: the text of the last task, without the thoughts of agents
that think aloud. The message reaches a crew with any places for inputs, or none. The memories of one caller's runs are
recalled in no other caller's; views that the author made of a memory (`memory.scope(…)`, `memory.slice(…)`) stay.
"""

import asyncio
import importlib
import json
import traceback
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from threading import Lock
from typing import Any

from msgspec import Struct

from dragoman.agents.content import json_of
from dragoman.agents.frameworks.calls import Calls, answer_value, approved
from dragoman.agents.frameworks.conversation import PlainMessage, history, message
from dragoman.agents.frameworks.runs import FrameworkRun, RunPause, RunQuestion, build_agent
from dragoman.agents.python.agent import Agent
from dragoman.agents.python.context import Answer, Context
from dragoman.agents.python.threads import Crossing, Threads
from dragoman.engine.api import Reject
from dragoman.model.message import Part

WAITING_MAX = 1024
"""How many events of a run wait for the caller before the run waits, too."""

REVIEW = "Is this what you want? Answer yes, or say what should be different."

THOUGHTS = ("Thought:", "Action:")
"""The first words of a model that is asked to think aloud (ReAct)."""

ANSWER = "Final Answer:"
"""The marker before the answer of such a model."""

MESSAGE = "message"
HISTORY = "history"

UNPLACED = "crewai_trigger_payload"
"""The input that CrewAI itself puts below the first task."""


def adapts(value: object) -> bool:
    """Whether the object is a crew or an agent; a flow is neither."""
    return callable(getattr(value, "kickoff", None)) and (hasattr(value, "tasks") or hasattr(value, "role"))


def name_of(value: Any) -> str:
    """The name of a crew, or the role of an agent. A crew without one is called `crew`, which says nothing."""
    if not hasattr(value, "tasks"):
        return str(value.role or "")
    return "" if value.name in (None, "crew") else str(value.name)


def adapt(value: Any, agent_id: str) -> Agent:
    """Put the crew or agent behind a card."""
    crew = hasattr(value, "tasks")
    tools = [tool.name for each in (value.agents if crew else (value,)) for tool in each.tools or ()]
    agent = build_agent(
        agent_id,
        lambda ctx: CrewRun(value, ctx, agent.threads),
        name=name_of(value),
        description="; ".join(task.description for task in value.tasks) if crew else value.goal,
        tools=tools,
        file_modes=(),
    )
    return agent


Report = Callable[[], Awaitable[None]]
"""A report, to be awaited on the event loop."""


class ThreadQuestion(Struct, eq=False):
    """A question from the run's thread, and the future in which it waits for the answer."""

    question: RunQuestion
    answer: "asyncio.Future[Answer]"


class RunOver(Struct):
    """The run has ended, and no event follows."""


class Stopped(BaseException):
    """Raised in the middle of a canceled run. Not a CancelledError, which a nested event loop would convert."""


class AnswerText:
    """The words of one model call, without its thoughts."""

    def __init__(self) -> None:
        self._held = ""
        self._open = False
        self.begun = False

    def feed(self, chunk: str) -> str:
        """Add a chunk. Returns the text that can be streamed now."""
        if self._open:
            return chunk
        self._held += chunk
        words = self._held.lstrip()
        if ANSWER in words:
            self._open = True
            return words.partition(ANSWER)[2].lstrip()
        if any(words.startswith(thought) or thought.startswith(words) for thought in THOUGHTS):
            return ""
        self._open = True
        return self._held

    def finish(self) -> str:
        """End the call. Returns text that was held back although it was not a thought."""
        words = self._held.lstrip()
        if self._open or words.startswith(THOUGHTS):
            return ""
        self._open = True
        return self._held


class EventSink:
    """A sink for the events of one run. It may be called in any thread. `post` takes texts and reports.

    `last` is the id of the task that makes the answer, None without tasks; `total` is the number of tasks. With
    `shaped`, the answer is data, and no text is streamed.
    """

    def __init__(
        self, ctx: Context, post: Callable[[str | Report], None], *, last: str | None, total: int, shaped: bool
    ) -> None:
        self._ctx = ctx
        self._post = post
        self._last = last
        self._total = total
        self._shaped = shaped
        self._lock = Lock()
        self._calls = Calls(ctx)
        self._open: dict[str, list[str]] = {}
        self._done = 0
        self._words = AnswerText()
        self._gap = False
        self._texts: list[str] = []

    @property
    def said(self) -> str:
        """All the text that was streamed."""
        return "".join(self._texts)

    def __call__(self, source: Any, event: Any) -> None:
        """Handle an event of the run."""
        match event.type:
            case "llm_stream_chunk":
                if self._streams(event):
                    self._say(self._words.feed(event.chunk))
            case "llm_call_started":
                self._words = AnswerText()
            case "llm_call_completed":
                if self._streams(event):
                    self._say(self._words.finish())
                if event.usage:
                    self._post(self._report_usage(event.usage, event.model))
            case "tool_usage_started":
                self._begin(event)
            case "tool_usage_finished" | "tool_usage_error":
                self._end(event)
            case "task_completed" if self._total > 1:
                self._done += 1
                self._post(self._report_step(self._done, event.task_name or ""))

    def begin_artifact(self) -> None:
        """Start a new artifact, because the caller is about to be asked."""
        self._gap = False

    async def report_broken(self) -> None:
        """Report that the run has failed."""
        await self._calls.report_broken()

    def _streams(self, event: Any) -> bool:
        if self._shaped or (self._last is not None and event.task_id != self._last):
            return False
        kind = getattr(event, "call_type", None)
        return kind is None or kind.value != "tool_call"

    def _say(self, text: str) -> None:
        if text:
            if self._gap and not self._words.begun:
                text = "\n\n" + text
            self._gap = self._words.begun = True
            self._texts.append(text)
            self._post(text)

    def _report_usage(self, usage: dict[str, Any], model: str | None) -> Report:
        async def tell() -> None:
            said, made = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
            self._ctx.usage(input=said, output=made, model=model or "")

        return tell

    def _report_step(self, step: int, name: str) -> Report:
        return lambda: self._ctx.progress(step, self._total, name)

    def _begin(self, event: Any) -> None:
        with self._lock:
            self._open.setdefault(_call_key(event), []).append(event.event_id)
        self._post(lambda: self._calls.report_start(event.event_id, event.tool_name, event.tool_args))

    def _end(self, event: Any) -> None:
        with self._lock:
            waiting = self._open.get(_call_key(event))
            begun = waiting.pop(0) if waiting else None
        if begun is not None:
            if (failed := getattr(event, "error", None)) is None:
                self._post(lambda: self._calls.report_end(begun, event.output))
            else:
                self._post(lambda: self._calls.report_failure(begun, str(failed)))


class CrewRun(FrameworkRun):
    """One task's run. It waits for the caller in its thread. A restart ends the thread, and the crew begins again."""

    def __init__(self, origin: Any, ctx: Context, threads: Threads) -> None:
        self._origin = origin
        self._ctx = ctx
        self._threads = threads
        self._queue: deque[str | Report | ThreadQuestion | RunOver] = deque()
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._awake = False
        self._loop = asyncio.get_running_loop()
        self._thread: asyncio.Task[Any] | None = None
        self._waiting: ThreadQuestion | None = None
        self._sink: EventSink | None = None

    async def holds(self, state: str) -> bool:
        """False: there is no state."""
        return False

    async def begin(self) -> None:
        """Start with the message. The earlier conversation is `{history}`, or messages of the agent."""
        past, words = await history(self._ctx), await message(self._ctx)
        if hasattr(self._origin, "tasks"):
            places = self._origin.fetch_inputs()
            inputs = inputs_of(places, words, self._ctx.data, past)
            for place in missing(places, inputs):
                answer = await self._ctx.ask(RunQuestion(f"What is {place}?", {"input": {"name": place}}).parts)
                inputs[place] = answer_value(answer)
            self._start(lambda crossing: self._crew(crossing, inputs))
        else:
            messages = [
                {"role": "assistant" if said.agent else "user", "content": said.text} for said in (*past, words)
            ]
            self._start(lambda crossing: self._agent(crossing, messages))

    async def resume(self, state: str, answers: Sequence[Answer]) -> None:
        """Let the thread continue."""
        if self._waiting is not None:
            self._waiting.answer.set_result(answers[0])

    async def close(self) -> None:
        """Leave the thread. It ends at its next event."""
        if self._thread is not None and not self._thread.cancel() and not self._thread.cancelled():
            self._thread.exception()  # it has been raised, or nobody is left to read it

    def _start(self, work: Any) -> None:
        async def run() -> Any:
            try:
                return await self._threads.run(work)
            finally:
                self._put(RunOver())

        self._thread = asyncio.create_task(run())

    async def work(self, given: None) -> AsyncGenerator[object, None]:
        """Follow the thread until it ends or asks."""
        while True:
            match await self._next():
                case str() as text:
                    yield text
                case ThreadQuestion() as asked:
                    self._waiting = asked
                    yield RunPause((asked.question,))
                    return
                case RunOver():
                    break
                case tell:
                    await tell()
        try:
            output = await self._thread if self._thread is not None else None
        except BaseException as error:
            if self._sink is not None:
                await self._sink.report_broken()
            if (refusal := _refusal(error)) is not None:
                raise refusal from error
            raise
        for piece in _result(output, self._sink.said if self._sink is not None else ""):
            yield piece

    def _crew(self, crossing: Crossing[Any], inputs: dict[str, Any]) -> Any:
        crew = self._origin.copy()
        last = crew.tasks[-1]
        if UNPLACED in inputs and crew.tasks[0].allow_crewai_trigger_context is None:
            crew.tasks[0].allow_crewai_trigger_context = True
        shaped = bool(last.output_pydantic or last.output_json or getattr(last, "response_model", None))
        agents = (*crew.agents, *([crew.manager_agent] if crew.manager_agent else []))
        for agent in agents:
            _stream(agent)
        keep_apart(crew, agents, self._ctx.principal.id)
        with self._receive_events(crossing, last=str(last.id), total=len(crew.tasks), shaped=shaped):
            return crew.kickoff(inputs=inputs)

    def _agent(self, crossing: Crossing[Any], messages: list[dict[str, str]]) -> Any:
        agent = self._origin.copy()
        _stream(agent)
        keep_apart(None, (agent,), self._ctx.principal.id)
        with self._receive_events(crossing, last=None, total=0, shaped=False):
            return agent.kickoff(messages)

    @contextmanager
    def _receive_events(self, crossing: Crossing[Any], *, last: str | None, total: int, shaped: bool) -> Any:
        """Receive the run's events, and answer for the user, within the block."""
        streams = importlib.import_module("crewai.events.stream_context")
        humans = importlib.import_module("crewai.core.providers.human_input")

        loop = self._loop

        def post(item: str | Report) -> None:
            self._queue.append(item)
            if not self._awake:
                self._awake = True
                loop.call_soon_threadsafe(self._news.set)
            if len(self._queue) >= WAITING_MAX:
                crossing.call(self._drain)

        def ask(question: RunQuestion) -> Answer:
            events.begin_artifact()
            return crossing.call(lambda: self._ask_caller(question))

        events = self._sink = EventSink(self._ctx, post, last=last, total=total, shaped=shaped)
        sink = streams.add_stream_sink(_guarded_sink(events, crossing))
        provider = humans.set_provider(Reviews(ask))
        try:
            yield
        except Stopped as stopped:
            _close_streams(stopped)
            raise asyncio.CancelledError("the task was canceled") from None
        finally:
            humans.reset_provider(provider)
            streams.reset_stream_sinks(sink)

    async def _ask_caller(self, question: RunQuestion) -> Answer:
        asked = ThreadQuestion(question, asyncio.get_running_loop().create_future())
        self._put(asked)
        return await asked.answer

    def _put(self, item: ThreadQuestion | RunOver) -> None:
        self._queue.append(item)
        self._news.set()

    async def _next(self) -> str | Report | ThreadQuestion | RunOver:
        """Wait for the run's next event. Its thread wakes the loop only if the loop has no unread event."""
        while not self._queue:
            self._room.set()
            self._awake = False
            if not self._queue:
                await self._news.wait()
            self._news.clear()
            self._awake = True
        return self._queue.popleft()

    async def _drain(self) -> None:
        while self._queue:
            self._room.clear()
            await self._room.wait()


class Reviews:
    """Asks the caller what CrewAI would ask at the terminal: whether an answer is right (HumanInputProvider)."""

    def __init__(self, ask: Any) -> None:
        self._ask = ask

    def setup_messages(self, context: Any) -> bool:
        """False: the usual messages are set up."""
        return False

    def post_setup_messages(self, context: Any) -> None:
        """Do nothing."""

    def handle_feedback(self, formatted_answer: Any, context: Any) -> Any:
        """Return the answer that the caller accepts."""
        answer = formatted_answer
        while context.ask_for_human_input:
            if (feedback := self._feedback(answer)) is None:
                context.ask_for_human_input = False
            else:
                context.messages.append(context._format_feedback_message(feedback))
                answer = context._invoke_loop()
        return answer

    async def handle_feedback_async(self, formatted_answer: Any, context: Any) -> Any:
        """Like `handle_feedback`."""
        answer = formatted_answer
        while context.ask_for_human_input:
            if (feedback := await asyncio.to_thread(self._feedback, answer)) is None:
                context.ask_for_human_input = False
            else:
                context.messages.append(context._format_feedback_message(feedback))
                answer = await context._ainvoke_loop()
        return answer

    def _feedback(self, answer: Any) -> str | None:
        """The changes that the caller wants; None if there are none."""
        draft = answer.output if isinstance(answer.output, str) else answer.output.model_dump_json()
        given: Answer = self._ask(RunQuestion(f"{draft}\n\n{REVIEW}", {"review": {"draft": draft}}))
        return None if not given.strip() or approved(given) else str(given)


def inputs_of(places: Iterable[str], words: PlainMessage, data: Any, past: Sequence[PlainMessage]) -> dict[str, Any]:
    """The inputs. `{message}` and `{history}` have their literal meaning; fields of data fill the places they name.

    If a single place is left, the text fills it. Without any place, the text, with the earlier conversation, is the
    payload of a trigger.
    """
    wanted = set(places)
    given: dict[str, Any] = dict(data) if isinstance(data, Mapping) else {}
    given.setdefault(MESSAGE, words.text)
    given.setdefault(HISTORY, _transcript_of(past))
    if not wanted:
        before = f"{_transcript_of(past)}\nuser: " if past else ""
        return given | {UNPLACED: before + words.text}
    left = missing(wanted, given)
    return given | {left[0]: words.text} if len(left) == 1 else given


def missing(places: Iterable[str], given: Mapping[str, Any]) -> list[str]:
    """The places that have no input."""
    return sorted(set(places) - set(given))


def keep_apart(crew: Any, agents: Iterable[Any], caller: str) -> None:
    """Give the copies of a crew (None: no crew) and of agents memories with a separate place for this caller."""
    if crew is not None and crew._memory is not None:
        crew._memory = crew.memory = _own_memory(crew._memory, caller)  # a copy has the crew's memory in both
    for agent in agents:
        agent.memory = _own_memory(agent.memory, caller)


def _guarded_sink(events: EventSink, crossing: Crossing[Any]) -> Any:
    def sink(source: Any, event: Any) -> None:
        if crossing.canceled:
            raise Stopped
        try:
            events(source, event)
        except asyncio.CancelledError:
            raise Stopped from None

    return sink


def _close_streams(stopped: Stopped) -> None:
    """Close the model's answer that the run was reading: CrewAI (1.15) leaves that to the garbage collector."""
    for frame, _ in traceback.walk_tb(stopped.__traceback__):
        for value in tuple(frame.f_locals.values()):
            if type(value).__name__.endswith("Stream") and hasattr(value, "response"):
                value.close()


def _stream(agent: Any) -> None:
    if hasattr(agent.llm, "stream"):
        agent.llm.stream = True


def _result(output: Any, said: str) -> list[object]:
    """The run's result, if it has not been streamed."""
    if getattr(output, "pydantic", None) is not None:
        return [Part(data=json_of(output.pydantic))]
    if getattr(output, "json_dict", None) is not None:
        return [Part(data=json_of(output.json_dict))]
    raw = str(output.raw)
    if said.strip().endswith(raw.strip()):
        return []
    return ["\n\n" + raw if said else raw]


def _refusal(error: BaseException) -> Reject | None:
    """The error as a refusal, if it came from a hook or a guardrail."""
    aborted = importlib.import_module("crewai.hooks").HookAborted
    text = str(error)
    refused = isinstance(error, aborted) or (text.startswith("Task failed guardrail") and " validation after " in text)
    return Reject(text) if refused else None


def _call_key(event: Any) -> str:
    """A key by which the end of a call is matched to its beginning: CrewAI gives calls no id."""
    args = event.tool_args
    return f"{event.tool_name} {args if isinstance(args, str) else json.dumps(args, sort_keys=True, default=str)}"


def _transcript_of(past: Sequence[PlainMessage]) -> str:
    """A conversation as one text."""
    return "\n".join(f"{'agent' if words.agent else 'user'}: {words.text}" for words in past)


def _own_memory(memory: Any, caller: str) -> Any:
    if not hasattr(memory, "root_scope"):
        return memory
    # CrewAI matches places by prefix: names of one length, so that none is a prefix of another.
    place = f"{memory.root_scope or ''}/caller/{sha256(caller.encode()).hexdigest()}"
    return memory.model_copy(update={"root_scope": place})
