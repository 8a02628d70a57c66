"""WorkerAgent: an agent whose work is done by worker processes, which take its tasks and report on them.

Invariant: what a worker says reaches its task through the run's own coroutine, in the order in which it was said, and
only as long as the run lives.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import assert_never

from msgspec.structs import replace

from dragoman.agents.checks import Finding
from dragoman.agents.content import parts_of, sound_artifact
from dragoman.agents.worker.leases import LEASE_S, SEEN_S, Ask, End, Give, Hand, Leases, Lost, Offer, Say, Told, Word
from dragoman.engine.api import Delegation, DelegationFailed, Ended, Run, RunAgain
from dragoman.engine.links import same_parts
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
"""What is asked when a worker names the state only."""


class WorkerAgent:
    """A card whose tasks are leased by workers. Satisfies `Runner`, `Reported` and `Dependent`.

    With `queues` tasks are taken in while no worker is there; without, they are refused (`offline`).
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
        """Whether sends are refused, since no worker has been seen lately."""
        return not (self._queues or self.leases.seen)

    @property
    def degraded(self) -> str | None:
        """Whether there is nobody to give work to."""
        return None if self.leases.seen else NO_WORKER

    async def check(self) -> AsyncIterator[Finding]:
        """Whether its worker works is to be seen only where it runs, or on the server that it asks for work."""
        runs = "dragoman worker MODULE:OBJECT --server URL"
        yield Finding(True, f"worker processes do its tasks: {runs}, where the object has the id {self.profile.id}")
        if not self._queues:
            yield Finding(True, 'while none is there, sends are refused (offline = "queue" would keep them)')

    def succeed(self, former: "WorkerAgent") -> None:
        """Take the place of an agent of the same id: with its workers, its leases and its tasks."""
        former.leases.lease_s = self.leases.lease_s
        self.leases = former.leases

    async def run(self, run: Run) -> None:
        """Offer the task to workers until one has ended it."""
        offer = Offer(run)
        self.leases.add(offer)
        canceled = True
        try:
            async with asyncio.TaskGroup() as questions:
                ended = await self._served(offer, questions)
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

    async def _served(self, offer: Offer, questions: asyncio.TaskGroup) -> End | Lost | Exception:
        """Do what workers say, one after the other, until the run is over."""
        while True:
            told = await offer.inbox.get()
            if not isinstance(told, Told):
                return told
            try:
                ends = await self._taken(offer, told, questions)
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

    async def _taken(self, offer: Offer, told: Told, questions: asyncio.TaskGroup) -> End | None:
        run, word, lease = offer.run, told.word, offer.lease
        if lease is not None and 0 < told.number <= lease.reported:
            return None  # it has come before; the answer was lost
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
                pass  # its answer came while it was asked again
            case Ask():
                offer.asked = word.parts
                questions.create_task(self._ask(offer, word))
                await asyncio.sleep(0)  # it has begun, and put the question
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
        """Wait for the caller's answer, for the worker's next heartbeat; if there is no worker, the run is over."""
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
        """Hand a worker's word to the run; returns when it was taken.

        A word whose `number` is not greater than that of an earlier one of the same lease is that word, come again.
        Raises InvalidParams, or LeaseLost if the run ended first.
        """
        told = Told(word, usage, number, asyncio.get_running_loop().create_future())
        offer.inbox.put_nowait(told)
        await told.taken

    async def ask(self, token: str, question: Ask, number: int, wait_s: float) -> Message | None:
        """Ask the lease's question of that number (0: the next one), and wait for its answer.

        None when it has not come within `wait_s`: ask again with the same number. Raises InvalidParams, or LeaseLost.
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
        """Give the lease's order of that number (0: the next one) to another agent, and wait for what it comes to.

        None when it has come to nothing within `wait_s`: ask again with the same number. Raises LeaseLost.
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
    """What a report by BeeOS' methods says. Raises InvalidParams."""
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
    """The artifacts that a worker gives, checked; those without an id get one. Raises InvalidParams."""
    made: list[Artifact] = []
    for index, artifact in enumerate(given):
        named = replace(artifact, artifact_id=artifact.artifact_id or new_id(), parts=_unbound(artifact.parts))
        try:
            made.append(sound_artifact(named))
        except (TypeError, ValueError) as error:
            raise InvalidParams(f"artifacts[{index}]", str(error)) from error
    return tuple(made)


def sound_parts(parts: Sequence[Part], field: str) -> tuple[Part, ...]:
    """The parts, checked. Raises InvalidParams."""
    try:
        return parts_of(_unbound(parts)) if parts else ()
    except (TypeError, ValueError) as error:
        raise InvalidParams(field, str(error)) from error


def _unbound(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts without what only the store may say: which of its files they are."""
    return tuple(
        part if part.blob is None and part.file is None else replace(part, blob=None, file=None) for part in parts
    )


def _says(word: Say) -> bool:
    """Whether the report says anything."""
    return bool(word.parts) or word.progress is not None or word.metadata is not None


def _adds(run: Run, word: Say) -> bool:
    """Whether the report says anything that the task does not say already."""
    record = run.record
    said = record.status.message.parts if record.status.message is not None else ()
    at = None if record.progress is None else (record.progress.current, record.progress.total)
    return (
        record.state is not TaskState.WORKING
        or not same_parts(said, word.parts)
        or (word.progress is not None and at != word.progress)
        or word.metadata is not None
    )
