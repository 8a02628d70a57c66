"""Access: an operator, and the entry in the audit trail that each access leaves under the operator's own name.

Invariant: work is noted with its outcome when it is over, whether it was done or refused.
"""

from collections.abc import Awaitable, Collection
from typing import Protocol, TypeVar

from msgspec import Struct

from dragoman.engine.handler import Handler
from dragoman.engine.handlers.audit import Trail
from dragoman.model.errors import A2AError, Unavailable
from dragoman.model.ids import Clock
from dragoman.store.api import StoreError
from dragoman.store.audit import AuditEntry

T = TypeVar("T")


class Operator(Struct, frozen=True):
    """The operator who asks: the id of the principal, and the address, without port."""

    principal: str
    peer: str = ""


class OperatedEngine(Handler, Protocol):
    """The engine as operators reach it, without admission, since they have no quota."""

    async def delete(self, task_ids: Collection[str]) -> tuple[str, ...]:
        """Delete those of the tasks that have ended, with their files. Returns their ids. Raises StoreError."""
        ...


class AccessNotes:
    """Notes what operators do in the audit trail."""

    def __init__(self, trail: Trail, clock: Clock) -> None:
        self._trail = trail
        self._clock = clock

    async def noted(
        self, operator: Operator, action: str, work: Awaitable[T], *, task_id: str = "", subject: str = ""
    ) -> T:
        """Await `work`, and note what became of it. Raises A2AError."""
        reason = ""
        try:
            return await work
        except A2AError as error:
            reason = type(error).__name__
            raise
        except StoreError as error:
            reason = Unavailable.__name__
            raise Unavailable("the server's store cannot answer now: try again", 5) from error
        finally:
            self.note(operator, action, task_id=task_id, subject=subject, reason=reason)

    def note(self, operator: Operator, action: str, *, task_id: str = "", subject: str = "", reason: str = "") -> None:
        """Note an action. `reason` is the class of the error that refused it."""
        self._trail.note(
            AuditEntry(
                at_ms=self._clock.now_ms(),
                principal=operator.principal,
                action=action,
                task_id=task_id,
                subject=subject,
                allowed=not reason,
                reason=reason,
                peer=operator.peer,
            )
        )
