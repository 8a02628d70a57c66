"""Delegations: what one agent of this server gives to another, as tasks of the same caller.

Invariant: a delegation is at most one task, whose id follows from its parent's and its number, also when the run that
made it is run again. A task that was delegated does not outlast its parent, unless it is detached.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dragoman.engine.api import Delegation, DelegationFailed, Hear
from dragoman.engine.files import Files
from dragoman.engine.generation import Generation
from dragoman.engine.lineage import Origin, check, child_of
from dragoman.engine.live import LiveTask, wait_until
from dragoman.engine.registry import Registry
from dragoman.engine.replay import ReplayMismatch
from dragoman.engine.tail import Tail
from dragoman.engine.trail import Trail
from dragoman.engine.writer import RETRY_S
from dragoman.model.errors import A2AError, AgentNotFound, AgentOffline, Unavailable
from dragoman.model.events import ArtifactChunk, Delegated, Logged, StatusChanged
from dragoman.model.ids import Clock, new_id, timestamp
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import Call, Manners, SendMessage
from dragoman.model.principal import Principal
from dragoman.model.task import INTERRUPTED, TERMINAL, TaskHead, TaskState
from dragoman.store.api import Store, StoreError
from dragoman.store.audit import AuditEntry

if TYPE_CHECKING:
    from dragoman.engine.dispatch import Dispatch
    from dragoman.engine.intake import Intake, Taken
    from dragoman.engine.runs import TaskRun

ACTION = "Delegate"
"""What a delegation is called in the audit trail; its `peer` is the parent: `task:` and its id."""

ABSENT_MAX = 2
"""How many numbers without a task end the search for what a task delegated: one that was refused made none."""

WORKS = Manners(answers_with_message=False)
"""What is delegated is a task, also to an agent that answers others directly."""

QUESTION = (Part(text="More input is needed."),)
"""What is asked when the other agent named the state only."""


class Delegations:
    """Makes the tasks that agents delegate, waits for them, and sees that they end with their parents.

    `serving` are the agents that may be asked.
    """

    def __init__(
        self, serving: Generation, registry: Registry, store: Store, clock: Clock, trail: Trail | None
    ) -> None:
        self.serving = serving
        self._registry = registry
        self._store = store
        self._clock = clock
        self._trail = trail
        self._intake: Intake | None = None
        self._dispatch: Dispatch | None = None

    def begin(self, intake: "Intake", dispatch: "Dispatch") -> None:
        """From now on tasks are made through `intake` and ended through `dispatch`."""
        self._intake = intake
        self._dispatch = dispatch
        self._registry.ends = self.parent_ends

    @property
    def _ends(self) -> "Dispatch":
        if self._dispatch is None:
            raise RuntimeError("the engine has not been started")
        return self._dispatch

    @property
    def _takes(self) -> "Intake":
        if self._intake is None:
            raise RuntimeError("the engine has not been started")
        return self._intake

    # -- for a run -----------------------------------------------------------------------------------------------------

    async def carried_out(
        self, run: "TaskRun", parent: LiveTask, number: int, order: Delegation, hear: Hear | None
    ) -> Delegated:
        """Make the task, unless it is there, and wait for what it comes to; an agent's failure is one, too.

        Raises ReplayMismatch if it is there, and another agent's.
        """
        child_id = child_of(run.head.id, number)
        if parent.children is not None and child_id not in parent.children:
            parent.children = (*parent.children, child_id)
        try:
            known = await self._kept(child_id)
            if known is not None and known.head.agent != order.agent:
                self._registry.unpin(known)
                raise ReplayMismatch
            child = known if known is not None else await self._made(run, child_id, order)
        except A2AError as refused:
            self._note(run.head, order.agent, "", type(refused).__name__)
            said = Message(message_id=new_id(), role=Role.AGENT, parts=(Part(text=str(refused)),))
            now = timestamp(self._clock.now_ms())
            return Delegated(number, order.agent, "", TaskState.REJECTED, now, said)
        try:
            late = None
            if not order.detach:
                late = await self._settled(run, child, order, hear, after=0 if known is None else child.seq)
            record = child.record()
            message = record.status.message
            if late is not None and record.state is TaskState.CANCELED and message is None:
                message = Message(message_id=new_id(), role=Role.AGENT, parts=(Part(text=late),))
            at = timestamp(self._clock.now_ms())
            came = Delegated(number, order.agent, child_id, record.state, at, message, record.artifacts, record.usage)
            return await self._ends.files.delegated(came)
        finally:
            self._registry.unpin(child)

    async def _kept(self, child_id: str) -> LiveTask | None:
        """The task, if it has been made, in memory until it is unpinned."""
        loop = self._ends.loop
        while True:
            try:
                live = self._registry.being_made(child_id)
                if live is None:
                    return self._registry.pin_known(child_id)
                await wait_until(live, loop, loop.time() + RETRY_S)
            except StoreError:
                await asyncio.sleep(RETRY_S)

    async def _made(self, run: "TaskRun", child_id: str, order: Delegation) -> LiveTask:
        """A new task, pinned. Raises A2AError if it is refused."""
        head = run.head
        lineage = (*head.lineage, head.agent)
        check(lineage, order.agent)
        if order.agent not in self.serving.runners:
            raise AgentNotFound(order.agent)
        deadlines = [head.deadline_ms] if head.deadline_ms is not None else []
        if order.timeout_s is not None:
            deadlines.append(self._clock.now_ms() + int(order.timeout_s * 1000))
        origin = Origin(child_id, head.id, lineage, order.detach, min(deadlines, default=None))
        context_id = order.context_id or head.context_id
        message = Message(message_id=f"{child_id}-0", role=Role.USER, parts=order.parts, context_id=context_id)
        send = SendMessage(message=message, skill=order.skill)
        while True:
            try:
                taken = await self._taken(run, order.agent, send, origin)
            except StoreError:
                await asyncio.sleep(RETRY_S)
                continue
            self._note(head, order.agent, child_id, "")
            return taken.live

    async def _taken(self, run: "TaskRun", agent: str, send: SendMessage, origin: Origin | None = None) -> "Taken":
        """Send as the parent's caller, to the agent as it is now. Raises A2AError or StoreError."""
        serving = self.serving
        if (runner := serving.runners.get(agent)) is None:
            raise AgentNotFound(agent)
        serving.busy += 1
        try:
            taken = await self._takes.take(runner, self._call(run, agent, send), send, origin)
        finally:
            serving.done()
        assert not isinstance(taken, Message)  # by WORKS
        return taken

    def _call(self, run: "TaskRun", agent: str, send: SendMessage) -> Call:
        return Call(
            operation=send,
            principal=Principal(run.head.owner),
            agent=agent,
            dialect="1.0",
            mount=f"/agents/{agent}",
            manners=WORKS,
            traceparent=run.traceparent,
            shown=run.shown,
        )

    async def _settled(
        self, run: "TaskRun", child: LiveTask, order: Delegation, hear: Hear | None, *, after: int
    ) -> str | None:
        """Wait until the task has ended, or asks what is not passed on. Returns why it was canceled, if it was here."""
        loop, deadline_ms = self._ends.loop, child.head.deadline_ms
        deadline = None if deadline_ms is None else loop.time() + (deadline_ms - self._clock.now_ms()) / 1000
        passed = run.passed(child.head.id)
        given = sum(message.message_id.startswith(_answer_id(child, "")) for message in child.record().history)
        for _ in range(min(given, len(passed))):
            passed.popleft()
        heard = after if hear is None else 0  # an agent that is run again is given all chunks again
        watch = (
            _Watch(run, self._tail(child, heard), self._ends.files, order, hear, after)
            if order.progress or hear
            else None
        )
        try:
            while not child.terminal:
                if not await _moved(child, watch, loop, deadline):
                    await self._canceled(child)
                    return f"{order.agent} did not end in the time it was given."
                if child.terminal or child.state not in INTERRUPTED:
                    continue
                if order.asks == "raise":
                    return None
                if passed:
                    answer = passed.popleft()
                else:
                    status = child.record().status
                    parts = status.message.parts if status.message is not None else QUESTION
                    parts = await self._ends.files.parts(parts)
                    answer = await run.pass_on(child.head.id, parts, auth=child.state is TaskState.AUTH_REQUIRED)
                given += 1
                if (refused := await self._answered(run, child, answer, given, deadline)) is not None:
                    await self._canceled(child)
                    return refused
            return None
        finally:
            passed.clear()
            if watch is not None:
                watch.tail.close()

    async def _answered(
        self, run: "TaskRun", child: LiveTask, answer: Message, number: int, deadline: float | None
    ) -> str | None:
        """Hand the caller's answer on, while there is time. Returns why it was not taken, if it was not."""
        head = child.head
        message = Message(
            message_id=_answer_id(child, str(number)), role=Role.USER, parts=answer.parts, task_id=head.id
        )
        send = SendMessage(message=message)
        while not child.terminal and (deadline is None or self._ends.loop.time() < deadline):
            try:
                taken = await self._taken(run, head.agent, send)
            except (StoreError, AgentOffline, Unavailable):
                await asyncio.sleep(RETRY_S)
            except A2AError as refused:
                return None if child.terminal else str(refused)
            else:
                self._registry.unpin(taken.live)
                return None
        return None

    def _tail(self, child: LiveTask, after: int) -> Tail:
        return Tail(
            child,
            self._store,
            self._ends.loop,
            after=after,
            snapshot=None,
            base=None,
            ends_when_interrupted=False,
            keepalive_s=60.0,
            stopping=lambda: False,
            released=self._registry.release,
        )

    # -- when a parent ends --------------------------------------------------------------------------------------------

    def parent_ends(self, parent: LiveTask) -> None:
        """The task has ended, or is about to: what it delegated goes with it."""
        if parent.children != ():
            self._ends.errand(parent, lambda: self._let_go(parent))

    async def _let_go(self, parent: LiveTask) -> None:
        ids = parent.children
        await asyncio.gather(*map(self._parted, self._found(parent.head.id) if ids is None else ids))

    def _found(self, parent_id: str) -> list[str]:
        """The tasks that a task delegated in an earlier life of the server."""
        ids: list[str] = []
        number = absent = 0
        while absent < ABSENT_MAX:
            number += 1
            child_id = child_of(parent_id, number)
            if self._store.head(child_id) is None:
                absent += 1
            else:
                ids.append(child_id)
                absent = 0
        return ids

    async def _parted(self, child_id: str) -> None:
        child = await self._kept(child_id)
        if child is not None:
            try:
                if not child.head.detached:
                    await self._canceled(child)
            finally:
                self._registry.unpin(child)

    async def _canceled(self, child: LiveTask) -> None:
        while not child.terminal:
            try:
                await self._ends.cancel(child)
            except StoreError:
                await asyncio.sleep(RETRY_S)
            else:
                return

    def orphaned(self, head: TaskHead) -> bool:
        """Whether the task was delegated by one that has ended, or is gone. Raises StoreError."""
        if head.parent is None or head.detached:
            return False
        parent = self._store.head(head.parent)
        return parent is None or parent[2] in TERMINAL

    def _note(self, parent: TaskHead, agent: str, task_id: str, reason: str) -> None:
        trail = self._trail
        if trail is None or not (reason or trail.keeps(parent.owner)):
            return
        trail.note(
            AuditEntry(
                at_ms=self._clock.now_ms(),
                principal=parent.owner,
                action=ACTION,
                agent=agent,
                task_id=task_id,
                allowed=not reason,
                reason=reason,
                peer=f"task:{parent.id}",
            )
        )


