"""Waiting for a task: by its stream where the agent streams, else by asking for its state (a2a-cli §7).

Invariant: a wait ends as soon as the task ends or waits for its caller. A lost stream continues after its last event
once the agent answers. One that cannot be had, or cannot continue, is replaced by polling. Beside one that begins or
continues and then says nothing, the agent is asked for the state.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from msgspec.structs import asdict, replace

from dragoman.cli.a2a.output import warn
from dragoman.cli.a2a.session import POLL_S, CommandSession
from dragoman.cli.a2a.settings import seconds
from dragoman.client import HttpRefusal, NoAnswer, StreamLost
from dragoman.client.stream import TaskStream
from dragoman.model.errors import A2AError, MethodNotFound, Unavailable, UnsupportedOperation
from dragoman.model.message import Message
from dragoman.model.operations import SendMessage, StreamMessage, Subscribe
from dragoman.model.task import INTERRUPTED, TERMINAL, Task, TaskState
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, Update

OnUpdate = Callable[[Update], None]
"""Is told each update of a stream, in order."""

BACKOFF, BACKOFF_MAX = 1.5, 5.0
"""Polls become rarer by this factor, up to this multiple of the interval."""

AWAY_S = 120.0
"""How long an agent may be away while a command waits: long enough for a restart of it, or of its proxy."""

SILENT_S = 10.0
"""How long a stream may say nothing at its beginning, or after a break, before the agent is asked for the state."""

_NO_STREAM = (UnsupportedOperation, MethodNotFound)
"""Errors of an agent that does not stream, whatever its card says."""


async def send_and_wait(
    session: CommandSession, operation: SendMessage, *, on_update: OnUpdate | None = None
) -> Task | Message:
    """Send a message, wait until its task ends or waits for its caller, and return the task as it stands then.

    With `on_update` each update is reported as it comes; where the agent does not stream, the answer is the only one.
    A message that an agent which does not stream has refused is sent once more without a stream. One that names a task
    is not, if the refusal may be about that task (a2a-cli §8.1).
    """
    if streams(session):
        stream = session.connection.task_stream(StreamMessage(**asdict(operation)))
        try:
            return await _follow(session, stream, on_update)
        except _NO_STREAM as error:
            if session.task.task_id:
                return await _finish(session, on_update)
            if operation.message.task_id and not isinstance(error, MethodNotFound):
                raise  # it is also the refusal of a message to a task that has ended (A2A 1.0 §3.1.1)
        except NoAnswer as error:
            if not session.task.task_id:
                raise
            return await _outlast(session, error, on_update, session.task.task_id)
    answer = await session.connection.ask(replace(operation, return_immediately=True))
    assert isinstance(answer, Task | Message)  # the client checks the type of an answer to this operation
    note(session, answer)
    if isinstance(answer, Task) and answer.status.state not in TERMINAL | INTERRUPTED:
        answer = await poll(session, answer.id)
    if on_update is not None:
        on_update(answer)
    return answer


async def subscribe_and_wait(session: CommandSession, task_id: str, *, on_update: OnUpdate | None = None) -> Task:
    """Follow an existing task until it ends or waits for its caller. A task that has ended is returned at once."""
    if not streams(session):
        return await _finish(session, on_update, task_id)
    try:
        answer = await _subscribe(session, task_id, None, on_update)
    except _NO_STREAM:
        return await _finish(session, on_update, task_id)  # it has ended, which nobody can subscribe to
    except NoAnswer as error:
        if not session.task.task_id:
            raise
        return await _outlast(session, error, on_update, task_id)
    return answer


async def poll(
    session: CommandSession, task_id: str, *, history_length: int | None = None, any_state: bool = False
) -> Task:
    """Ask for a task until it has ended or waits for its caller, or with `any_state` until the agent answers.

    An agent that has told of the task may be away for AWAY_S, for example to be restarted; it is asked again.
    """
    interval_s = seconds(session.settings, "poll-interval")
    interval_s = POLL_S if interval_s is None else max(interval_s, 0.01)
    wait_s, heard_s = interval_s, asyncio.get_running_loop().time()
    while True:
        try:
            task = await session.connection.get(task_id, history_length=history_length)
        except (NoAnswer, HttpRefusal, Unavailable) as error:
            refused = isinstance(error, HttpRefusal) and error.status < 500
            if refused or not session.task.task_id or asyncio.get_running_loop().time() - heard_s > AWAY_S:
                raise
            said = f"no answer: {error}"
        else:
            heard_s = asyncio.get_running_loop().time()
            note(session, task)
            if task.status.state in TERMINAL | INTERRUPTED:
                return task
            said = task.status.state
            if any_state:
                return task
        if session.debug is not None:
            session.debug.note(f"{said}; asking again in {wait_s:g} s")
        await asyncio.sleep(wait_s)
        wait_s = min(wait_s * BACKOFF, interval_s * BACKOFF_MAX)


def streams(session: CommandSession) -> bool:
    """Whether the agent's card says that it streams; without a card, whether the dialect does."""
    card = session.card
    offered = True if card is None else bool(card.capabilities.streaming)
    return offered and session.connection.tongue.streams


