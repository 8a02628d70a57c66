"""ServerCall: a call of a tool of an MCP server, from the request to its outcome, in as many legs as it takes.

    CALLED ── an outcome ─────────────────────────────────────────────────────────────► over
      ├── input is needed ──► ASKING ── the answers ──► CALLED once more, with the server's state
      └── a task ──► WORKING ── completed, failed, canceled, unknown to the server ───► over
                       │  ▲
                       │  └── the answers are given ── ASKING ◄── it needs input, of which no answer was given
                       └── too late, or our task is canceled ──► the server is told ──► over

Each leg ends in an outcome, or in a ToolPending. Its handle is recorded before the next leg begins, so that a later run
goes on with the same task of the server, and does not call again.

Invariant: only questions that a person can answer reach the caller. A server that asks for anything else ends the call,
and so does one that asks without having been told that it may.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.mcp.link import Away, RequestRefused
from dragoman.agents.mcp.session import CallAnswer, McpServer, OnProgress
from dragoman.agents.tools import ToolAnswer, ToolPending, ToolQuestion
from dragoman.dialects.mcp import names
from dragoman.dialects.mcp.client import CallInput, ToolProgress
from dragoman.dialects.mcp.outcomes import InputNeeded, InputRequest, ServerTask, ToolOutcome
from dragoman.engine.api import Run

T = TypeVar("T")

POLL_S = 1.0
"""How long until a task is asked for again if the server does not say."""

POLL_S_MIN, POLL_S_MAX = 0.05, 600.0
"""Bounds of what a server may say about that."""

QUESTIONS_BYTES_MAX = 64 * 1024
"""The most that a server may ask at once: it is shown to a person."""

STATE_CHARS_MAX = 64 * 1024
"""The longest state that a server may give along: it is recorded with every leg of the call."""

AGAIN_S, AGAIN_S_MAX = 0.1, 5.0
"""How long until a call is made again whose server needs no answer, at first and after many times."""

DECLINED = {
    names.ELICIT: "its server asks a question, and is not allowed to",
    names.SAMPLE: "its server asks for an answer of a model, which it is not given",
    names.LIST_ROOTS: "its server asks for directories, which it is not given",
}
"""The reasons why the requests of servers end a call. A question ends one only if the table of the server says so."""


class CallHandle(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pending call as it is recorded: the name of the server, and the tool there.

    `task` is the server's task; empty if the call is made again, with the server's `state`. `since_ms` is when the
    server went on with the task, in milliseconds since the epoch: the time that the caller takes does not count.
    `answered` are the keys of what was asked and answered, and `times` counts answers that only had a state.
    """

    server: str
    tool: str
    task: str = ""
    state: str | None = None
    poll_s: float = POLL_S
    since_ms: int = 0
    answered: tuple[str, ...] = ()
    times: int = 0

    @property
    def spelled(self) -> str:
        """The handle as text."""
        return msgspec.json.encode(self).decode()


def read_handle(text: str) -> CallHandle:
    """Read a handle that was spelled here."""
    return msgspec.json.decode(text, type=CallHandle)