class _Watch:
    """Tells of a task what has come of it: its progress to the parent's caller, its chunks to the parent's agent."""

    def __init__(
        self, run: "TaskRun", tail: Tail, files: Files, order: Delegation, hear: Hear | None, reported: int
    ) -> None:
        """What came up to seq `reported` has been reported in the parent, by an earlier run."""
        self.tail = tail
        self._run = run
        self._files = files
        self._order = order
        self._hear = hear
        self._reported = reported
        self._begun = reported if hear is None else 0
        self._told = 0

    def behind(self, child: LiveTask) -> bool:
        """Whether there is something that has not been told."""
        return max(self._told, self._begun) < child.seq

    async def next(self, wait_s: float | None) -> None:
        """Wait for what comes next, and tell it."""
        for item in await self.tail.next(wait_s) or ():
            if isinstance(item, Logged):
                self._told = item.seq
                await self._tell(item)

    async def _tell(self, logged: Logged) -> None:
        event = logged.event
        if isinstance(event, ArtifactChunk) and self._hear is not None:
            await self._hear(await self._files.chunk(event))
        elif isinstance(event, StatusChanged) and event.state is TaskState.WORKING and self._order.progress:
            if logged.seq <= self._reported or (event.message is None and event.progress is None):
                return
            parts = await self._files.parts(event.message.parts) if event.message is not None else ()
            steps = None if event.progress is None else (event.progress.current, event.progress.total)
            await self._run.status(_marked(self._order.agent, parts), progress=steps)


