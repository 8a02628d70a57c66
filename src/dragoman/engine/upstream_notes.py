"""The notes in a task's log in which an agent of another server keeps what it knows of its task there.

Invariant: pure. A later note replaces an earlier one of the same name. Nothing in them is a secret.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from dragoman.model.task import CancelOutcome

_OUTCOMES: dict[str, CancelOutcome] = {"accepted": "accepted", "refused": "refused", "unanswered": "unanswered"}


MEMBER = "member"
"""The note that names the member of a pool which has a task."""

MEMBER_AWAY = "upstream_offline"
"""The reason of a task that failed because its conversation stays with a member of a pool that cannot be reached."""

CONVERSATION_AWAY = "the server that has the conversation cannot be reached"
"""The same, in words for any caller."""

ATTEMPTS_MAX = 20
"""Most failed attempts of one task that are kept: the newest."""

WHY_CHARS = 300
"""Most characters of the reason of one."""


class UpstreamAttempt(Struct, frozen=True, kw_only=True):
    """A member of a pool that has not carried out a task: when it was tried, the `reason` for programs, and `why`."""

    member: str
    at: str
    reason: str
    why: str = ""


class UpstreamNotes(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task at another server, as far as it is known here: its ids there, and its statuses. An unknown field is empty.

    `said` is the state that the other server last told, as `SPELLED`. `first` and `last` are the times of the first and
    the last status, by that server's clock. `lost` is when the connection broke, by our clock, if nothing has come
    since.

    Of an agent with several upstreams, `member` is the one that has the task, or is about to be sent it; `bound` is the
    one that had the conversation before, and `tried` holds the `attempts` that have failed.
    """

    task: str = ""
    context: str = ""
    said: str = ""
    first: str = ""
    last: str = ""
    lost: str = ""
    cancel: CancelOutcome | Literal[""] = ""
    member: str = ""
    bound: str = ""
    tried: str = ""

    @property
    def attempts(self) -> tuple[UpstreamAttempt, ...]:
        """The members that have not carried out the task, in order."""
        try:
            return msgspec.json.decode(self.tried, type=tuple[UpstreamAttempt, ...]) if self.tried else ()
        except msgspec.MsgspecError:  # other agents may have a note of that name
            return ()


NO_NOTES = UpstreamNotes()
"""Those of a task that has none."""


def write_attempts(attempts: Sequence[UpstreamAttempt]) -> str:
    """The note `tried` for attempts, of which the newest are kept."""
    return msgspec.json.encode(attempts[-ATTEMPTS_MAX:]).decode()


def read_upstream_notes(note: Mapping[str, str]) -> UpstreamNotes:
    """Read the notes of a task. Other names, which belong to the run alone, are passed over."""
    return UpstreamNotes(
        task=note.get("task", ""),
        context=note.get("context", ""),
        said=note.get("said", ""),
        first=note.get("first", ""),
        last=note.get("last", ""),
        lost=note.get("lost", ""),
        cancel=_OUTCOMES.get(note.get("cancel", ""), ""),
        member=note.get(MEMBER, ""),
        bound=note.get("bound", ""),
        tried=note.get("tried", ""),
    )
