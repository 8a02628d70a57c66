"""WorkerAgent: an agent whose work is done by worker processes, which lease its tasks and report on them.

Invariant: at most one worker has a task. A lease that ran out, was given back or was canceled never counts again. A
worker's words reach the task through the run's own coroutine, in the order in which they were sent, and only while the
run lives.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any, assert_never

from msgspec import Struct
from msgspec.structs import replace

from dragoman.agents.content import parts_of, sound_artifact
from dragoman.agents.lifecycle import Finding
from dragoman.engine.api import Delegation, DelegationFailed, Ended, Run, RunAgain
from dragoman.engine.files import same_parts
from dragoman.engine.replay import ReplayMismatch
from dragoman.model.card import Profile
from dragoman.model.errors import InvalidParams, LeaseLost, Unavailable
from dragoman.model.events import Delegated
from dragoman.model.ids import new_id
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.operations import CompleteTask, UpdateStatus
from dragoman.model.task import INTERRUPTED, TERMINAL, TaskState, Usage

LEASE_S = 30.0
"""Seconds that a worker may be silent before its task goes to another."""

SEEN_S = 30.0
"""Seconds after the last word of a worker during which its agent counts as online (DESIGN §6)."""

ENDED_KEPT = 4096
"""Most leases remembered after their task ended, to answer calls that their workers still make."""

WAITS = "the task waits for its caller's message: its worker goes on when that has come"
NO_WORKER = "no worker has asked for work lately"

QUESTIONS = {
    TaskState.INPUT_REQUIRED: "More input is needed.",
    TaskState.AUTH_REQUIRED: "Authentication is needed.",
}
"""The question when a worker sends only the state."""


class Say(Struct, frozen=True):
    """A report while `working`; an empty one only carries the usage."""

    parts: tuple[Part, ...] = ()
    progress: tuple[int, int] | None = None
    metadata: dict[str, Any] | None = None


class Give(Struct, frozen=True):
    """An artifact, or a chunk of one."""

    artifact: Artifact
    append: bool = False
    last_chunk: bool = True


class AskCaller(Struct, frozen=True):
    """A question to the caller. `number` counts those of a lease, 0: a new one. `note` is stored with it."""

    parts: tuple[Part, ...]
    auth: bool = False
    number: int = 0
    note: dict[str, str] | None = None


class Hand(Struct, frozen=True):
    """A task for another agent of the server. Its number is that of the order."""

    order: Delegation


class EndTask(Struct, frozen=True):
    """The end of the task, with its last artifacts."""

    state: TaskState
    parts: tuple[Part, ...] = ()
    artifacts: tuple[Artifact, ...] = ()


class Lost(Struct, frozen=True):
    """No worker has the task any more."""


Word = Say | Give | AskCaller | Hand | EndTask


class PendingWord(Struct, eq=False):
    """A worker's word on its way to the run. `taken` is done when the run has taken it; the worker waits for that."""

    word: Word
    usage: Usage | None
    number: int
    taken: "asyncio.Future[None]"


class Lease(Struct, eq=False):
    """One delivery of a task. `reported` is the number of the newest word; `answers` are those to its questions."""

    token: str
    worker: str
    expiry: asyncio.TimerHandle | None = None
    reported: int = 0
    answers: list[Message] = []  # msgspec creates an empty default anew for each instance
    waiting: list["asyncio.Future[None]"] = []
    over: bool = False

    def wake(self) -> None:
        """Answer the waiting heartbeats, because there is news."""
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


class Offer:
    """A run that workers may take: its lease, if a worker has it, and the worker's words.

    `first`: nobody has worked on the task before. `leased`: a worker has had it since the run began.
    """

    __slots__ = ("asked", "first", "handed", "inbox", "lease", "leased", "replays", "run")

    def __init__(self, run: Run) -> None:
        self.run = run
        self.first = run.epoch <= 1
        self.leased = False
        self.replays = False
        """Whether the worker repeats its questions in the same order, as `dragoman worker` does."""
        self.lease: Lease | None = None
        self.asked: Sequence[Part] | None = None
        """The open question."""
        self.handed: dict[int, asyncio.Task[Delegated | None]] = {}
        """The tasks given to other agents, by number. A result of None: the order differs from the recorded one."""
        self.inbox: asyncio.Queue[PendingWord | Lost | Exception] = (
            asyncio.Queue()
        )  # a worker waits for each of its words


