"""NoStore: the Handler that keeps no tasks and runs no agent, as KAOS does with `TASK_STORE_TYPE=null`.

Invariant: a send is answered at once with an empty, completed task. No task is ever found.
"""

from typing import assert_never

from dragoman.engine.handler import OpenStream
from dragoman.model.errors import PushNotificationNotSupported, TaskNotFound, UnsupportedOperation
from dragoman.model.ids import Clock, new_id, timestamp
from dragoman.model.operations import (
    Call,
    CancelTask,
    CompleteTask,
    CreatePushConfig,
    DeletePushConfig,
    DeleteTask,
    GetExtendedCard,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    ListTasks,
    Operation,
    PushConfig,
    Result,
    SendMessage,
    Subscribe,
    TaskPage,
    UpdateStatus,
)
from dragoman.model.principal import Principal
from dragoman.model.task import Record, TaskHead, TaskState, TaskStatus

NO_CONTEXT = "null-session"
"""The context id of a stub task, unless the caller names one. The name is that of KAOS."""


class NoStore:
    """See `engine.handler.Handler`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def call(self, call: Call) -> Result:
        """Answer a send with a stub, and everything else as if there were no tasks."""
        operation: Operation = call.operation
        match operation:
            case SendMessage(push_config=PushConfig()):
                raise PushNotificationNotSupported
            case SendMessage():
                return self._stub(call, operation)
            case ListTasks():
                return TaskPage(records=(), next_page_token="", page_size=operation.page_size, total_size=0)
            case GetTask() | CancelTask() | DeleteTask() | CompleteTask() | UpdateStatus() | Subscribe():
                raise TaskNotFound(operation.id)
            case CreatePushConfig() | GetPushConfig() | ListPushConfigs() | DeletePushConfig():
                raise PushNotificationNotSupported
            case GetExtendedCard():
                raise UnsupportedOperation("this server makes no tasks (tasks = false) and has no extended card")
            case _:
                assert_never(operation)

    async def stream(self, call: Call) -> OpenStream:
        """Raises UnsupportedOperation: there is nothing to follow."""
        if isinstance(call.operation, Subscribe):
            raise TaskNotFound(call.operation.id)
        raise UnsupportedOperation("this server keeps no tasks (tasks = false), so there is nothing to follow")

    async def look(self, call: Call) -> Result:
        """Answer as if there were no tasks: see `engine.handler.Handler.look`."""
        return await self.call(call)

    async def dialect_of(self, task_id: str, principal: Principal, agent: str, mount: str) -> str | None:
        """Always None: there are no tasks."""
        return None

    async def agent_of(self, task_id: str, principal: Principal, mount: str) -> str | None:
        """Always None: there are no tasks."""
        return None

    def _stub(self, call: Call, send: SendMessage) -> Record:
        now = timestamp(self._clock.now_ms())
        head = TaskHead(
            id=f"null_task_{new_id()[-8:]}",
            context_id=send.message.context_id or NO_CONTEXT,
            agent=call.agent,
            owner=call.principal.id,
            dialect=call.dialect,
            mount=call.mount,
            created_at=now,
        )
        return Record(head=head, seq=0, status=TaskStatus(state=TaskState.COMPLETED, timestamp=now))
