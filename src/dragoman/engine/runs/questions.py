"""Questions: the open question of a run, and the caller's messages that came before it was asked.

Invariant: a run has at most one open question. A message that the agent has not read is the answer to what it asks
next, so that no question is written which has its answer already. Only a question about what went wrong meanwhile, of
which the caller could not have known, is asked anew.

```
            ask                      the log has it            resume
  NONE ───────────► ASKED ───────────────────────────► OPEN ───────────► NONE
                      │ a message came first, or the                      ▲
                      │ delegated task needs no answer: left out          │
                      └───────────────────────────────────────────────────┘
```

`ASKED` and `OPEN` differ only in the state of the task's log, which is the truth about it.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import contextmanager

from dragoman.engine.effects import DropSuspended
from dragoman.engine.log import Log
from dragoman.engine.runs.deadline import Deadline
from dragoman.engine.runs.execution import TaskExecution
from dragoman.engine.runs.services import RunServices
from dragoman.model.message import Message
from dragoman.model.task import INTERRUPTED


class Questions:
    """The question of one run, if it has one, and the messages that are `late` for its former ones.

    A question is the agent's own, or that of a delegated task, which may come not to need its answer any more. The
    time until an answer does not count towards the `deadline`.
    """

    __slots__ = (
        "_anew",
        "_answer",
        "_asks_for",
        "_closed",
        "_deadline",
        "_late",
        "_log",
        "_offered",
        "_services",
        "_sleepers",
        "any_open",
        "taken",
    )

    def __init__(self, log: Log, late: Iterable[Message], services: RunServices, deadline: Deadline | None) -> None:
        self.any_open = False
        """Whether a question is there whose agent has not gone on yet."""
        self._log = log
        self._late = list(late)  # short and mostly empty; an empty deque takes 600 bytes, in every run
        self._services = services
        self._deadline = deadline
        self._answer: asyncio.Future[Message | None] | None = None
        """The answer to the open question; None if none is open."""
        self._closed: asyncio.Future[None] | None = None
        """Done when its agent goes on, which may be later than its answer, since its write may be in doubt."""
        self._asks_for: Log | None = None
        """The delegated task whose question is passed on; None if the open question is the agent's own."""
        self._anew = False
        """Whether no message that came before the question answers it."""
        self.taken: Message | None = None
        """The message that took the place of the question that was left out last, if one did."""
        self._sleepers: tuple[asyncio.Future[None], ...] = ()
        """Done with the next message of the caller, for sleeps that it ends."""
        self._offered: Message | None = None
        """The answer that another engine wrote, until a lease comes under which the question can go on with it."""

    def release(self) -> None:
        """Drop the deadline, which has the run, which is over."""
        self._deadline = None

    @property
    def asking(self) -> bool:
        """Whether the agent waits for an answer; the question may still be on its way to the log."""
        return self._answer is not None and not self._answer.done()

    @property
    def unread(self) -> bool:
        """Whether the caller has sent a message that the agent has not read."""
        return bool(self._late)

    @contextmanager
    def hearing(self) -> Iterator[asyncio.Future[None]]:
        """A future that is done once there is a message of the caller that the agent has not read."""
        heard: asyncio.Future[None] = self._services.loop.create_future()
        self._sleepers = (*self._sleepers, heard)
        if self._late:
            heard.set_result(None)
        try:
            yield heard
        finally:
            self._sleepers = tuple(each for each in self._sleepers if each is not heard)
            heard.cancel()

    def take_late(self) -> Message | None:
        """Take the oldest message that came while the agent worked; None if there is none."""
        return self._late.pop(0) if self._late else None

    async def ask(
        self, written: Awaitable[None], execution: TaskExecution, child: Log | None, *, anew: bool = False
    ) -> Message | None:
        """Wait for the answer to the question that is being `written`; with a `child` it is that task's.

        One that is asked `anew` is not answered by a message that came before it.

        Returns None if the child needs no answer any more. A run that has waited for `suspend_max_s` is dropped.
        """
        services, expiry = self._services, None
        self._answer = answer = services.loop.create_future()
        self._closed = closed = services.loop.create_future()
        self._asks_for, self._anew = child, anew
        self.any_open = True
        try:
            await written
            if services.stopping.begun and not answer.done():
                execution.abandon()
            asks = not answer.done()
            if asks and self._deadline is not None:
                self._deadline.stop()
            expiry = services.loop.call_later(services.suspend_max_s, self._expire)
            answered: Message | None = await answer
            if asks and self._deadline is not None:
                self._deadline.restart()
            return answered
        finally:
            if expiry is not None:
                expiry.cancel()
            answer.cancel()  # of an agent that waits no more: what waits for its question goes on
            self._answer = self._asks_for = self._closed = None
            self.any_open = False
            closed.set_result(None)

    def _expire(self) -> None:
        if self.asking and self._log.state in INTERRUPTED:
            self._services.effects.want(DropSuspended(self._log))

    async def closed(self) -> None:
        """Wait until no question is open."""
        while self._closed is not None:
            await asyncio.wait((self._closed,))

    def receive(self, message: Message, answers: bool = False) -> None:
        """Keep a message that came while the agent works, for its next question, or an answer for `resume_offered`."""
        if answers:
            self._offered = message
        else:
            self._late.append(message)
            for heard in self._sleepers:
                if not heard.done():
                    heard.set_result(None)

    def overtaken(self) -> bool:
        """Whether the question about to be written has its answer already (`taken`), or needs none any more."""
        answer, child = self._answer, self._asks_for
        self.taken = None
        if answer is None:  # the agent was canceled, and waits no more
            return True
        if answer.done():
            return False
        if child is not None:
            if child.state in INTERRUPTED:
                return False
            answer.set_result(None)
        elif self._late and not self._anew:
            self.taken = self._late.pop(0)
            answer.set_result(self.taken)
        else:
            return False
        return True

    def resume(self, message: Message | None) -> None:
        """Answer the open question, with None if no answer is wanted any more."""
        assert self._answer is not None
        self._offered = None
        self._answer.set_result(message)

    def take_offered(self) -> tuple[bool, Message | None]:
        """Take the answer that another engine wrote. The flag says whether the question can go on with it."""
        answer, self._offered = self._offered, None
        return answer is not None or self._asks_for is not None, answer