class Beat(Struct, frozen=True):
    """The answer to a heartbeat. `answers` are those that the worker has not seen."""

    cancel: bool
    answers: tuple[Message, ...] = ()


class Leases:
    """The offers of one agent, and the workers that wait for them."""

    def __init__(self, lease_s: float = LEASE_S, seen_s: float = SEEN_S) -> None:
        self.lease_s = lease_s
        self._seen_s = seen_s
        self._seen_at: float | None = None
        self._offers: dict[str, Offer] = {}
        self._waiting: deque[Offer] = deque()
        self._leases: dict[str, tuple[Offer, Lease]] = {}
        self._ended: dict[str, tuple[str, bool]] = {}
        self._idle: dict[asyncio.Future[None], None] = {}
        self._closed = False

    @property
    def seen(self) -> bool:
        """Whether a worker waits for work, or has called lately."""
        if self._idle:
            return True
        return self._seen_at is not None and _now() - self._seen_at <= self._seen_s

    def saw(self) -> None:
        """Record that a worker has called."""
        self._seen_at = _now()

    def open(self) -> None:
        """Give out work from now on."""
        self._closed = False

    def close(self) -> None:
        """Give out no more work, since the server is stopping. Tasks without a worker are left to the next start."""
        self._closed = True
        for offer in tuple(self._waiting):
            offer.inbox.put_nowait(Lost())
        self._waiting.clear()
        for idle in self._idle:
            if not idle.done():
                idle.set_result(None)
        for _, lease in self._leases.values():
            lease.wake()

    # -- for the agent -----------------------------------------------------------------------------------------------

    def add(self, offer: Offer) -> None:
        """Offer a run to the first worker that asks."""
        self._offers[offer.run.head.id] = offer
        if self._closed:
            offer.inbox.put_nowait(Lost())
            return
        self._waiting.append(offer)
        self._wake_one()

    def remove(self, offer: Offer, *, canceled: bool) -> None:
        """Withdraw the offer of a run that is over. With `canceled`, its worker learns of it at its next heartbeat."""
        if self._offers.get(offer.run.head.id) is offer:
            del self._offers[offer.run.head.id]
        if offer in self._waiting:
            self._waiting.remove(offer)
        lease = self._end_lease(offer)
        if lease is not None:
            self._ended[lease.token] = offer.run.head.id, canceled
            while len(self._ended) > ENDED_KEPT:
                del self._ended[next(iter(self._ended))]
        while not offer.inbox.empty():
            if isinstance(told := offer.inbox.get_nowait(), PendingWord) and not told.taken.done():
                told.taken.set_exception(LeaseLost())
        if lease is not None:
            lease.wake()

    # -- for workers -------------------------------------------------------------------------------------------------

    async def take(self, worker: str, wait_s: float, *, replays: bool = False) -> Offer | None:
        """Lease the task that has waited longest; None if there is none for `wait_s`.

        Raises Unavailable when the server is stopping.
        """
        self.saw()
        if self._closed:
            raise Unavailable("the server is stopping: ask again in a moment", 1)
        deadline = _now() + wait_s
        while (offer := self._next()) is None and not self._closed and (rest := deadline - _now()) > 0:
            idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle[idle] = None
            try:
                async with asyncio.timeout(rest):
                    await idle
            except TimeoutError:
                pass
            except asyncio.CancelledError:
                self._idle.pop(idle, None)
                self._wake_one()
                raise
            finally:
                self._idle.pop(idle, None)
                self.saw()
        if offer is not None:
            lease = offer.lease = Lease(f"{offer.run.epoch}.{secrets.token_urlsafe(12)}", worker)
            offer.leased = True
            offer.replays = replays
            self._leases[lease.token] = offer, lease
            self._renew(offer, lease)
        return offer

    async def beat(self, token: str, wait_s: float, known: int) -> Beat:
        """Renew a lease, and wait up to `wait_s` for news: a cancel, or an answer beyond the `known` ones.

        Raises LeaseLost.
        """
        self.saw()
        if self._was_canceled(token):
            return Beat(cancel=True)
        offer, lease = self._find(token)
        self._renew(offer, lease)
        if not lease.over and len(lease.answers) <= known and wait_s > 0 and not self._closed:
            news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            lease.waiting.append(news)
            try:
                async with asyncio.timeout(min(wait_s, self.lease_s / 2)):
                    await news
            except TimeoutError:
                pass
            finally:
                if news in lease.waiting:
                    lease.waiting.remove(news)
        if lease.over:
            if self._was_canceled(token):
                return Beat(cancel=True)
            raise LeaseLost
        self._renew(offer, lease)
        return Beat(cancel=False, answers=tuple(lease.answers[known:]))

    def release(self, token: str) -> None:
        """Give a task back, so that another worker gets it at once. Raises LeaseLost."""
        self.saw()
        offer, _ = self._find(token)
        self._lose(offer)

    def find_held(self, token: str) -> Offer:
        """The offer that a lease belongs to. Raises LeaseLost."""
        self.saw()
        return self._find(token)[0]

    def holds(self, token: str) -> bool:
        """Whether the lease is in force."""
        return token in self._leases

    def task_of(self, token: str) -> str:
        """The id of the lease's task. An ended lease counts if its worker was the last. Raises LeaseLost."""
        self.saw()
        if token in self._ended and not self._was_canceled(token):
            return self._ended[token][0]
        return self._find(token)[0].run.head.id

    def find_offer(self, task_id: str, token: str | None) -> Offer | None:
        """The offer that a report belongs to; None if the task is not offered now.

        A report may omit the lease only while at most one worker can have it. Raises LeaseLost, or InvalidParams.
        """
        self.saw()
        if token is not None:
            offer, _ = self._find(token)
            if offer.run.head.id != task_id:
                raise LeaseLost
            return offer
        offer_or_none = self._offers.get(task_id)
        if offer_or_none is not None and offer_or_none.leased and not offer_or_none.first:
            raise InvalidParams("lease", "is needed, since the task was delivered again: send the one you got")
        return offer_or_none

    # -- inside ------------------------------------------------------------------------------------------------------

    def _was_canceled(self, token: str) -> bool:
        return token in self._ended and self._ended[token][1]

    def _next(self) -> Offer | None:
        return self._waiting.popleft() if self._waiting and not self._closed else None

    def _wake_one(self) -> None:
        if not self._waiting:
            return
        for idle in self._idle:
            if not idle.done():
                idle.set_result(None)
                return

    def _find(self, token: str) -> tuple[Offer, Lease]:
        held = self._leases.get(token)
        if held is None:
            raise LeaseLost
        return held

    def _renew(self, offer: Offer, lease: Lease) -> None:
        if lease.over:
            return
        if lease.expiry is not None:
            lease.expiry.cancel()
        lease.expiry = asyncio.get_running_loop().call_later(self.lease_s, self._lose, offer)

    def _lose(self, offer: Offer) -> None:
        """Take the task away from its worker. While a question is open, no other worker is needed."""
        lease = self._end_lease(offer)
        if lease is not None:
            lease.wake()
        if offer.asked is None:
            offer.inbox.put_nowait(Lost())

    def _end_lease(self, offer: Offer) -> Lease | None:
        lease, offer.lease = offer.lease, None
        if lease is not None:
            lease.over = True
            if lease.expiry is not None:
                lease.expiry.cancel()
            del self._leases[lease.token]
        return lease


