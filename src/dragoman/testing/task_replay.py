"""Run an agent against the log of a task that `dragoman admin tasks record` has written.

Invariant: nothing is executed again, asked or delegated: the agent gets what is recorded, and is stopped where the
record ends. The log is compared by the same code as on a server.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import msgspec
from msgspec import Struct

from dragoman.admin.logs import RecordedTask
from dragoman.engine.api import Ended, Execute, Hear, Reject, Run, Runner
from dragoman.engine.bounds import Bounds
from dragoman.engine.runs.places import RunPlaces, WordKind, present_branch, within_first_branch
from dragoman.engine.runs.replay import (
    A_SLEEP,
    Replay,
    ReplayMismatch,
    delegation_to,
    question_name,
    question_of,
    replay_of,
    step_of,
)
from dragoman.engine.words import Ask, Delegation, Note, Say, Sleep, Step, Waiting, Working
from dragoman.model.events import ArtifactChunk, Delegated, Logged, Stepped, Submitted
from dragoman.model.lifecycle import SPELLED, fold
from dragoman.model.message import Message
from dragoman.model.principal import Principal
from dragoman.model.task import Record, TaskHead, TaskState, Usage
from dragoman.testing.run import MemorySink

REPLAY_S = 60.0
"""How long an agent may take to tell again what is recorded."""

NOTHING_MORE = "the end of the task"


class Replayed(Struct, frozen=True):
    """How far an agent tells again what is recorded. `told` counts the questions, delegations and steps that it has.

    If it does not fit, `place` says where, `recorded` what is recorded there, and `came` what the agent told or did.
    """

    told: int
    place: str = ""
    recorded: str = ""
    came: str = ""

    @property
    def fits(self) -> bool:
        """Whether the task could go on with this agent."""
        return not self.came

    def __str__(self) -> str:
        if self.fits:
            return f"the agent tells all that is recorded again ({self.told})"
        return f"after {self.told}, at {self.place}: {self.recorded} is recorded, but {self.came} came"


async def replay(recorded: str | Path | bytes, agent: Runner) -> Replayed:
    """Run the agent against a recorded task: the path of a file that `dragoman admin tasks record` wrote, or its bytes.

    Raises ValueError for what is no recorded task, and TimeoutError if the agent takes longer than a minute.
    """
    content = recorded if isinstance(recorded, bytes) else await asyncio.to_thread(Path(recorded).read_bytes)
    try:
        recording = msgspec.json.decode(content, type=RecordedTask)
    except msgspec.MsgspecError as error:
        raise ValueError(f"this is no task that `dragoman admin tasks record` wrote: {error}") from error
    if recording.format != 1 or not recording.events or not isinstance(recording.events[0], Submitted):
        raise ValueError("this is no task that this version of `dragoman admin tasks record` wrote")
    head, log = recording.head, [Logged(seq, event) for seq, event in enumerate(recording.events, 1)]
    message, known = replay_of(head, log, crashed=True)
    sink = ReplaySink(head, message, known, fold(head, None, log))
    run = Run(head, message, sink, Bounds(), principal=Principal(head.owner))
    work = asyncio.ensure_future(_run(agent, run, sink))
    sink.stops(work)
    try:
        async with asyncio.timeout(REPLAY_S):
            await asyncio.wait((work,))
    finally:
        work.cancel()
    if not work.cancelled():
        work.result()
    return sink.outcome()


async def _run(agent: Runner, run: Run, sink: "ReplaySink") -> None:
    """Run the agent to its end, and compare that with the recorded one."""
    with within_first_branch():
        try:
            await agent.run(run)
            sink.compare_end(TaskState.COMPLETED, "")
        except Reject as reject:
            sink.compare_end(TaskState.REJECTED, str(reject))
        except Ended as ended:
            sink.compare_end(ended.state, "")
        except ReplayMismatch:
            pass  # the sink knows
        except Exception as error:  # noqa: BLE001  it is what the agent came to
            sink.compare_end(TaskState.FAILED, f"{type(error).__name__}: {error}")


class ReplaySink(MemorySink):
    """See `engine.api.Sink`. Words that have an answer get the recorded one."""

    def __init__(self, head: TaskHead, message: Message, known: Replay, record: Record) -> None:
        super().__init__(head, message)
        self._replay = known
        self._record = record
        self._places = RunPlaces(counted=not known.places)
        self._told = 0
        self._mismatch: ReplayMismatch | None = None
        self._all_told = asyncio.Event()
        self._work: asyncio.Future[None] | None = None

    def stops(self, work: "asyncio.Future[None]") -> None:
        """Stop this work where the record ends."""
        self._work = work

    def outcome(self) -> Replayed:
        """How far the agent has come."""
        found = self._mismatch
        if found is None and self._replay.active:
            found = self._replay.left()
        if found is None:
            return Replayed(self._told)
        return Replayed(self._told, found.place, found.recorded, found.came)

    def compare_end(self, state: TaskState, why: str) -> None:
        """The agent's run is over."""
        if self._mismatch is None and not self._replay.active and self._record.terminal:
            recorded = self._record.state
            if state is not recorded and recorded is not TaskState.CANCELED:
                came = SPELLED[state] + (f" ({why})" if why else "")
                self._note(ReplayMismatch("the end", SPELLED[recorded], came))
        elif self._mismatch is None and why:
            self._note(ReplayMismatch("the end", "more", f"{SPELLED[state]} ({why})"))

    # -- engine.api.Sink -----------------------------------------------------------------------------------------------

    @property
    def record(self) -> Record:
        """The task as it stood when it was recorded."""
        return self._record

    def say(self, word: Say | ArtifactChunk, weight: int = 0) -> None:
        """See `engine.api.Sink`. It is not compared: a new run may say it in other words."""

    def mark(self, word: Working | Waiting | Note | Usage) -> None:
        """See `engine.api.Sink`. It is not compared."""

    async def ask(self, word: Ask) -> Message:
        """See `engine.api.Sink`."""
        with self._tell("question", question_name(word.parts), word.place) as (place, _):
            answer = self._replay.answer(word.parts, place)
            if answer is None:
                await self._stop(place, question_of(word.parts))
            return answer

    async def delegate(self, order: Delegation, hear: Hear | None = None) -> Delegated:
        """See `engine.api.Sink`."""
        given = "" if order.number else None
        with self._tell("delegation", order.agent, given) as (place, number):
            outcome = self._replay.delegated(order.number or number, order.agent, place)
            if outcome is None:
                await self._stop(place, delegation_to(order.agent))
            return outcome

    async def step(self, word: Step, execute: Execute) -> Stepped:
        """See `engine.api.Sink`."""
        with self._tell("step", word.name, key=word.key) as (place, _):
            outcome = self._replay.stepped(word, place)
            if outcome is None:
                await self._stop(place, step_of(word.name, word.key))
            return outcome

    async def sleep(self, word: Sleep) -> None:
        """See `engine.api.Sink`. It takes no time."""
        with self._tell("sleep", "sleep") as (place, _):
            if self._replay.slept(place) is None:
                await self._stop(place, A_SLEEP)

    async def patched(self, name: str) -> bool:
        """See `engine.api.Sink`."""
        return self._replay.knows_patch(name, present_branch()) is not False

    # -- within --------------------------------------------------------------------------------------------------------

    @contextmanager
    def _tell(self, kind: WordKind, name: str, given: str | None = None, key: str = "") -> Iterator[tuple[str, int]]:
        """As `RunPlaces.tell`. A word has been told again once the block is over; one that differs is kept."""
        try:
            with self._places.tell(kind, name, given, key) as told:
                yield told
        except ReplayMismatch as mismatch:
            self._note(mismatch)
            raise
        self._told += 1
        if not self._replay.active:
            self._all_told.set()

    def _note(self, mismatch: ReplayMismatch) -> ReplayMismatch:
        """Keep the first difference."""
        self._mismatch = self._mismatch or mismatch
        self._all_told.set()
        return mismatch

    async def _stop(self, place: str, came: str) -> NoReturn:
        """Wait until all branches have told what is recorded of them, and stop there: this word is not recorded."""
        if self._record.state is TaskState.COMPLETED:
            raise self._note(ReplayMismatch(f"place {place}", NOTHING_MORE, came))
        if self._replay.active and self._mismatch is None:
            await self._all_told.wait()
        if self._work is not None:
            self._work.cancel()
        raise asyncio.CancelledError
