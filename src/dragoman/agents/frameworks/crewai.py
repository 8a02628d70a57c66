"""Crews and agents of CrewAI (1.x) behind a card.

Invariant: a copy of the crew or agent runs each task, in a thread of its own, since CrewAI blocks. Canceling the task
ends the run at its next event.
"""

import asyncio
import importlib
import traceback
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from dragoman.agents.content import json_of
from dragoman.agents.frameworks.approvals import approved
from dragoman.agents.frameworks.cards import made
from dragoman.agents.frameworks.conversation import history, message
from dragoman.agents.frameworks.crew_events import Hearing, Telling
from dragoman.agents.frameworks.crew_inputs import UNPLACED, inputs_of, missing
from dragoman.agents.frameworks.crew_memory import keep_apart
from dragoman.agents.frameworks.pauses import Pause, Pausing, Question
from dragoman.agents.python.agent import Agent
from dragoman.agents.python.context import Answer, Context
from dragoman.agents.python.threads import Crossing, Threads
from dragoman.engine.api import Reject
from dragoman.model.message import Part

WAITING_MAX = 1024
"""How many events of a run wait for the caller before the run waits, too."""

REVIEW = "Is this what you want? Answer yes, or say what should be different."


class Asked(Struct, eq=False):
    """A question from the run's thread, and the future in which it waits for the answer."""

    question: Question
    answer: "asyncio.Future[Answer]"


class Over(Struct):
    """The run has ended, and no event follows."""


class Stopped(BaseException):
    """Raised in the middle of a canceled run. Not a CancelledError, which a nested event loop would convert."""


def adapts(value: object) -> bool:
    """Whether the object is a crew or an agent; a flow is neither."""
    return callable(getattr(value, "kickoff", None)) and (hasattr(value, "tasks") or hasattr(value, "role"))


def adapted(value: Any, agent_id: str) -> Agent:
    """Put the crew or agent behind a card."""
    crew = hasattr(value, "tasks")
    tools = [tool.name for each in (value.agents if crew else (value,)) for tool in each.tools or ()]
    agent = made(
        agent_id,
        lambda ctx: Conversation(value, ctx, agent.threads),
        name=_name(value, crew),
        description="; ".join(task.description for task in value.tasks) if crew else value.goal,
        tools=tools,
        input_modes=("text/plain", "application/json"),
    )
    return agent


class Conversation(Pausing):
    """One task's run. It waits for the caller in its thread. A restart ends the thread, and the crew begins again."""

    def __init__(self, origin: Any, ctx: Context, threads: Threads) -> None:
        self._origin = origin
        self._ctx = ctx
        self._threads = threads
        self._told: deque[str | Telling | Asked | Over] = deque()
        self._news, self._room = asyncio.Event(), asyncio.Event()
        self._awake = False
        self._loop = asyncio.get_running_loop()
        self._thread: asyncio.Task[Any] | None = None
        self._waiting: Asked | None = None
        self._hearing: Hearing | None = None

    async def holds(self, state: str) -> bool:
        """False: there is no state."""
        return False

    async def begin(self) -> AsyncGenerator[object, None]:
        """Run with the message. The earlier conversation is `{history}`, or messages of the agent."""
        past, words = await history(self._ctx), await message(self._ctx)
        if hasattr(self._origin, "tasks"):
            places = self._origin.fetch_inputs()
            inputs = inputs_of(places, words, self._ctx.data, past)
            for place in missing(places, inputs):
                answer = await self._ctx.ask(Question(f"What is {place}?", {"input": {"name": place}}).parts)
                inputs[place] = str(answer) if answer.data is None else answer.data
            self._start(lambda crossing: self._crew(crossing, inputs))
        else:
            messages = [
                {"role": "assistant" if said.agent else "user", "content": said.text} for said in (*past, words)
            ]
            self._start(lambda crossing: self._agent(crossing, messages))
        async for piece in self._pieces():
            yield piece

    async def resume(self, state: str, answers: Sequence[Answer]) -> AsyncGenerator[object, None]:
        """Let the thread continue."""
        if self._waiting is not None:
            self._waiting.answer.set_result(answers[0])
        async for piece in self._pieces():
            yield piece

    async def close(self) -> None:
        """Leave the thread. It ends at its next event."""
        if self._thread is not None and not self._thread.cancel() and not self._thread.cancelled():
            self._thread.exception()  # it has been raised, or nobody is left to read it

    def _start(self, work: Any) -> None:
        async def run() -> Any:
            try:
                return await self._threads.run(work)
            finally:
                self._put(Over())

        self._thread = asyncio.create_task(run())

    async def _pieces(self) -> AsyncGenerator[object, None]:
        while True:
            match await self._next():
                case str() as text:
                    yield text
                case Asked() as asked:
                    self._waiting = asked
                    yield Pause((asked.question,))
                    return
                case Over():
                    break
                case tell:
                    await tell()
        try:
            output = await self._thread if self._thread is not None else None
        except BaseException as error:
            if self._hearing is not None:
                await self._hearing.broken()
            if (refusal := _refusal(error)) is not None:
                raise refusal from error
            raise
        for piece in _result(output, self._hearing.said if self._hearing is not None else ""):
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

        def post(item: str | Telling) -> None:
            self._told.append(item)
            if not self._awake:
                self._awake = True
                loop.call_soon_threadsafe(self._news.set)
            if len(self._told) >= WAITING_MAX:
                crossing.call(self._drain)

        def ask(question: Question) -> Answer:
            hearing.turn()
            return crossing.call(lambda: self._ask_caller(question))

        hearing = self._hearing = Hearing(self._ctx, post, last=last, total=total, shaped=shaped)
        sink = streams.add_stream_sink(_guarded_sink(hearing, crossing))
        provider = humans.set_provider(Reviews(ask))
        try:
            yield
        except Stopped as stopped:
            _close_streams(stopped)
            raise asyncio.CancelledError("the task was canceled") from None
        finally:
            humans.reset_provider(provider)
            streams.reset_stream_sinks(sink)

    async def _ask_caller(self, question: Question) -> Answer:
        asked = Asked(question, asyncio.get_running_loop().create_future())
        self._put(asked)
        return await asked.answer

    def _put(self, item: Asked | Over) -> None:
        self._told.append(item)
        self._news.set()

    async def _next(self) -> str | Telling | Asked | Over:
        """Wait for the run's next event. Its thread wakes the loop only if the loop has no unread event."""
        while not self._told:
            self._room.set()
            self._awake = False
            if not self._told:
                await self._news.wait()
            self._news.clear()
            self._awake = True
        return self._told.popleft()

    async def _drain(self) -> None:
        while self._told:
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
        given: Answer = self._ask(Question(f"{draft}\n\n{REVIEW}", {"review": {"draft": draft}}))
        return None if not given.strip() or approved(given) else str(given)


def _guarded_sink(hearing: Hearing, crossing: Crossing[Any]) -> Any:
    def sink(source: Any, event: Any) -> None:
        if crossing.canceled:
            raise Stopped
        try:
            hearing(source, event)
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


def _name(value: Any, crew: bool) -> str | None:
    """The name. A crew without one is called `crew`, which says nothing."""
    name = (None if value.name == "crew" else value.name) if crew else value.role
    return str(name) if name else None
