"""Trail: gathers audit entries and writes them to the store in batches, and reports them to the log and the counters.

Invariant: callers never wait for it, and the gathered entries are bounded. While the store cannot write, the oldest
entries are dropped, and their number is logged.
"""

import asyncio
import logging
import re
from collections import deque
from enum import StrEnum

from msgspec import structs
from msgspec.json import encode

from dragoman.model.principal import ANONYMOUS, OPERATOR_PREFIX
from dragoman.store.api import StoreError
from dragoman.store.audit import AuditEntry, AuditTrail
from dragoman.telemetry.counts import Counts

log = logging.getLogger(__name__)
told = logging.getLogger("dragoman.audit")

WRITE_EVERY_S = 1.0
BATCH_ENTRIES = 256
"""Most entries in one write. As soon as so many are gathered, they are written without a further delay."""

RETRY_S = 5.0
"""Pause after a write that failed."""

HEAR_EVERY_S = 5.0
"""How often the trail is read for entries of commands that run beside the server."""

PENDING_MAX = 16_384
"""Most entries that wait: about 5 MB, or a few seconds of a busy server."""

ID_CHARACTERS = 100
"""Most characters kept of a task id, which a caller may have made up; genuine ids have 36."""

KEPT_REFUSALS = frozenset({"Unauthorized", "Forbidden", "TooManyRequests", "BudgetExhausted", "TaskNotFound"})
"""The refusals that are kept when only refusals are: attempts beyond the caller's rights, not its mistakes."""

FLOODING = KEPT_REFUSALS
"""Refusals that cost the caller nothing, such as that of a guessed id. Between two writes only one of several equal
ones is kept, and the log says how many there were."""

READS = (".list", ".show", ".log", ".content", ".wire", ".tree", ".deliveries", ".follow", ".export", ".record")
"""The ends of the names of administrative acts that change nothing."""

PLAIN = re.compile(r"[!#-<>-~]+", re.ASCII)
"""A value that needs no quotes in a line of the log: printable, without space, quote or equals sign."""


class Keeping(StrEnum):
    """The setting `audit`: which entries are kept."""

    AUTO = "auto"
    ALL = "all"
    REFUSED = "refused"
    OFF = "off"


EXEMPT = {
    Keeping.AUTO: frozenset({ANONYMOUS.id}),
    Keeping.ALL: frozenset[str](),
    Keeping.REFUSED: None,
    Keeping.OFF: None,
}


