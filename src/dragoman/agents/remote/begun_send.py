"""BegunSend: the first message of a task, sent at once, and its answer if that comes whole and is a usual one.

That is the way of most messages, without what only the others need: a wait, credentials, a pool, a stream that goes on,
a state machine. It halves what a hop adds to a message (`upstream` in bench/rows.py). Whatever is unusual is left to
`UpstreamTask`, which goes on with the same call.

Invariant: the task's log, the metrics and the request are the same on both ways. Nothing of an answer is passed on
unless all of it is usual.
"""

import time
from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

from dragoman.agents.remote.canceled_send import cancel_once_named
from dragoman.agents.remote.ids import derive_message_id, find_context, make_send
from dragoman.agents.remote.pool import UpstreamPool
from dragoman.agents.remote.route import UpstreamRoute
from dragoman.client import Connection
from dragoman.client.http_transport import BegunStream
from dragoman.dialects.cards import JSONRPC
from dragoman.dialects.extensions import told_chain
from dragoman.engine.api import Run
from dragoman.engine.words import Note
from dragoman.model.errors import A2AError
from dragoman.model.events import ArtifactChunk
from dragoman.model.lifecycle import SPELLED
from dragoman.model.operations import StreamMessage
from dragoman.model.task import Task, TaskState
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, Update
from dragoman.net.errors import EgressError

_AT_WORK = (TaskState.SUBMITTED, TaskState.WORKING)


class _UsualAnswer(Struct, frozen=True):
    """A task that was completed with plain texts and nothing else: what is noted of it, and its chunks, weighed."""

    context_id: str
    note: dict[str, str]
    chunks: Sequence[tuple[ArtifactChunk, int]]


class BegunSend:
    """A first message of `run` that was sent to the upstream of `route`. `context_id` is the conversation there, and
    `began_s` the monotonic time of the send.
    """

    __slots__ = ("_route", "_run", "began_s", "connection", "context_id", "operation", "stream")

    def __init__(
        self,
        run: Run,
        route: UpstreamRoute,
        connection: Connection,
        context_id: str,
        operation: StreamMessage,
        stream: BegunStream,
    ) -> None:
        self._run = run
        self._route = route
        self.connection = connection
        self.context_id = context_id
        self.operation = operation
        self.stream = stream
        self.began_s = time.monotonic()

    async def pass_on(self) -> bool:
        """Pass on the answer, if it comes whole and is a usual one: then the task has completed.

        Else nothing is done and False is returned, and the call goes on. If the run is canceled, the upstream's task is
        canceled once the upstream names it.
        """
        try:
            await self.stream.waiting
        except BaseException:
            if not (self._run.canceled and self._route.run_beside(self._cancel())):
                self.stream.close()
            raise
        updates = self.stream.read_whole()
        answer = None if updates is None else self._find_usual(updates)
        if answer is None:
            return False
        run, sink, route = self._run, self._run.sink, self._route
        self.stream.close()
        route.health.record_answer()
        route.health.count("succeeded", time.monotonic() - self.began_s)
        run.working()
        sink.check()
        sink.mark(Note(answer.note))
        if answer.context_id:
            route.contexts.keep(run.head, self.context_id, answer.context_id)
        for chunk, weight in answer.chunks:
            waits = sink.say(chunk, weight)
            if waits is not None:
                await waits
        route.endpoint.adopt_card()
        return True

    def _find_usual(self, updates: Sequence[Update]) -> _UsualAnswer | None:
        """The answer, if it is a task that was completed with plain texts and without a word more; else None."""
        task, bounds = updates[0], self._run.bounds
        if type(task) is not Task or not task.id or task.artifacts or task.metadata or task.status.message is not None:
            return None
        task_id, state = task.id, task.status.state
        first = last = task.status.timestamp
        context_id = task.context_id
        begun: set[str] = set()
        chunks: list[tuple[ArtifactChunk, int]] = []
        for update in islice(updates, 1, None):
            if state not in _AT_WORK:
                return None
            if type(update) is ArtifactUpdate:
                artifact = update.artifact
                weight = bounds.weigh_plain(artifact)
                continues = artifact.artifact_id in begun
                if not weight or update.append is not continues or update.usage is not None:
                    return None
                begun.add(artifact.artifact_id)
                chunks.append((ArtifactChunk(artifact, update.append, update.last_chunk), weight))
            elif type(update) is StatusUpdate:
                status = update.status
                if status.message is not None or update.metadata or update.progress or update.usage is not None:
                    return None
                state = status.state
                last = status.timestamp or last
                first = first or last
            else:
                return None
            if update.task_id != task_id:
                return None
            context_id = context_id or update.context_id
        if state is not TaskState.COMPLETED or not chunks:
            return None
        note = {"task": task_id, "context": context_id or self.context_id, "said": SPELLED[state]}
        if last:
            note |= {"last": last, "first": first}
        try:
            return _UsualAnswer(context_id, bounds.note(note), chunks)
        except ValueError:
            return None

    async def _cancel(self) -> None:
        stream = self.connection.task_stream(self.operation, traceparent=self._run.traceparent, begun=self.stream)
        await cancel_once_named(stream.next(), stream, self.connection, self._route)


def begin_send(run: Run, pool: UpstreamPool) -> BegunSend | None:
    """Send the first message of a run at once. None, and nothing is sent, if that needs a wait or anything unusual."""
    route, message, head = pool.routes[0], run.message, run.head
    access = route.access
    if not pool.single or run.epoch != 1 or run.extensions or message.reference_task_ids:
        return None
    if access.for_callers or route.health.breaker.opened or not access.credentials.absent:
        return None
    connection = route.endpoint.known_connection
    if connection is None or connection.interface.binding != JSONRPC:
        return None
    context_id = find_context(route, head)
    if not context_id:
        return None
    chain = told_chain(message.metadata)
    operation = make_send(run, message, connection, chain, derive_message_id(head, 1), context_id)
    try:
        stream = connection.begin_stream(operation, traceparent=run.traceparent)
    except (A2AError, EgressError):
        return None  # it cannot be written: the other way tells why
    return None if stream is None else BegunSend(run, route, connection, context_id, operation, stream)
