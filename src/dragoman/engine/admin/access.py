"""Access: an operator, and the entry in the audit trail that each access leaves under the operator's own name.

Invariant: work is noted with its outcome when it is over, whether it was done or refused. Only a read that the same
operator repeats within a minute is not noted again.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from msgspec import Struct

from dragoman.engine.handlers.audit import READS
from dragoman.model.errors import A2AError, Unavailable
from dragoman.model.ids import Clock
from dragoman.store.api import StoreError
from dragoman.store.audit import AuditEntry

REPEATED_MS = 60_000
"""A page that is left open reads the same again and again: that is noted once in this time."""

REMEMBERED = 1000
"""Most reads that are remembered. Beyond that they are noted more often, never less."""

T = TypeVar("T")


class Operator(Struct, frozen=True):
    """The operator who asks: the id of the principal, the address, without port, and the id of the key, if any.

    An operator of one `team` reaches the `agents` of that; None: all.
    """

    principal: str
    peer: str = ""
    key: str = ""
    team: str = ""
    agents: frozenset[str] | None = None


class EntryTaker(Protocol):
    """The audit trail, as far as it takes entries: see `engine.handlers.audit.Trail`."""

    def note(self, entry: AuditEntry) -> None: ...


class AccessNotes:
    """Notes what operators do in the audit trail."""

    def __init__(self, trail: EntryTaker, clock: Clock) -> None:
        self._trail = trail
        self._clock = clock
        self._read_ms: dict[tuple[Operator, str, str, str], int] = {}
        """When each operator last read a thing, by the entry's own words."""

    async def noted(
        self,
        operator: Operator,
        action: str,
        work: Awaitable[T],
        *,
        task_id: str = "",
        subject: str = "",
        made: Callable[[T], str] | None = None,
    ) -> T:
        """Await `work`, and note what became of it. `made` tells the subject by the result. Raises A2AError."""
        reason = ""
        try:
            result = await work
            subject = subject if made is None else made(result)
            return result
        except A2AError as error:
            reason = type(error).__name__
            raise
        except StoreError as error:
            reason = Unavailable.__name__
            raise store_away() from error
        finally:
            self.note(operator, action, task_id=task_id, subject=subject, reason=reason)

    def note(self, operator: Operator, action: str, *, task_id: str = "", subject: str = "", reason: str = "") -> None:
        """Note an action. `reason` is the class of the error that refused it."""
        now_ms = self._clock.now_ms()
        if not reason and action.endswith(READS) and self._repeats((operator, action, task_id, subject), now_ms):
            return
        self._trail.note(
            AuditEntry(
                at_ms=now_ms,
                principal=operator.principal,
                action=action,
                task_id=task_id,
                subject=subject,
                allowed=not reason,
                reason=reason,
                peer=operator.peer,
                key=operator.key,
            )
        )

    def _repeats(self, read: tuple[Operator, str, str, str], now_ms: int) -> bool:
        """Whether the same was noted less than a minute ago."""
        last_ms = self._read_ms.get(read)
        if last_ms is not None and 0 <= now_ms - last_ms < REPEATED_MS:
            return True
        if len(self._read_ms) >= REMEMBERED:
            self._read_ms.clear()
        self._read_ms[read] = now_ms
        return False


def store_away() -> Unavailable:
    """Build the refusal of a question that the store cannot answer now."""
    return Unavailable("the server's store cannot answer now: try again", 5)
