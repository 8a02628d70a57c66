"""The notes in a task's log in which an agent of another server keeps what it knows of its task there.

Invariant: pure. A later note replaces an earlier one of the same name. Nothing in them is a secret.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from dragoman.model.task import CancelOutcome

_OUTCOMES: dict[str, CancelOutcome] = {"accepted": "accepted", "refused": "refused", "unanswered": "unanswered"}


class UpstreamNotes(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task at another server, as far as it is known here: its ids there, and its statuses. An unknown field is empty.

    `said` is the state that the other server last told, as `SPELLED`. `first` and `last` are the times of the first and
    the last status, by that server's clock. `lost` is when the connection broke, by our clock, if nothing has come
    since.
    """

    task: str = ""
    context: str = ""
    said: str = ""
    first: str = ""
    last: str = ""
    lost: str = ""
    cancel: CancelOutcome | Literal[""] = ""


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
    )