def note(session: CommandSession, update: Update) -> None:
    """Remember the ids and the state that an update tells, and print the ids once, before any wait."""
    known = session.task
    if isinstance(update, Task):
        task_id, context_id, state = update.id, update.context_id, update.status.state
    elif isinstance(update, Message):
        task_id, context_id, state = "", update.context_id or "", None
    else:
        task_id, context_id = update.task_id, update.context_id
        state = update.status.state if isinstance(update, StatusUpdate) else None
    first = known.announces and not known.task_id
    known.task_id = task_id or known.task_id
    known.context_id = context_id or known.context_id
    known.state = state or known.state
    if first and known.task_id and known.state not in TERMINAL | INTERRUPTED:
        warn(f"task {known.task_id}, context {known.context_id}")


def outcome_words(state: TaskState | None) -> str:
    """Describe a state that is no plain success; empty for one that is."""
    words = {
        TaskState.FAILED: "the task failed",
        TaskState.REJECTED: "the agent rejected the task",
        TaskState.CANCELED: "the task was canceled",
        TaskState.INPUT_REQUIRED: "the agent waits for an answer",
        TaskState.AUTH_REQUIRED: "the agent waits until its caller has authenticated",
    }
    return words.get(state, "") if state is not None else ""


async def watch_silence(
    updates: AsyncGenerator[Update, None], doubted: Callable[[], bool], look: Callable[[], Awaitable[Task | None]]
) -> AsyncGenerator[Update, None]:
    """Yield the updates of a stream; close it once `look` returns a task, which is then the last update.

    `look` is asked each time that the stream has been silent for SILENT_S while it is `doubted`: an agent may accept
    the id of an event, and then send nothing that follows. No update waits for it. The caller must close this.
    """
    async with aclosing(updates):
        while True:
            turn = asyncio.ensure_future(anext(updates, None))
            looking: asyncio.Future[Task | None] | None = None
            try:
                while not turn.done():
                    await asyncio.wait((turn,), timeout=SILENT_S)
                    if turn.done() or not doubted():
                        continue
                    looking = asyncio.ensure_future(look())
                    await asyncio.wait((turn, looking), return_when=asyncio.FIRST_COMPLETED)
                    if not turn.done() and (found := looking.result()) is not None:
                        yield found
                        return
            finally:
                if left := [each for each in (turn, looking) if each is not None and not each.done()]:
                    for each in left:
                        each.cancel()
                    await asyncio.wait(left)
            update = turn.result()
            if update is None:
                return
            yield update


def _updates(
    session: CommandSession, stream: TaskStream, task_id: str = "", *, resumed: bool = False
) -> AsyncGenerator[Update, None]:
    """The updates of a stream. The last one is the task in its end, if the stream does not say that.

    A message whose task has no id yet can only be waited for.
    """

    async def look() -> Task | None:
        if not (known := task_id or session.task.task_id):
            return None
        try:
            task = await session.connection.get(known)
        except (A2AError, NoAnswer, HttpRefusal):
            return None  # the stream will find out as well
        asks = task_id or stream.fold.status is not None  # else it may be the question that the message answers
        return task if task.status.state in (TERMINAL | INTERRUPTED if asks else TERMINAL) else None

    def doubted() -> bool:
        return resumed or stream.resumptions > 0 or stream.fold.status is None

    return watch_silence(stream.updates(), doubted, look)


async def _subscribe(session: CommandSession, task_id: str, after: str | None, on_update: OnUpdate | None) -> Task:
    """Follow a task until it ends or waits for its caller: A2A 1.0 keeps a subscription open at a question (§3.1.6)."""
    stream = session.connection.task_stream(Subscribe(id=task_id), after=after)
    async with aclosing(_updates(session, stream, task_id, resumed=after is not None)) as updates:
        async for update in updates:
            note(session, update)
            if on_update is not None:
                on_update(update)
            if not isinstance(update, Message | ArtifactUpdate) and update.status.state in INTERRUPTED:
                break  # `session.task` may know of a question whose event is still to come
    return await _read_final(session, stream)


async def _follow(session: CommandSession, stream: TaskStream, on_update: OnUpdate | None) -> Task | Message:
    message: Message | None = None
    async with aclosing(_updates(session, stream)) as updates:
        async for update in updates:
            note(session, update)
            if isinstance(update, Message):
                message = update
            if on_update is not None:
                on_update(update)
    if message is not None and not session.task.task_id:
        return message
    return await _read_final(session, stream)


async def _outlast(session: CommandSession, error: NoAnswer, on_update: OnUpdate | None, task_id: str) -> Task:
    """Return the task in its end although its stream was lost, with the updates that follow if its events have ids."""
    while isinstance(error, StreamLost) and (after := error.event_id):
        warn("the agent does not answer: its stream continues when it does")
        await poll(session, task_id, any_state=True)
        try:
            return await _subscribe(session, task_id, after, on_update)
        except (*_NO_STREAM, HttpRefusal, Unavailable):
            break  # such as an agent that resumes no stream of a task that has ended
        except NoAnswer as again:
            error = again
            if isinstance(again, StreamLost) and again.event_id == after:
                break  # the agent answers, but does not resume
    warn(f"the stream was lost, and the command asks for the state instead: {error}")
    return await _finish(session, on_update, task_id)


async def _read_final(session: CommandSession, stream: TaskStream) -> Task:
    """Return the task in the agent's own words; if the agent cannot be asked any more, as its stream told it."""
    told = stream.fold.task()
    try:
        task = await session.connection.get(session.task.task_id)
    except (A2AError, NoAnswer):
        if told is None:
            raise
        return told
    note(session, task)
    return task


async def _finish(session: CommandSession, on_update: OnUpdate | None, task_id: str = "") -> Task:
    task = await poll(session, task_id or session.task.task_id)
    if on_update is not None:
        on_update(task)
    return task