class ServerCall:
    """A call in the run, under the key of its step. `task_s` bounds how long a task of the server may work."""

    def __init__(
        self,
        server: McpServer,
        run: Run,
        key: str,
        on_progress: OnProgress,
        *,
        task_s: float,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._server = server
        self._run = run
        self._key = key
        self._on_progress = on_progress
        self._task_s = task_s
        self._now_s = now_s

    async def begin(self, tool: str, arguments: dict[str, Any]) -> ToolOutcome | ToolPending:
        """Call the tool. Raises Away."""
        handle = CallHandle(server=self._server.name, tool=tool)
        return await self._take(await self._call(tool, arguments, None), handle)

    async def resume(
        self, handle: CallHandle, arguments: dict[str, Any], answers: Mapping[str, ToolAnswer]
    ) -> ToolOutcome | ToolPending:
        """Go on with a call, with the answers by the keys of what was asked. Raises Away."""
        given = {key: _encode(answer) for key, answer in answers.items()}
        if handle.task:
            try:
                if given:
                    handle = replace(handle, answered=(*handle.answered, *given), since_ms=self._now_ms())
                    if (over := await self._update(handle, given)) is not None:
                        return over
                return await self._follow(handle)
            except asyncio.CancelledError:
                if self._run.canceled:  # else another run goes on with the server's task
                    await self._server.cancel_task(handle.task)
                raise
        if not given:
            await asyncio.sleep(min(AGAIN_S * 2 ** min(handle.times, 16), AGAIN_S_MAX))
        answer = await self._call(handle.tool, arguments, CallInput(handle.state, given))
        return await self._take(answer, replace(handle, times=0 if given else handle.times + 1))

    async def _call(self, tool: str, arguments: dict[str, Any], given: CallInput | None) -> CallAnswer:
        return await self._server.call(
            tool,
            arguments,
            key=self._key,
            traceparent=self._run.traceparent,
            on_progress=self._on_progress,
            given=given,
        )

    async def _take(self, answer: CallAnswer, handle: CallHandle) -> ToolOutcome | ToolPending:
        match answer:
            case ToolOutcome():
                return answer
            case InputNeeded(requests, state):
                if state is not None and len(state) > STATE_CHARS_MAX:
                    raise Away("its server gives a state that is too long")
                return await self._ask(requests, replace(handle, state=state))
            case ServerTask():
                poll_s = _poll_s(answer, POLL_S)
                handle = replace(handle, task=answer.id, state=None, poll_s=poll_s, since_ms=self._now_ms())
                return ToolPending(handle=handle.spelled, repeatable=True)

    async def _ask(self, requests: tuple[InputRequest, ...], handle: CallHandle) -> ToolPending:
        """The questions to the caller. Raises Away if the server asks for something else, or may not ask."""
        try:
            questions = _questions(self._server, requests)
        except Away:
            if handle.task:
                await self._server.cancel_task(handle.task)
            raise
        return ToolPending(handle=handle.spelled, questions=questions, repeatable=bool(handle.task))

    async def _update(self, handle: CallHandle, given: Mapping[str, Any]) -> ToolOutcome | None:
        """Give the server's task what it asks for. Returns the outcome if the task is over. Raises Away.

        A later run may give it once more, to a task that is over by then.
        """
        try:
            await self._insist(partial(self._server.update_task, handle.task, given), handle.poll_s)
        except RequestRefused:
            if (over := _outcome(await self._server.find_task(handle.task))) is None:
                raise
            return over
        return None

    async def _follow(self, handle: CallHandle) -> ToolOutcome | ToolPending:
        """Poll the server's task until it is over, asks, or takes too long. Raises Away."""
        poll_s = handle.poll_s
        until_s = handle.since_ms / 1000 + self._task_s
        told = ""
        await asyncio.sleep(min(max(handle.since_ms / 1000 + poll_s - self._now_s(), 0.0), poll_s))
        while True:
            task = await self._insist(partial(self._server.find_task, handle.task), poll_s)
            if (over := _outcome(task)) is not None:
                return over
            asked = tuple(request for request in task.requests if request.key not in handle.answered)
            if asked:
                return await self._ask(asked, handle)
            if task.message and task.message != told:
                told = task.message
                self._on_progress(ToolProgress(0, 0.0, message=told))
            poll_s = _poll_s(task, poll_s)
            left_s = until_s - self._now_s()
            if left_s <= 0:
                await self._server.cancel_task(handle.task)
                late = f"its server did not end its task within {self._task_s:g} s"
                raise Away(late, f"{late}: set task_s of the tool if it needs longer")
            await asyncio.sleep(min(poll_s, left_s))

    async def _insist(self, request: Callable[[], Awaitable[T]], pause_s: float) -> T:
        """Make a request about the server's task, once more after each pause while the server cannot be reached, for as
        long as a call may take. Raises Away."""
        until_s: float | None = None
        while True:
            try:
                return await request()
            except Away as error:
                if isinstance(error, RequestRefused) and error.code != names.INTERNAL_ERROR:
                    raise
                until_s = until_s or self._now_s() + self._server.call_s
                if self._now_s() >= until_s:
                    raise
            await asyncio.sleep(pause_s)

    def _now_ms(self) -> int:
        return int(self._now_s() * 1000)


def _outcome(task: ServerTask) -> ToolOutcome | None:
    """The outcome of a task; None as long as it goes on. Raises Away if it has none."""
    match task.status:
        case "completed":
            return task.outcome
        case "failed":
            fault = task.fault
            raise RequestRefused(fault.code, fault.message) if fault else Away("its server's task failed")
        case "cancelled":
            raise Away("its server canceled it" + (f": {task.message[:500]}" if task.message else ""))
        case _:
            return None


def _poll_s(task: ServerTask, otherwise: float) -> float:
    return otherwise if task.poll_s is None else min(max(task.poll_s, POLL_S_MIN), POLL_S_MAX)


def _questions(server: McpServer, requests: tuple[InputRequest, ...]) -> tuple[ToolQuestion, ...]:
    """The questions of a server. Raises Away if it asks for something else, may not ask, or asks too much."""
    for request in requests:
        if request.method != names.ELICIT or not server.elicits:
            raise Away(DECLINED.get(request.method, f"its server asks for {request.method[:100]}"))
    questions = tuple(_question(server.name, request) for request in requests)
    if len(msgspec.json.encode(questions)) > QUESTIONS_BYTES_MAX:
        raise Away("its server asks a question that is too long")
    return questions


def _question(server: str, request: InputRequest) -> ToolQuestion:
    """The question of an elicitation. Raises Away if it names an address that no person should open."""
    asked = request.params
    if asked.mode == "form":
        return ToolQuestion(id=request.key, asker=server, text=asked.message, form=asked.schema)
    try:
        scheme, host = urlsplit(asked.url)[:2]
    except ValueError:
        scheme = host = ""
    if scheme not in ("http", "https") or not host:
        raise Away("its server asks to open an address that is none of the web")
    return ToolQuestion(id=request.key, asker=server, text=asked.message, url=asked.url)


def _encode(answer: ToolAnswer) -> dict[str, Any]:
    """The result of an elicitation."""
    if answer.content is None:
        return {"action": answer.action}
    return {"action": answer.action, "content": answer.content}
