"""WorkerAgent: an agent whose work is done by worker processes, which lease its tasks and report on them.

Invariant: a worker's words reach the task through the run's own coroutine, in the order in which they were sent, and
only while the run lives. With a desk a word is committed before its worker hears that it was taken.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import assert_never

from msgspec.structs import replace

from dragoman.agents.worker.desk import Desk
from dragoman.agents.worker.leases import (
    LEASE_S,
    REPORTED,
    SEEN_S,
    WAITS,
    LeaseExpired,
    LeaseMoved,
    Leases,
    Lost,
    PendingWord,
    Unwanted,
    WorkItem,
)
from dragoman.agents.worker.words import SpokenWord, adds, says_anything, used_within, within, word_of
from dragoman.engine.api import (
    CheckResult,
    DelegationFailed,
    Ended,
    Reported,
    Run,
    RunAgain,
    RunElsewhere,
    Runner,
    Traits,
)
from dragoman.engine.runs.places import leave_branches
from dragoman.engine.runs.replay import ReplayMismatch
from dragoman.engine.runs.task_sink import task_sink
from dragoman.engine.words import Ask, Delegation, End, Say
from dragoman.model.card import Profile
from dragoman.model.errors import InvalidParams, LeaseLost, Unavailable
from dragoman.model.events import ArtifactChunk, Delegated
from dragoman.model.message import Message
from dragoman.model.operations import CompleteTask, UpdateStatus
from dragoman.model.task import Usage
from dragoman.store.api import StoreError

NO_WORKER = "no worker has asked for work lately"


class WorkerAgent(Runner):
    """A card whose tasks are leased by workers. Satisfies `Reported`, too.

    With `queues`, tasks are accepted while no worker is there; without, they are refused (`offline`).
    """

    def __init__(
        self, profile: Profile, *, queues: bool = False, lease_s: float = LEASE_S, seen_s: float = SEEN_S
    ) -> None:
        self.profile = profile
        self.traits = Traits(kind="worker", restartable=True, waits=True, queues_runs=True)
        self.leases = Leases(profile.id, lease_s, seen_s)
        self._queues = queues

    @property
    def offline(self) -> bool:
        """Whether sends are refused, because no worker has been seen lately."""
        return not (self._queues or self.leases.seen)

    @property
    def degraded(self) -> str | None:
        """Why tasks wait: no worker has been seen lately. Else None."""
        return None if self.leases.seen else NO_WORKER

    @property
    def wants(self) -> int:
        """How many queued tasks workers wait for: see `engine.api.Runner`."""
        return self.leases.wants

    @property
    def reported(self) -> Reported:
        """See `engine.api.Runner`."""
        return self

    async def check(self) -> AsyncIterator[CheckResult]:
        """Say how to start a worker. Whether one works shows only where it runs, or on the server that it calls."""
        runs = "dragoman worker MODULE:OBJECT --server URL"
        yield CheckResult(True, f"worker processes do its tasks: {runs}, where the object has the id {self.profile.id}")
        if not self._queues:
            yield CheckResult(True, 'while none is there, sends are refused (offline = "queue" would keep them)')

    def succeed(self, former: "WorkerAgent") -> None:
        """Replace an agent with the same id, and take over its workers, leases and tasks."""
        former.leases.lease_s = self.leases.lease_s
        self.leases = former.leases

    async def run(self, run: Run) -> None:
        """Offer the task to workers until one has ended it."""
        leave_branches()
        item, desk = WorkItem(run), self.leases.desk
        if desk is None:
            self.leases.add(item)
        else:
            await self._enter(item, desk)
        canceled, moved = True, False
        try:
            async with asyncio.TaskGroup() as questions:
                ended = await self._serve(item, questions)
                for handed in item.handed.values():
                    handed.cancel()  # the task ends with this one
            canceled = False
        except asyncio.CancelledError:
            moved = desk is not None and not run.canceled
            raise
        finally:
            self.leases.remove(item, canceled=canceled and not moved, moved=moved)
        if desk is not None:
            await desk.settle(run.head.id)
        match ended:
            case Lost():
                raise RunAgain if desk is None or self.leases.wants else RunElsewhere
            case Unwanted():
                raise RunElsewhere
            case End(state, parts):
                raise Ended(state, parts)
            case _:
                raise ended

    async def _enter(self, item: WorkItem, desk: Desk) -> None:
        """Let a run go on with the lease of its task, or offer it to the workers that wait here.

        Raises RunElsewhere if there are none.
        """
        found = None
        while item.run.epoch > 1:  # nobody has a lease of a task that has just been made
            try:
                found = await desk.find(item.run.head.id)
            except StoreError:
                await asyncio.sleep(1)
            else:
                break
        if found is not None:
            self.leases.attach(item, found)
        elif self.leases.wants:
            self.leases.add(item)
        else:
            raise RunElsewhere

    async def _serve(self, item: WorkItem, questions: asyncio.TaskGroup) -> End | Lost | Unwanted | Exception:
        """Carry out the workers' words, one after the other, until the run is over."""
        while True:
            told = await item.inbox.get()
            if isinstance(told, LeaseExpired):
                await self.leases.check_expiry(item)
                continue
            if not isinstance(told, PendingWord):
                return told
            try:
                ends = await self._carry_out(item, told, questions)
            except (InvalidParams, Unavailable) as fault:
                if not told.taken.done():
                    told.taken.set_exception(fault)
                continue
            except BaseException:
                if not told.taken.done():
                    moved = self.leases.desk is not None and not item.run.canceled
                    told.taken.set_exception(LeaseMoved() if moved else LeaseLost())
                raise
            if not told.taken.done():
                told.taken.set_result(None)
            if ends is not None:
                return ends

    async def _carry_out(self, item: WorkItem, told: PendingWord, questions: asyncio.TaskGroup) -> End | None:
        run, lease = item.run, item.lease
        if lease is not None and 0 < told.number <= lease.reported:
            return None  # a repeated word: its answer was lost
        word, used = within(told.word, run.bounds), used_within(told.usage)
        if item.asked is not None:
            if isinstance(word, Ask) and word.parts == item.asked:
                return None
            raise InvalidParams("id", WAITS)
        if lease is not None:
            lease.reported = max(told.number, lease.reported)
        if not item.replays:
            task_sink(run).known(0, replays=False)
        if used is not None:
            run.usage(used)
        kept = lease is not None and lease.stored is not None and isinstance(word, Say | ArtifactChunk)
        if kept and lease is not None:  # in the write of the word, so that both are known elsewhere, or neither
            reported = {REPORTED: f"{lease.token}:{told.number}"} if told.number else {}
            run.note_next(usage=told.usage is not None, **reported)
        match word:
            case Say():
                if says_anything(word) and (told.number or adds(run, word)):
                    await run.status(word.parts, progress=word.progress, metadata=word.metadata)
            case ArtifactChunk(artifact, append, last_chunk):
                await run.artifact(artifact, append=append, last_chunk=last_chunk)
            case Ask(_, _, number) if lease is not None and 0 < number <= len(lease.answers):
                pass  # the answer arrived while the question was repeated
            case Ask():
                item.asked = word.parts
                await self._store_question(item)
                questions.create_task(self._ask(item, word))
                await asyncio.sleep(0)  # lets `_ask` begin and put the question
                await run.written()
            case Delegation(number=number):
                if number not in item.handed:
                    await self.leases.hands(item, number)
                    item.handed[number] = questions.create_task(self._delegate(item, word))
            case End(artifacts=artifacts):
                for artifact in artifacts:
                    await run.artifact(artifact, append=False, last_chunk=True)
                return word
            case _:
                assert_never(word)
        if kept:
            await run.written()
        return None

    async def _store_question(self, item: WorkItem) -> None:
        """Store that the worker puts its next question. Raises Unavailable; then there is no question."""
        try:
            await self.leases.asks(item)
        except Unavailable:
            item.asked = None
            if item.lease is None:  # the worker has lost it meanwhile
                item.inbox.put_nowait(Lost())
            raise

    async def _ask(self, item: WorkItem, question: Ask) -> None:
        """Wait for the caller's answer, and give it to the worker's next heartbeat. Without a worker the run ends."""
        try:
            if question.note:
                item.run.note(**question.note)
            answer = await item.run.ask(question.parts, auth=question.auth, place=question.place or "")
        except ReplayMismatch as mismatch:
            item.inbox.put_nowait(mismatch)
            return
        item.asked = None
        if item.lease is not None:
            self.leases.answered(item.lease, answer)
        elif item.leased:
            item.inbox.put_nowait(Lost())

    async def _delegate(self, item: WorkItem, order: Delegation) -> Delegated | None:
        try:
            return await item.run.delegate(order)
        except DelegationFailed as failed:
            return failed.delegated
        except ReplayMismatch as mismatch:
            item.inbox.put_nowait(mismatch)
            return None

    # -- for workers -------------------------------------------------------------------------------------------------

    async def say(self, token: str, word: SpokenWord, *, usage: Usage | None = None, number: int = 0) -> None:
        """As `tell`, for the lease with that token, on whatever replica its run is. Raises Unavailable, too."""
        while True:
            item = await self.leases.hold(token)
            try:
                await self.tell(item, word, usage=usage, number=number)
            except LeaseMoved:
                continue
            except InvalidParams:
                if await self.leases.confirm(token):
                    raise
                continue
            return

    async def tell(self, item: WorkItem, word: SpokenWord, *, usage: Usage | None = None, number: int = 0) -> None:
        """Hand a worker's word to the run. Returns once the run has taken it.

        A word whose `number` is not greater than that of an earlier one of the same lease is a repetition of that word.
        Raises InvalidParams, or LeaseLost if the run ended first.
        """
        told = PendingWord(word, usage, number, asyncio.get_running_loop().create_future())
        item.inbox.put_nowait(told)
        await told.taken

    async def ask(self, token: str, question: Ask, number: int, wait_s: float) -> Message | None:
        """Ask the lease's question with that number (0: the next one), and wait for the answer.

        None if no answer comes within `wait_s`: ask again with the same number. Raises InvalidParams, or LeaseLost.
        """
        while True:
            if not await self.leases.wait_for_answer(token, wait_s):
                return None
            if self.leases.has(token) and not await self.leases.confirm(token):
                continue  # its run has gone: it would take an earlier message for the answer
            item = await self.leases.hold(token)
            answered = 0 if item.lease is None else len(item.lease.answers)
            number = number or answered + 1
            try:
                if number > answered + 1:
                    raise InvalidParams("question", f"the next one has the number {answered + 1}")
                if number > answered:
                    await self.tell(item, replace(question, number=number))
            except LeaseMoved:
                continue
            except InvalidParams:
                if await self.leases.confirm(token):
                    raise
                continue
            beat = await self.leases.beat(token, wait_s, number - 1)
            if beat.cancel:
                raise LeaseLost
            return beat.answers[0] if beat.answers else None

    async def delegate(self, token: str, order: Delegation, wait_s: float) -> Delegated | None:
        """Give the lease's order with that number (0: the next one) to another agent, and wait for the outcome.

        None if there is none within `wait_s`: ask again with the same number. Raises LeaseLost.
        """
        while True:
            if order.number and not await self.leases.wait_for_answer(token, wait_s):
                return None  # the other agent's question has been passed on
            item = await self.leases.hold(token)
            shared = self.leases.desk is not None
            number = order.number or await self.leases.number_order(item)
            if number > len(item.handed) + 1 and not shared:  # another replica may know the earlier ones
                raise InvalidParams("delegation", f"the next one has the number {len(item.handed) + 1}")
            try:
                if number not in item.handed:
                    await self.tell(item, replace(order, number=number))
            except LeaseMoved:
                continue
            await self.leases.beat(token, 0, 0)
            handed = item.handed[number]
            await asyncio.wait((handed,), timeout=min(wait_s, self.leases.lease_s / 2))
            if (await self.leases.beat(token, 0, 0)).cancel:
                raise LeaseLost
            if handed.done() and handed.cancelled():
                if shared:
                    continue  # the run has moved
                raise LeaseLost
            return handed.result() if handed.done() else None

    async def give_back(self, token: str) -> None:
        """Give a task back, so that another worker gets it at once. Raises LeaseLost or Unavailable."""
        if self.leases.desk is not None:
            await self.leases.hold(token, confirmed=True)
        self.leases.release(token)

    async def prepare(self, report: CompleteTask | UpdateStatus) -> None:
        """See `engine.api.Reported`."""
        if self.leases.desk is None:
            return
        if report.lease is not None:
            await self.leases.hold(report.lease, confirmed=True)
        else:
            await self.leases.bring(report.id)

    async def report(self, report: CompleteTask | UpdateStatus) -> None:
        """See `engine.api.Reported`."""
        word = word_of(report)
        item = self.leases.find_item(report.id, report.lease)
        if item is None:
            raise Unavailable("nobody can report on the task at this moment: try again", 1)
        try:
            await self.tell(item, word)
        except LeaseMoved as moved:
            raise Unavailable("the task is on its way to another server: try again", 1) from moved
        except InvalidParams:
            if report.lease is None or await self.leases.confirm(report.lease):
                raise
            raise Unavailable("the task is on its way from another server: try again", 1) from None
        if isinstance(word, Say):
            await item.run.written()