class Trail:
    """Gathers entries, and writes them at most once a second or `BATCH_ENTRIES` at a time, one write after the other.

    `auto` keeps every entry of an authenticated principal, and only the refusals of others. `counts` has all refusals,
    kept or not.
    """

    def __init__(self, audit: AuditTrail, keeping: Keeping | str, counts: Counts | None = None) -> None:
        self._audit = audit
        self._keeping = Keeping(keeping)
        self._counts = counts
        self._loop = asyncio.get_running_loop()
        self._pending: deque[AuditEntry] = deque()
        self._alike: dict[tuple[str, str, str, str, str, str], int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None
        self._failing = False
        self._dropped = 0
        self._heard: int | None = None
        """The end of the trail up to which the entries of commands were logged."""
        self.exempt = EXEMPT[self._keeping]
        """The principals whose allowed operations are not kept; None: nobody's are."""

    def keeps(self, principal: str) -> bool:
        """Whether the allowed operations of this principal are kept, too."""
        return self.exempt is not None and principal not in self.exempt

    def note(self, entry: AuditEntry) -> None:
        """Take an entry: a refusal, or an allowed operation that is to be kept."""
        reason = entry.reason
        if not entry.allowed:
            if self._counts is not None:
                self._counts.refused(reason)
            if self._keeping is Keeping.OFF or not (reason in KEPT_REFUSALS or self.keeps(entry.principal)):
                return
            if reason in FLOODING:
                alike = (entry.principal, entry.key, entry.action, entry.agent, reason, entry.peer)
                more = self._alike.get(alike)
                if more is not None:
                    self._alike[alike] = more + 1
                    return
                if len(self._alike) < PENDING_MAX:
                    self._alike[alike] = 0
        elif self._keeping is Keeping.OFF:
            return
        if len(entry.task_id) > ID_CHARACTERS:
            entry = structs.replace(entry, task_id=entry.task_id[:ID_CHARACTERS])
        level = logging.DEBUG if entry.allowed and not _changes(entry) else logging.INFO
        if told.isEnabledFor(level):
            _tell(level, entry)
        self._pending.append(entry)
        if self._writing is not None or self._failing:
            self._trim()
        elif len(self._pending) >= BATCH_ENTRIES:
            self._write()
        elif self._timer is None:
            self._timer = self._loop.call_later(WRITE_EVERY_S, self._write)

    async def hear(self) -> None:
        """Log the entries of commands from now on. Commands write them into the store themselves.

        Servers log their own entries when they take them, so those in the store are passed over, also those of others.
        """
        while self._keeping is not Keeping.OFF:
            try:
                self._heard, acts = await self._audit.acts(self._heard)
            except StoreError as error:
                log.warning("the audit trail cannot be read, the next try is in %g s: %s", HEAR_EVERY_S, error)
                acts = ()
            for act in acts:
                if act.principal.startswith(OPERATOR_PREFIX) and not act.peer:  # a server notes an address
                    _tell(logging.INFO, act)
            await asyncio.sleep(HEAR_EVERY_S)

    async def stop(self) -> None:
        """Write the remaining entries. Those that the store does not take are lost, and their number is logged."""
        while self._pending or self._writing is not None:
            if self._writing is None:
                self._write()
            if self._writing is not None:
                await asyncio.wait([self._writing])
            if self._failing:
                log.error("the store did not take the end of the audit trail: %d entries are lost", len(self._pending))
                self._pending.clear()
        self._rest()

    def _write(self) -> None:
        self._rest()
        self._tell_repeats()
        pending = self._pending
        batch = [pending.popleft() for _ in range(min(BATCH_ENTRIES, len(pending)))]
        try:
            self._writing = self._audit.write(batch)
        except StoreError as error:
            self._failed(batch, error)
        else:
            self._writing.add_done_callback(lambda written: self._written(batch, written))

    def _written(self, batch: list[AuditEntry], written: "asyncio.Future[None]") -> None:
        self._writing = None
        error = asyncio.CancelledError() if written.cancelled() else written.exception()
        if error is not None:
            self._failed(batch, error)
            return
        if self._failing:
            self._failing = False
            log.info("the audit trail is written again")
        if len(self._pending) >= BATCH_ENTRIES:
            self._write()
        elif self._pending:
            self._timer = self._loop.call_later(WRITE_EVERY_S, self._write)

    def _failed(self, batch: list[AuditEntry], error: BaseException) -> None:
        """Keep the entries of a failed write for another try, as far as there is room."""
        self._pending.extendleft(reversed(batch))
        self._trim()
        if not self._failing:
            log.warning("the audit trail cannot be written, the next try is in %g s: %s", RETRY_S, error)
        if self._dropped:
            log.error("the audit trail has a gap: the store could not take the oldest %d entries", self._dropped)
            self._dropped = 0
        self._failing = True
        self._timer = self._loop.call_later(RETRY_S, self._write)

    def _trim(self) -> None:
        while len(self._pending) > PENDING_MAX:
            self._pending.popleft()
            self._dropped += 1

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell_repeats(self) -> None:
        for (principal, key, action, agent, reason, peer), more in self._alike.items():
            if more:
                entry = AuditEntry(
                    at_ms=0,
                    principal=principal,
                    action=action,
                    agent=agent,
                    allowed=False,
                    reason=reason,
                    peer=peer,
                    key=key,
                )
                _tell(logging.INFO, entry, repeated=str(more))
        self._alike.clear()


def _changes(entry: AuditEntry) -> bool:
    """Whether it is an administrative act that changes something, whose names have a dot."""
    return "." in entry.action and not entry.action.endswith(READS)


def _tell(level: int, entry: AuditEntry, **more: str) -> None:
    """Log one line: `refused Forbidden principal=key:ci action=SendMessage agent=echo`; in JSON each is a field."""
    fields = {
        "principal": entry.principal,
        "key": entry.key,
        "action": entry.action,
        "agent": entry.agent,
        "task_id": entry.task_id,
        "subject": entry.subject,
        "peer": entry.peer,
    } | more
    fields = {name: value for name, value in fields.items() if value}
    outcome = "allowed" if entry.allowed else f"refused {entry.reason}"
    words = " ".join(f"{name}={_word(value)}" for name, value in fields.items())
    fields["outcome"] = "allowed" if entry.allowed else "refused"
    if entry.reason:
        fields["reason"] = entry.reason
    told.log(level, "%s %s", outcome, words, extra={"fields": fields})


def _word(value: str) -> str:
    return value if PLAIN.fullmatch(value) else encode(value).decode()