class WorkerAgent:
    """A card whose tasks are leased by workers. Satisfies `Runner`, `Reported` and `Dependent`.

    With `queues`, tasks are accepted while no worker is there; without, they are refused (`offline`).
    """

    def __init__(
        self, profile: Profile, *, queues: bool = False, lease_s: float = LEASE_S, seen_s: float = SEEN_S
    ) -> None:
        self.profile = profile
        self.direct = False
        self.restartable = True
        self.one_message = False
        self.leases = Leases(lease_s, seen_s)
        self._queues = queues

    @property
    def offline(self) -> bool:
        """Whether sends are refused, because no worker has been seen lately."""
        return not (self._queues or self.leases.seen)

    @property
    def degraded(self) -> str | None:
        """Why tasks wait: no worker has been seen lately. Else None."""
        return None if self.leases.seen else NO_WORKER

    async def check(self) -> AsyncIterator[Finding]:
        """Say how to start a worker. Whether one works shows only where it runs, or on the server that it calls."""
        runs = "dragoman worker MODULE:OBJECT --server URL"
        yield Finding(True, f"worker processes do its tasks: {runs}, where the object has the id {self.profile.id}")
        if not self._queues:
            yield Finding(True, 'while none is there, sends are refused (offline = "queue" would keep them)')

    def succeed(self, former: "WorkerAgent") -> None:
        """Replace an agent with the same id, and take over its workers, leases and tasks."""
        former.leases.lease_s = self.leases.lease_s
        self.leases = former.leases

    async def run(self, run: Run) -> None:
        """Offer the task to workers until one has ended it."""
        offer = Offer(run)
        self.leases.add(offer)
        canceled = True
        try:
            async with asyncio.TaskGroup() as questions:
                ended = await self._serve(offer, questions)
                for handed in offer.handed.values():
                    handed.cancel()  # the task ends with this one
            canceled = False
        finally:
            self.leases.remove(offer, canceled=canceled)
        match ended:
            case Lost():
                raise RunAgain
            case EndTask(state, parts):
                raise Ended(state, parts)
            case _:
                raise ended

    async def _serve(self, offer: Offer, questions: asyncio.TaskGroup) -> EndTask | Lost | Exception:
        """Carry out the workers' words, one after the other, until the run is over."""
        while True:
            told = await offer.inbox.get()
            if not isinstance(told, PendingWord):
                return told
            try:
                ends = await self._carry_out(offer, told, questions)
            except InvalidParams as fault:
                if not told.taken.done():
                    told.taken.set_exception(fault)
                continue
            except BaseException:
                if not told.taken.done():
                    told.taken.set_exception(LeaseLost())
                raise
            if not told.taken.done():
                told.taken.set_result(None)
            if ends is not None:
                return ends

    async def _carry_out(self, offer: Offer, told: PendingWord, questions: asyncio.TaskGroup) -> EndTask | None:
        run, word, lease = offer.run, told.word, offer.lease
        if lease is not None and 0 < told.number <= lease.reported:
            return None  # a repeated word: its answer was lost
        if offer.asked is not None:
            if isinstance(word, AskCaller) and word.parts == offer.asked:
                return None
            raise InvalidParams("id", WAITS)
        if lease is not None:
            lease.reported = max(told.number, lease.reported)
        if not offer.replays:
            run.caught_up()
        if told.usage is not None:
            run.usage(told.usage)
        match word:
            case Say():
                if _says(word) and (told.number or _adds(run, word)):
                    await run.status(word.parts, progress=word.progress, metadata=word.metadata)
            case Give(artifact, append, last_chunk):
                await run.artifact(artifact, append=append, last_chunk=last_chunk)
            case AskCaller(_, _, number) if lease is not None and 0 < number <= len(lease.answers):
                pass  # the answer arrived while the question was repeated
            case AskCaller():
                offer.asked = word.parts
                questions.create_task(self._ask(offer, word))
                await asyncio.sleep(0)  # lets `_ask` begin and put the question
                await run.written()
            case Hand(order):
                if order.number not in offer.handed:
                    offer.handed[order.number] = questions.create_task(self._delegate(offer, order))
            case EndTask(_, _, artifacts):
                for artifact in artifacts:
                    await run.artifact(artifact, append=False, last_chunk=True)
                return word
            case _:
                assert_never(word)
        return None

    async def _ask(self, offer: Offer, question: AskCaller) -> None:
        """Wait for the caller's answer, and give it to the worker's next heartbeat. Without a worker the run ends."""
        try:
            if question.note:
                offer.run.note(**question.note)
            answer = await offer.run.ask(question.parts, auth=question.auth)
        except ReplayMismatch as mismatch:
            offer.inbox.put_nowait(mismatch)
            return
        offer.asked = None
        if offer.lease is not None:
            offer.lease.answers.append(answer)
            offer.lease.wake()
        elif offer.leased:
            offer.inbox.put_nowait(Lost())

    async def _delegate(self, offer: Offer, order: Delegation) -> Delegated | None:
        try:
            return await offer.run.delegate(order)
        except DelegationFailed as failed:
            return failed.delegated
        except ReplayMismatch as mismatch:
            offer.inbox.put_nowait(mismatch)
            return None

    # -- for workers -------------------------------------------------------------------------------------------------

    async def tell(self, offer: Offer, word: Word, *, usage: Usage | None = None, number: int = 0) -> None:
        """Hand a worker's word to the run. Returns once the run has taken it.

        A word whose `number` is not greater than that of an earlier one of the same lease is a repetition of that word.
        Raises InvalidParams, or LeaseLost if the run ended first.
        """
        told = PendingWord(word, usage, number, asyncio.get_running_loop().create_future())
        offer.inbox.put_nowait(told)
        await told.taken

    async def ask(self, token: str, question: AskCaller, number: int, wait_s: float) -> Message | None:
        """Ask the lease's question with that number (0: the next one), and wait for the answer.

        None if no answer comes within `wait_s`: ask again with the same number. Raises InvalidParams, or LeaseLost.
        """
        offer = self.leases.find_held(token)
        answered = 0 if offer.lease is None else len(offer.lease.answers)
        number = number or answered + 1
        if number > answered + 1:
            raise InvalidParams("question", f"the next one has the number {answered + 1}")
        if number > answered:
            await self.tell(offer, replace(question, number=number))
        beat = await self.leases.beat(token, wait_s, number - 1)
        if beat.cancel:
            raise LeaseLost
        return beat.answers[0] if beat.answers else None

    async def delegate(self, token: str, order: Delegation, wait_s: float) -> Delegated | None:
        """Give the lease's order with that number (0: the next one) to another agent, and wait for the outcome.

        None if there is none within `wait_s`: ask again with the same number. Raises LeaseLost.
        """
        offer = self.leases.find_held(token)
        number = order.number or len(offer.handed) + 1
        if number > len(offer.handed) + 1:
            raise InvalidParams("delegation", f"the next one has the number {len(offer.handed) + 1}")
        if number not in offer.handed:
            await self.tell(offer, Hand(replace(order, number=number)))
        await self.leases.beat(token, 0, 0)
        handed = offer.handed[number]
        await asyncio.wait((handed,), timeout=min(wait_s, self.leases.lease_s / 2))
        if (await self.leases.beat(token, 0, 0)).cancel or (handed.done() and handed.cancelled()):
            raise LeaseLost
        return handed.result() if handed.done() else None

    async def report(self, report: CompleteTask | UpdateStatus) -> None:
        """See `engine.api.Reported`."""
        word = word_of(report)
        offer = self.leases.find_offer(report.id, report.lease)
        if offer is None:
            raise Unavailable("nobody can report on the task at this moment: try again", 1)
        await self.tell(offer, word)
        if isinstance(word, Say):
            await offer.run.written()


