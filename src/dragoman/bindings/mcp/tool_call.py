"""A tool call in progress: a task's stream translated to MCP messages, ending with the result.

    OPEN ── the task ends, or asks what cannot be asked here; the question was declined; the server stops ──► ENDED
    │  ▲    the time is over after which a call becomes a task, for clients that know tasks ────────────────►  ▲
    │  │                                                                                                       │
    │  └── the cancel was refused ──┐                                                          without a result│
    ├── the caller cancels ──► CANCELED ── the task ends ──────────────────────────────────────────────────────┘
    └── the caller leaves, from CANCELED, too ──► LEFT: whoever opened the stream decides about the task

While it is OPEN it may ask the user, once or more: the task's stream is opened anew behind the question. The states of
the task are not covered, nor where a cancel comes from (`sessions`).

Invariant: a call ends with exactly one result, unless its caller has left or has canceled it.
"""

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto

from msgspec import Struct

from dragoman.bindings.streams import UNSEEN
from dragoman.dialects.mcp import answers
from dragoman.dialects.mcp.answers import ProgressEncoder
from dragoman.engine.handler import Direct, Snapshot, Stream, StreamItem
from dragoman.model.errors import A2AError
from dragoman.model.events import ArtifactChunk, Logged, StatusChanged
from dragoman.model.ids import Clock
from dragoman.model.lifecycle import Fold
from dragoman.model.task import INTERRUPTED, TERMINAL, Record, TaskState

LONG_S = 10.0
"""A call that becomes a task later than this waits for as long as any stream does."""

QUIET_MS = 5000
"""After this long without a report, new output of the agent is reported as progress."""


class ToolCallState(Enum):
    """The state of a call."""

    OPEN = auto()
    CANCELED = auto()  # by the caller, who expects no result
    LEFT = auto()  # by the caller
    ENDED = auto()


class Wanted(Struct, frozen=True):
    """The messages that a caller asked for.

    `respond` encodes the response from the task as it stands. `token` is raw JSON; without one it wants no progress.
    `logs`: it wants the agent's status messages as log messages. At `task_at_ms` the call ends, and goes on as a task.
    """

    respond: Callable[[Record], bytes]
    token: bytes | None = None
    logs: bool = False
    task_at_ms: int | None = None


