"""LocalTaskManager: tasks of one function in this process, on the engine of the server.

Invariant: everything that runs belongs to one TaskGroup, held by one asyncio task of the manager. When `shutdown`
returns, or the event loop ends, nothing is left running. An exception of the function becomes a failed task with its
text. A plain function never runs on the loop. `TASK_STORE_TYPE` means the same here and for a server with KAOS's
profile.
"""

import asyncio
import inspect
import logging
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from dragoman import __version__
from dragoman.agents.content import Artifacts, json_of, parts_of
from dragoman.agents.python.threads import Threads
from dragoman.config.load import translate
from dragoman.dialects.kaos import TASK_STORE_TYPE
from dragoman.engine.api import Ended, Reject, Run, Runner, Traits
from dragoman.engine.engine import Engine
from dragoman.engine.handler import Handler, Snapshot
from dragoman.engine.handlers.tracing import Traced
from dragoman.engine.policy import LIST_OFFSET_MAX, EngineSettings
from dragoman.kaos.manager import NullTaskManager, Task, TaskManager, session_of, task_of
from dragoman.model import task as canonical
from dragoman.model.card import Profile
from dragoman.model.errors import TaskNotCancelable, TaskNotFound, Unavailable, UnsupportedOperation
from dragoman.model.events import Logged
from dragoman.model.ids import Clock, SystemClock, new_id, timestamp_ms
from dragoman.model.lifecycle import Fold
from dragoman.model.message import Message, Role
from dragoman.model.operations import Call, CancelTask, GetTask, ListTasks, Operation, SendMessage, Subscribe, TaskPage
from dragoman.model.principal import ANONYMOUS
from dragoman.model.task import Record, TaskState
from dragoman.store.api import Store, StoreError
from dragoman.store.open import open_store
from dragoman.telemetry.job_group import JobGroup

if TYPE_CHECKING:
    from dragoman.telemetry.opentelemetry import OpenTelemetry


log = logging.getLogger("dragoman.kaos")

AGENT_ID = "agent"
"""The one agent of a manager's engine."""

MAX_TASKS = 10_000
"""How many tasks are kept; KAOS's own number."""

STOP_GRACE_S = 1.0
"""How long a function that is canceled may clean up."""

SETTINGS = EngineSettings(
    blocking_timeout_s=365 * 86_400.0,  # `send_message` returns when the task has ended, however long that takes
    cancel_grace_s=STOP_GRACE_S,
)

PAGE = 100
"""The largest page that ListTasks gives."""

TELEMETRY_PREFIX = "kaos"
"""How KAOS's names of spans and metrics begin."""

ProcessFn = Callable[..., Any]
"""`process_fn(text)` or `process_fn(text, session_id)`: a coroutine function or a plain function, which returns the
answer, or an async generator, which yields it in pieces.

KAOS's own signatures fit: one that takes `stream` is called with `stream=False`, and of a pair `(answer, tool calls)`
the first is the answer.
"""


class _Home(Struct):
    """The running parts of the manager: the engine, called through `handler`."""

    engine: Engine
    handler: Handler
    store: Store
    telemetry: "OpenTelemetry | None"

    def call_of(self, operation: Operation) -> Call:
        """Wrap the operation in a call, which belongs to the caller's trace."""
        call = _call(operation)
        if self.telemetry is None:
            return call
        from dragoman.telemetry.opentelemetry import current_traceparent

        return replace(call, traceparent=current_traceparent())


