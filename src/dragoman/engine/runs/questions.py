"""Questions: the open question of a run, and the caller's messages that came before it was asked.

Invariant: a run has at most one open question. A message that the agent has not read is the answer to what it asks
next, so that no question is written which has its answer already.

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
from collections import deque
from collections.abc import Iterable

from dragoman.engine.task_log import TaskLog
from dragoman.model.message import Message
from dragoman.model.task import INTERRUPTED


class Questions:
    """The question of one run, if it has one, and the messages that are `late` for its former ones.

    A question is the agent's own, or that of a delegated task, which may come not to need its answer any more.
    """

    __slots__ = ("_answer", "_asks_for", "_late", "_loop", "_offered", "any_open")

    def __init__(self, late: Iterable[Message], loop: asyncio.AbstractEventLoop) -> None:
        self._late = deque(late)
        self._loop = loop
        self.any_open = False
        """Whether a question is there whose agent has not gone on yet."""
        self._answer: asyncio.Future[Message | None] | None = None
        """The answer to the open question; None if none is open."""
        self._asks_for: TaskLog | None = None
        """The delegated task whose question is passed on; None if the open question is the agent's own."""
        self._offered: Message | None = None
        """The answer that came with the offer of a lease."""

    @property
    def asking(self) -> bool:
        """Whether the agent waits for an answer; the question may still be on its way to the log."""
        return self._answer is not None and not self._answer.done()

    def take_late(self) -> Message | None:
        """Take the oldest message that came while the agent worked; None if there is none."""
        return self._late.popleft() if self._late else None

    def ask(self, child: TaskLog | None) -> "asyncio.Future[Message | None]":
        """Begin a question, that of a delegated task if there is a `child`, and return its answer to come.

        The answer is None if the child needs none any more.
        """
        self._answer = answer = self._loop.create_future()
        self._asks_for = child
        self.any_open = True
        return answer

    def close(self) -> None:
        """End the open question: the agent goes on, or is stopped."""
        self._answer = self._asks_for = None
        self.any_open = False

    async def closed(self) -> None:
        """Wait until no question is open."""
        while self._answer is not None:
            await asyncio.wait((self._answer,))
            await asyncio.sleep(0)

    def receive(self, message: Message, answers: bool = False) -> None:
        """Keep a message that came while the agent works, for its next question, or an answer for `resume_offered`."""
        if answers:
            self._offered = message
        else:
            self._late.append(message)

    def overtaken(self) -> bool:
        """Whether the question about to be written has its answer already, or needs none any more."""
        answer, child = self._answer, self._asks_for
        if answer is None:  # the agent was canceled, and waits no more
            return True
        if answer.done():
            return False
        if child is not None:
            if child.state in INTERRUPTED:
                return False
            answer.set_result(None)
        elif self._late:
            answer.set_result(self._late.popleft())
        else:
            return False
        return True

    def resume(self, message: Message | None) -> None:
        """Answer the open question, with None if no answer is wanted any more."""
        assert self._answer is not None
        self._answer.set_result(message)

    def take_offered(self) -> tuple[bool, Message | None]:
        """Take the answer that another engine wrote. The flag says whether the question can go on with it."""
        answer, self._offered = self._offered, None
        return answer is not None or self._asks_for is not None, answer