def _now() -> float:
    return asyncio.get_running_loop().time()


def word_of(report: CompleteTask | UpdateStatus) -> Word:
    """Convert a report by BeeOS' methods to a word. Raises InvalidParams."""
    if isinstance(report, CompleteTask):
        return EndTask(TaskState.COMPLETED, artifacts=artifacts_of(report.artifacts))
    parts = sound_parts(report.parts, "status.message")
    state, progress = report.state, report.progress
    if state in TERMINAL:
        return EndTask(state, parts)
    if state in INTERRUPTED:
        return AskCaller(parts or (Part(text=QUESTIONS[state]),), auth=state is TaskState.AUTH_REQUIRED)
    if state is not TaskState.WORKING:
        raise InvalidParams("status.state", "must be working, input-required, auth-required, or one that ends the task")
    if progress is not None and progress.message and not parts:
        parts = (Part(text=progress.message),)
    return Say(parts, None if progress is None else (progress.current, progress.total))


def artifacts_of(given: Sequence[Artifact]) -> tuple[Artifact, ...]:
    """Check the artifacts that a worker gives. Those without an id get one. Raises InvalidParams."""
    made: list[Artifact] = []
    for index, artifact in enumerate(given):
        named = replace(artifact, artifact_id=artifact.artifact_id or new_id(), parts=_unbound(artifact.parts))
        try:
            made.append(sound_artifact(named))
        except (TypeError, ValueError) as error:
            raise InvalidParams(f"artifacts[{index}]", str(error)) from error
    return tuple(made)


def sound_parts(parts: Sequence[Part], field: str) -> tuple[Part, ...]:
    """Check the parts. Raises InvalidParams."""
    try:
        return parts_of(_unbound(parts)) if parts else ()
    except (TypeError, ValueError) as error:
        raise InvalidParams(field, str(error)) from error


def _unbound(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts without the fields that only the store may set: which of its files they are."""
    return tuple(
        part if part.blob is None and part.file is None else replace(part, blob=None, file=None) for part in parts
    )


def _says(word: Say) -> bool:
    """Whether the report has any content."""
    return bool(word.parts) or word.progress is not None or word.metadata is not None


def _adds(run: Run, word: Say) -> bool:
    """Whether the report adds anything to what the task already says."""
    record = run.record
    said = record.status.message.parts if record.status.message is not None else ()
    at = None if record.progress is None else (record.progress.current, record.progress.total)
    return (
        record.state is not TaskState.WORKING
        or not same_parts(said, word.parts)
        or (word.progress is not None and at != word.progress)
        or word.metadata is not None
    )