class LocalTaskManager(TaskManager):
    """Tasks of one function, in memory. `ProcessFn` describes its arguments and results.

    `max_tasks`, from 1 to 10000, is how many are kept: those that ended first are dropped first. The manager starts
    with its first message, and belongs to the event loop of that.
    """

    def __init__(self, process_fn: ProcessFn, max_tasks: int = MAX_TASKS, *, clock: Clock | None = None) -> None:
        if not 1 <= max_tasks <= LIST_OFFSET_MAX:
            raise ValueError(f"max_tasks {max_tasks}: from 1 to {LIST_OFFSET_MAX}")
        self._runner = ProcessRunner(process_fn)
        self._max_tasks = max_tasks
        self._clock = clock or SystemClock()
        self._sends = 0
        self._stop = asyncio.Event()
        self._home: asyncio.Future[_Home] | None = None
        self._owner: asyncio.Task[None] | None = None

    async def send_message(
        self,
        text: str,
        session_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        *,
        context_id: str | None = None,
    ) -> Task:
        """See `TaskManager.send_message`. If the function raises, the task fails with the exception's text.

        The task goes on if its caller is canceled; `cancel_task` stops it. Raises TypeError if `metadata` has no JSON
        form, RuntimeError after `shutdown`.
        """
        if not isinstance(text, str):
            raise TypeError(f"a message is text, not {type(text).__name__}")
        message = Message(
            message_id=f"message_{new_id()}",  # not a bare UUID, which the engine would use to recognise repeats
            role=Role.USER,
            parts=parts_of(text),
            context_id=session_of(session_id, context_id),
        )
        send = SendMessage(message=message, metadata=None if metadata is None else json_of(metadata))
        home = await self._running()
        await self._make_room(home)
        try:
            return _to_task(await home.handler.call(home.call_of(send)))
        except Unavailable as error:
            raise _gone() from error

    async def get_task(self, task_id: str) -> Task | None:
        """See `TaskManager.get_task`. Also None for a task that was dropped to make room."""
        if self._owner is None:
            return None
        home = await self._running()
        try:
            return _to_task(await home.handler.call(_call(GetTask(id=task_id))))
        except TaskNotFound:
            return None

    async def cancel_task(self, task_id: str) -> Task | None:
        """See `TaskManager.cancel_task`. Returns at most a second later, even if the function does not stop."""
        if self._owner is None:
            return None
        home = await self._running()
        try:
            return _to_task(await home.handler.call(home.call_of(CancelTask(id=task_id))))
        except TaskNotFound:
            return None
        except TaskNotCancelable:
            return await self.get_task(task_id)

    async def wait_for_completion(self, task_id: str, timeout: float = 60.0, poll_interval: float = 0.1) -> Task | None:
        """See `TaskManager.wait_for_completion`. It waits for events, and does not poll."""
        if self._owner is None:
            return None
        home = await self._running()
        try:
            stream = await home.handler.stream(_call(Subscribe(id=task_id)))
        except TaskNotFound:
            return None
        except (UnsupportedOperation, Unavailable):  # the task has ended, or the manager is stopping
            return await self.get_task(task_id)
        timer = asyncio.get_running_loop().call_later(timeout, stream.close)
        fold: Fold | None = None
        try:
            while (items := await stream.next()) is not None:
                for item in items:
                    if isinstance(item, Snapshot):
                        fold = Fold(item.record.head, item.record)
                    elif isinstance(item, Logged) and fold is not None:
                        fold.add(item.seq, item.event)
        finally:
            timer.cancel()
            stream.close()
        return await self.get_task(task_id) if fold is None else task_of(fold.record())

    async def unfinished(self) -> list[Task]:
        """Return the tasks that have not ended, the oldest first.

        A caller of `send_message` gets its task only at the end; until then `cancel_task` takes the id from here.
        """
        if self._owner is None:
            return []
        home = await self._running()
        return [task_of(task.record()) for task in home.engine.tasks.all() if task.seq and not task.terminal]

    async def shutdown(self) -> None:
        """Cancel all running tasks and stop. Callers who wait for a task get it, canceled."""
        self._stop.set()
        if self._owner is not None:
            await asyncio.shield(self._owner)

    # -- what runs ---------------------------------------------------------------------------------------------------

    async def _running(self) -> _Home:
        if self._stop.is_set():
            raise _gone()
        if self._home is None:
            loop = asyncio.get_running_loop()
            self._home = loop.create_future()
            self._owner = loop.create_task(self._own(self._home), name="kaos tasks")
        return await asyncio.shield(self._home)

    async def _own(self, ready: "asyncio.Future[_Home]") -> None:
        holder = f"kaos/{new_id()}"
        store = open_store("memory:", self._clock)
        try:
            await store.open(holder)
        except StoreError as error:
            ready.set_exception(error)
            return
        try:
            telemetry = _telemetry()
            engine = Engine(
                store,
                {AGENT_ID: self._runner},
                clock=self._clock,
                settings=SETTINGS,
                holder=holder,
                observer=telemetry,
            )
            operations = engine.operations
            handler = operations if telemetry is None else Traced(operations, telemetry)
            async with asyncio.TaskGroup() as tasks:
                await engine.start(JobGroup(tasks))
                ready.set_result(_Home(engine, handler, store, telemetry))
                await self._stop.wait()
                await _cancel_all(operations)
                await engine.drain(STOP_GRACE_S)
        finally:
            ready.cancel()  # nothing, if it was ready
            await store.close()

    async def _make_room(self, home: _Home) -> None:
        """Drop the oldest ended tasks every so many messages, so that the limit is never exceeded."""
        self._sends += 1
        step = max(1, self._max_tasks // 10)
        if self._sends % step:
            return
        beyond = await home.handler.call(_call(ListTasks(page_size=1, offset=self._max_tasks - step)))
        if not (isinstance(beyond, TaskPage) and beyond.records):
            return
        oldest_ms = timestamp_ms(beyond.records[0].status.timestamp)
        while await home.store.sweep(oldest_ms + 1, 0, -1, -1):  # what ended until then, and that moment included
            pass


def task_manager_from_env(process_fn: ProcessFn, environ: Mapping[str, str] | None = None) -> TaskManager:
    """The manager that `TASK_STORE_TYPE` names: `local` (or unset) keeps tasks in memory, `null` keeps none.

    `environ` None is the environment of the process. Raises ConfigError if the variable is anything else.
    """
    given = (os.environ if environ is None else environ).get("TASK_STORE_TYPE", "").strip() or "local"
    keeps = translate("TASK_STORE_TYPE", TASK_STORE_TYPE, given)
    return LocalTaskManager(process_fn) if keeps == "true" else NullTaskManager()


class ProcessRunner(Runner):
    """A function behind a card. Raises TypeError if `process_fn` cannot be called with a text."""

    traits = Traits()

    def __init__(self, process_fn: ProcessFn) -> None:
        self.profile = Profile(id=AGENT_ID, name=AGENT_ID, description="A function", version="1", skills=())
        self._function = process_fn
        self._name = getattr(process_fn, "__name__", type(process_fn).__name__)
        self._takes = _find_arguments(process_fn, self._name)
        self._awaits = any(
            inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each)
            for each in (process_fn, getattr(process_fn, "__call__", None))  # noqa: B004  an object may have an async one
        )
        self._threads = Threads()

    async def run(self, run: Run) -> None:
        """Call the function with the message's text. Its result becomes the task's only artifact."""
        artifacts = Artifacts(run)
        session_id = run.head.context_id
        try:
            if self._awaits:
                given = self._call(run.message.text, session_id)
            else:
                given = await self._threads.run(lambda crossing: self._call(run.message.text, session_id))
            if isinstance(given, Awaitable):
                given = await given
            if isinstance(given, AsyncIterator):
                await self._emit_pieces(given, artifacts)
            else:
                await artifacts.add(self._text(given), last=True)
        except Reject:
            raise
        except Exception as error:  # a user's function may raise anything
            log.exception("process_fn %s failed in task %s", self._name, run.head.id)
            raise Ended(TaskState.FAILED, parts_of(str(error) or type(error).__name__)) from error

    def _call(self, text: str, session_id: str) -> Any:
        positional, named = self._takes
        told = {"session_id": session_id, "stream": False}
        return self._function(text, *(session_id,) * positional, **{name: told[name] for name in named})

    async def _emit_pieces(self, pieces: AsyncIterator[object], artifacts: Artifacts) -> None:
        try:
            async for piece in pieces:
                await artifacts.add(self._text(piece))
        finally:
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()

    def _text(self, given: object) -> str:
        match given:
            case None:
                return ""
            case str():
                return given
            case (str() as text, int()):
                return text
            case _:
                raise TypeError(f"process_fn {self._name} gave {type(given).__name__}, expected text")


