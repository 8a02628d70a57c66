"""WorkerAgent: an agent whose work is done by worker processes, which take its tasks and report on them.

Invariant: a worker's words reach the task through the run's own coroutine, in the order in which they were sent, and
only while the run lives.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import assert_never

from msgspec.structs import replace

from dragoman.agents.content import parts_of, sound_artifact
from dragoman.agents.lifecycle import Finding
from dragoman.agents.worker.leases import LEASE_S, SEEN_S, Ask, End, Give, Hand, Leases, Lost, Offer, Say, Told, Word
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

WAITS = "the task waits for its caller's message: its worker goes on when that has come"
NO_WORKER = "no worker has asked for work lately"

QUESTIONS = {
    TaskState.INPUT_REQUIRED: "More input is needed.",
    TaskState.AUTH_REQUIRED: "Authentication is needed.",
}
"""The question when a worker sends only the state."""


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
            case End(state, parts):
                raise Ended(state, parts)
            case _:
                raise ended

    async def _serve(self, offer: Offer, questions: asyncio.TaskGroup) -> End | Lost | Exception:
        """Carry out the workers' words, one after the other, until the run is over."""
        while True:
            told = await offer.inbox.get()
            if not isinstance(told, Told):
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

    async def _carry_out(self, offer: Offer, told: Told, questions: asyncio.TaskGroup) -> End | None:
        run, word, lease = offer.run, told.word, offer.lease
        if lease is not None and 0 < told.number <= lease.reported:
            return None  # a repeated word: its answer was lost
        if offer.asked is not None:
            if isinstance(word, Ask) and word.parts == offer.asked:
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
            case Ask(_, _, number) if lease is not None and 0 < number <= len(lease.answers):
                pass  # the answer arrived while the question was repeated
            case Ask():
                offer.asked = word.parts
                questions.create_task(self._ask(offer, word))
                await asyncio.sleep(0)  # lets `_ask` begin and put the question
                await run.written()
            case Hand(order):
                if order.number not in offer.handed:
                    offer.handed[order.number] = questions.create_task(self._delegate(offer, order))
            case End(_, _, artifacts):
                for artifact in artifacts:
                    await run.artifact(artifact, append=False, last_chunk=True)
                return word
            case _:
                assert_never(word)
        return None

    async def _ask(self, offer: Offer, question: Ask) -> None:
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
        told = Told(word, usage, number, asyncio.get_running_loop().create_future())
        offer.inbox.put_nowait(told)
        await told.taken

    async def ask(self, token: str, question: Ask, number: int, wait_s: float) -> Message | None:
        """Ask the lease's question with that number (0: the next one), and wait for the answer.

        None if no answer comes within `wait_s`: ask again with the same number. Raises InvalidParams, or LeaseLost.
        """
        offer = self.leases.held(token)
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
        offer = self.leases.held(token)
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
        offer = self.leases.offered(report.id, report.lease)
        if offer is None:
            raise Unavailable("nobody can report on the task at this moment: try again", 1)
        await self.tell(offer, word)
        if isinstance(word, Say):
            await offer.run.written()


def word_of(report: CompleteTask | UpdateStatus) -> Word:
    """Convert a report by BeeOS' methods to a word. Raises InvalidParams."""
    if isinstance(report, CompleteTask):
        return End(TaskState.COMPLETED, artifacts=artifacts_of(report.artifacts))
    parts = sound_parts(report.parts, "status.message")
    state, progress = report.state, report.progress
    if state in TERMINAL:
        return End(state, parts)
    if state in INTERRUPTED:
        return Ask(parts or (Part(text=QUESTIONS[state]),), auth=state is TaskState.AUTH_REQUIRED)
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
