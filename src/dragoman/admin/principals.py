"""The data of one principal, as operators export and delete it.

Invariant: pure values. An export has no secret: neither a key nor what signs or authorises webhook calls.
"""

from typing import Annotated

from msgspec import Meta, Struct

from dragoman.admin.question import SUBJECT_CHARACTERS, Question
from dragoman.admin.tasks import ChangeFailure

PrincipalName = Annotated[str, Meta(min_length=1, max_length=2000)]
"""A principal as lists of tasks show it: `key:ann`, or the issuer and the subject of tokens."""


class HeldData(Struct, frozen=True, kw_only=True):
    """How much is kept of a principal.

    `open_tasks` are those of the `tasks` that have not ended. `webhooks`, `deliveries`, `receipts` and remembered
    `calls` belong to these tasks. `memory` counts entries of what agents keep beside tasks: memory, checkpoints and
    sessions. `usage` counts sums of days. `audit` counts the entries of the audit trail that name
    the principal.
    """

    tasks: int
    open_tasks: int
    webhooks: int
    deliveries: int
    receipts: int
    calls: int
    memory: int
    usage: int
    keys: int
    audit: int

    @property
    def empty(self) -> bool:
        """Whether there is nothing."""
        return not any(getattr(self, name) for name in HeldData.__struct_fields__)


class ExportQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The data of a `principal`, a page after `cursor`."""

    principal: PrincipalName
    cursor: Annotated[str, Meta(max_length=10_000)] = ""


class ExportPiece(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of a file of an export. The pieces of a `path` follow one another, and `last` says which ends the file.

    It is `text`, or the bytes `raw`, as base64.
    """

    path: str
    text: str = ""
    raw: bytes = b""
    last: bool = False


class ExportPage(Struct, frozen=True, kw_only=True):
    """Pieces of the files of an export, in their order. `next_cursor` is empty on the last page.

    A task that changes meanwhile comes again, later: its files then take the place of those before.
    """

    pieces: tuple[ExportPiece, ...]
    next_cursor: str = ""


class PrincipalDeletion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Delete all data of a `principal`. With `dry_run` it is only counted.

    With `cancel_open` the tasks that have not ended are canceled first; otherwise there may be none.
    """

    principal: PrincipalName
    cancel_open: bool = False
    dry_run: bool = False


class PrincipalReport(Struct, frozen=True, kw_only=True):
    """The outcome of deleting the data of a principal.

    `held` is what there was when the request began. `tasks` were deleted by it. `alias` stands in the place of the name
    in the audit trail. `more`: the request ended before the work did, and is to be repeated. `failed` lists tasks
    that could not be canceled, 20 at most: nothing else was deleted then.
    """

    principal: str
    dry_run: bool
    held: HeldData
    tasks: int = 0
    alias: str = ""
    more: bool = False
    failed: tuple[ChangeFailure, ...] = ()


def deletion_action(wanted: PrincipalDeletion) -> str:
    """The action in the audit trail: a dry run only reads."""
    return "principals.show" if wanted.dry_run else "principals.delete"


def _renamed(wanted: PrincipalDeletion, report: PrincipalReport) -> str:
    """The subject of the entry: the alias, once there is one, and no name that nobody has."""
    return report.alias or ("" if report.held.empty else wanted.principal[:SUBJECT_CHARACTERS])


EXPORT_PRINCIPAL = Question(
    name="exportPrincipal",
    of_teams=True,
    path="/principals:export",
    summary="Export the data of one principal, a page of its files at a time.",
    given=ExportQuery,
    answer=ExportPage,
    action="principals.export",
    subject=lambda wanted: wanted.principal[:SUBJECT_CHARACTERS],
    stored=True,
)
DELETE_PRINCIPAL = Question(
    name="deletePrincipal",
    of_teams=True,
    method="POST",
    path="/principals:delete",
    summary="Delete the data of one principal, as much as a request has time for, or count it with dry_run.",
    given=PrincipalDeletion,
    answer=PrincipalReport,
    action=deletion_action,
    subject=lambda wanted: wanted.principal[:SUBJECT_CHARACTERS],
    made=_renamed,
)