def _find_arguments(process_fn: ProcessFn, name: str) -> tuple[bool, tuple[str, ...]]:
    """The arguments of the function beside the text: whether the session is the second one, and those by name."""
    if not callable(process_fn):
        raise TypeError(f"process_fn must be a function from text to text, not {process_fn!r}")
    try:
        parameters = list(inspect.signature(process_fn).parameters.values())
    except ValueError:  # a builtin without a signature
        return False, ()
    positional = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    if not positional and not any(each.kind is each.VAR_POSITIONAL for each in parameters):
        raise TypeError(f"process_fn {name} takes no text: write `async def {name}(text: str) -> str`")
    by_name = [each for each in parameters if each not in positional[:1] and each.kind is not each.POSITIONAL_ONLY]
    named = tuple(each.name for each in by_name if each.name in ("session_id", "stream"))
    needed = [
        each
        for each in parameters
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    unmet = [each for each in needed if each not in positional[:1] and each.name not in named]
    second = bool(unmet) and len(positional) > 1 and unmet[0] is positional[1] and "session_id" not in named
    if more := unmet[1:] if second else unmet:
        names = ", ".join(each.name for each in more)
        raise TypeError(f"process_fn {name} needs {names}, but is given a text and, if it wants it, session_id")
    return second, named


def _telemetry() -> "OpenTelemetry | None":
    """The telemetry that this process has set up, for which it has imported the SDK. Without it nothing is loaded."""
    if "opentelemetry.sdk" not in sys.modules:
        return None
    from dragoman.telemetry.opentelemetry import OpenTelemetry, initialized

    providers = initialized()
    return None if providers is None else OpenTelemetry(*providers, TELEMETRY_PREFIX, __version__)


async def _cancel_all(handler: Handler) -> None:
    for state in (canonical.TaskState.SUBMITTED, canonical.TaskState.WORKING):
        page = await handler.call(_call(ListTasks(state=state, page_size=PAGE)))
        while isinstance(page, TaskPage) and page.records:
            await asyncio.gather(*(_cancel(handler, record.head.id) for record in page.records))
            page = await handler.call(_call(ListTasks(state=state, page_size=PAGE)))


async def _cancel(handler: Handler, task_id: str) -> None:
    try:
        await handler.call(_call(CancelTask(id=task_id)))
    except (TaskNotFound, TaskNotCancelable):  # the task has ended by itself
        pass


def _call(operation: Operation) -> Call:
    return Call(operation=operation, principal=ANONYMOUS, agent=AGENT_ID, dialect="kaos", mount="/")


def _to_task(result: object) -> Task:
    if not isinstance(result, Record):
        raise TypeError(f"expected a task, got {type(result).__name__}")
    return task_of(result)


def _gone() -> RuntimeError:
    return RuntimeError("this LocalTaskManager has been shut down: make another")