def _marked(agent: str, parts: Sequence[Part]) -> tuple[Part, ...]:
    """What another agent said, with its name before it."""
    if parts and parts[0].text is not None:
        return (replace(parts[0], text=f"{agent}: {parts[0].text}"), *parts[1:])
    return (Part(text=f"{agent}:"), *parts)


async def _moved(
    child: LiveTask, watch: _Watch | None, loop: asyncio.AbstractEventLoop, deadline: float | None
) -> bool:
    """Wait until the task has ended, or asks, and that has been told; False if there is no time left."""
    while True:
        if (child.terminal or child.state in INTERRUPTED) and (watch is None or not watch.behind(child)):
            return child.terminal or deadline is None or loop.time() < deadline
        if deadline is not None and loop.time() >= deadline:
            return False
        if watch is not None:
            await watch.next(None if deadline is None else max(0.0, deadline - loop.time()))
        elif deadline is None:
            await child.wait(loop)
        else:
            await wait_until(child, loop, deadline)


def _answer_id(child: LiveTask, number: str) -> str:
    return f"{child.head.id}-answer-{number}"


def came_to(delegated: Delegated, order: Delegation) -> Delegated:
    """The outcome as the agent gets it. Raises DelegationFailed unless the other agent did the task."""
    if delegated.state is TaskState.COMPLETED or (order.detach and delegated.task_id):
        return delegated
    raise DelegationFailed(delegated)