class ToolCallStream:
    """The messages of one call, as bytes: see `bindings.streams.Batches`.

    `reopen` opens the task's stream after an event, until the task ends. It is used when the agent asks a question: the
    caller's user gets the question, and the answer arrives in another request. None: a question ends the call.
    """

    retry = False
    """A call that a stopping server cuts ends with a result that says how to continue, so no retry is needed."""

    def __init__(
        self,
        stream: Stream,
        wanted: Wanted,
        clock: Clock,
        *,
        reopen: Callable[[str, int], Awaitable[Stream]] | None,
        on_end: Callable[["ToolCallStream"], None],
        until_terminal: bool,
    ) -> None:
        """`on_end` is called once, when the call ends. `until_terminal`: the stream goes on when the agent asks."""
        assert stream.head is not None  # without Manners.answers_with_message there is always a task
        self.task_id = stream.head.id
        self.agent = stream.head.agent
        self._stream = stream
        self._wanted = wanted
        self._clock = clock
        self._reopen = reopen
        self._on_end = on_end
        self._until_terminal = until_terminal
        self._progress = None if wanted.token is None else ProgressEncoder(wanted.token)
        self._fold: Fold | None = None
        self._state = ToolCallState.OPEN
        self._quiet_until_ms = 0
        self.response: bytes | None = None
        """The response with which the call has ended, if it has one."""

    @property
    def over(self) -> bool:
        """Whether nothing more is sent."""
        return self._state is ToolCallState.LEFT or self._state is ToolCallState.ENDED

    @property
    def left(self) -> bool:
        """Whether the caller left before the call had ended."""
        return self._state is ToolCallState.LEFT

    async def next(self, wait_s: float | None = None) -> Sequence[bytes] | None:
        """Return the messages since the last call: see `bindings.streams.Batches.next`."""
        if self.over:
            return None
        batch = await self._stream.next(wait_s if self._wanted.task_at_ms is None else self._wait_s(wait_s))
        if batch is None:
            return (None if self.over else self._finish()) or None
        frames: list[bytes] = []
        for item in batch:
            frames += await self._translate(item)
        if not self.over and self._fold is not None and self._becomes_task():
            frames += self._finish()
        if not batch and not frames:
            return () if self._progress is None else [self._progress.encode(None)]
        return frames or UNSEEN

    def _becomes_task(self) -> bool:
        return self._wanted.task_at_ms is not None and self._clock.now_ms() >= self._wanted.task_at_ms

    def _wait_s(self, wait_s: float | None) -> float | None:
        """How long to wait for events, so that the call becomes a task in time."""
        assert self._wanted.task_at_ms is not None
        left_s = max(0.0, (self._wanted.task_at_ms - self._clock.now_ms()) / 1000)
        if wait_s is None:
            return left_s if left_s < LONG_S else None
        return min(wait_s, left_s)

    def close(self) -> None:
        """End the call because the caller has left: see `bindings.streams.Batches.close`. The rest is for `on_end`."""
        self._end(ToolCallState.LEFT)

    def cancel(self) -> None:
        """Note that the caller cancels the call, and expects no result."""
        if self._state is ToolCallState.OPEN:
            self._state = ToolCallState.CANCELED

    def refuse_cancel(self) -> None:
        """Note that the cancel was refused: the caller gets the result after all."""
        if self._state is ToolCallState.CANCELED:
            self._state = ToolCallState.OPEN

    def decline(self) -> None:
        """End the call because the user declined the question. The task still waits."""
        self._reopen = None
        self._stream.close()

    def result(self) -> bytes | None:
        """The response with the task in its current state; None if no event has arrived yet."""
        return None if self._fold is None else self._wanted.respond(self._fold.record())

    def settle(self) -> bytes | None:
        """End the call with the task as it stands, if it has not ended. Returns the response, if it has one."""
        if not self.over:
            self._finish()
        return self.response

    def _end(self, state: ToolCallState) -> None:
        if not self.over:
            self._state = state
            self._stream.close()
            self._on_end(self)

    def _finish(self) -> list[bytes]:
        self.response = None if self._state is ToolCallState.CANCELED else self.result()
        self._end(ToolCallState.ENDED)
        return [] if self.response is None else [self.response]

    async def _translate(self, item: StreamItem) -> list[bytes]:
        if self.over:
            return []
        match item:
            case Direct():
                raise AssertionError("there is a task")
            case Snapshot(record=record):
                self._fold = Fold(record.head, record)
                return await self._enter_state(record.state)
            case Logged(event=event):
                assert self._fold is not None  # a snapshot comes first
                self._fold.add(item.seq, event)
                match event:
                    case StatusChanged():
                        return [*self._report_status(event), *await self._enter_state(event.state)]
                    case ArtifactChunk():
                        return self._report_output()
                    case _:
                        return []

    async def _enter_state(self, state: TaskState) -> list[bytes]:
        """The messages for the state that the task has reached."""
        if state in TERMINAL:
            return self._finish()
        if state in INTERRUPTED:
            return await self._ask_user(state)
        return []

    async def _ask_user(self, state: TaskState) -> list[bytes]:
        """Ask the user, or end the call if that is impossible. `auth-required` ends it: a form is not for secrets."""
        reopen, fold = self._reopen, self._fold
        assert fold is not None
        if reopen is None or state is TaskState.AUTH_REQUIRED:
            return self._finish()
        if not self._until_terminal:
            try:
                further = await reopen(self.task_id, fold.seq)
            except A2AError:
                return self._finish()  # the caller may not follow the task, or the server is stopping
            self._stream.close()
            self._stream = further
            self._until_terminal = True
            if self._state is ToolCallState.LEFT:
                further.close()
        return [answers.question(answers.question_id(self.task_id, fold.seq), fold.record().status.message)]

    def _report_status(self, event: StatusChanged) -> list[bytes]:
        if event.state is not TaskState.WORKING:
            return []
        text = answers.text_of(event.message.parts) if event.message is not None else ""
        if not text and event.progress is None:
            return []
        frames = []
        if self._progress is not None:
            self._quiet_until_ms = self._clock.now_ms() + QUIET_MS
            frames.append(self._progress.encode(event.progress, text))
        if self._wanted.logs and text:
            frames.append(answers.log(self.agent, text))
        return frames

    def _report_output(self) -> list[bytes]:
        """Report at most once per `QUIET_MS` that the agent writes output. The output itself is in the result."""
        now_ms = self._clock.now_ms()
        if self._progress is None or now_ms < self._quiet_until_ms:
            return []
        self._quiet_until_ms = now_ms + QUIET_MS
        return [self._progress.encode(None)]
