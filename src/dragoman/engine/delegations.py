"""Delegations: what one agent of this server gives to another, as tasks of the same caller.

Invariant: a delegation is at most one task, whose id follows from its parent's and its number, also when the run that
made it is run again.
"""

import asyncio
from typing import TYPE_CHECKING

from dragoman.engine.api import Delegation, DelegationFailed, Hear
from dragoman.engine.asking import pass_on
from dragoman.engine.children import Children
from dragoman.engine.generation import Generation
from dragoman.engine.lineage import Origin, check, child_of
from dragoman.engine.live import LiveTask
from dragoman.engine.registry import Registry
from dragoman.engine.replay import ReplayMismatch
from dragoman.engine.tail import Tail
from dragoman.engine.trail import Trail
from dragoman.engine.watch import Watch, moved
from dragoman.engine.writer import RETRY_S
from dragoman.model.errors import A2AError, AgentNotFound, AgentOffline, Unavailable
from dragoman.model.events import Delegated
from dragoman.model.ids import Clock, new_id, timestamp
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import Call, Manners, SendMessage
from dragoman.model.principal import Principal
from dragoman.model.task import INTERRUPTED, TaskHead, TaskState
from dragoman.store.api import Store, StoreError
from dragoman.store.audit import AuditEntry

if TYPE_CHECKING:
    from dragoman.engine.dispatch import Dispatch
    from dragoman.engine.intake import Intake, Taken
    from dragoman.engine.runs import TaskRun

ACTION = "Delegate"
"""What a delegation is called in the audit trail; its `peer` is the parent: `task:` and its id."""

WORKS = Manners(answers_with_message=False)
"""What is delegated is a task, also to an agent that answers others directly."""

LATE = "{} did not end in the time it was given."

QUESTION = (Part(text="More input is needed."),)
"""What is asked when the other agent named the state only."""


class Delegations:
    """Makes the tasks that agents delegate, and waits for them.

    `serving` are the agents that may be asked. `children` sees that what was delegated ends.
    """

    def __init__(
        self, serving: Generation, registry: Registry, store: Store, clock: Clock, trail: Trail | None
    ) -> None:
        self.serving = serving
        self.children = Children(registry, store, clock)
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
        self.children.begin(dispatch)

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
            known = await self.children.kept(child_id)
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
            if record.state is TaskState.CANCELED and message is None and (why := late or self._late(child)):
                message = Message(message_id=new_id(), role=Role.AGENT, parts=(Part(text=why),))
            at = timestamp(self._clock.now_ms())
            came = Delegated(number, order.agent, child_id, record.state, at, message, record.artifacts, record.usage)
            return await self._ends.files.delegated(came)
        finally:
            self._registry.unpin(child)

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
        late: str | None = None
        passed = run.replay.passed(child.head.id)
        given = sum(message.message_id.startswith(_answer_id(child, "")) for message in child.record().history)
        for _ in range(min(given, len(passed))):
            passed.popleft()
        heard = after if hear is None else 0  # an agent that is run again is given all chunks again
        watch = (
            Watch(run, self._tail(child, heard), self._ends.files, order, hear, after)
            if order.progress or hear
            else None
        )
        try:
            while not child.terminal:
                if not await moved(child, watch, loop, deadline):
                    await self.children.canceled(child)
                    return LATE.format(order.agent)
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
                    self.children.asks(child.head)
                    heeded = await pass_on(run, child, parts, auth=child.state is TaskState.AUTH_REQUIRED)
                    self.children.answered(child.head.id)
                    if heeded is None:  # it does not wait for an answer any more
                        late = None if deadline is None else LATE.format(order.agent)
                        continue
                    answer = heeded
                given += 1
                if (refused := await self._answered(run, child, answer, given, deadline)) is not None:
                    await self.children.canceled(child)
                    return refused
            return late
        finally:
            passed.clear()
            if watch is not None:
                watch.tail.close()

    def _late(self, child: LiveTask) -> str | None:
        """What is said of a task whose time is over."""
        deadline_ms = child.head.deadline_ms
        return None if deadline_ms is None or self._clock.now_ms() < deadline_ms else LATE.format(child.head.agent)

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


def _answer_id(child: LiveTask, number: str) -> str:
    return f"{child.head.id}-answer-{number}"


def came_to(delegated: Delegated, order: Delegation) -> Delegated:
    """The outcome as the agent gets it. Raises DelegationFailed unless the other agent did the task."""
    if delegated.state is TaskState.COMPLETED or (order.detach and delegated.task_id):
        return delegated
    raise DelegationFailed(delegated)
