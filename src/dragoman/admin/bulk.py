"""Bulk acts: a job cancels, deletes or sends again all tasks that a query finds. It can be watched and stopped.

Invariant: pure values. A job changes at most `TASKS_MAX` tasks.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import fields

from dragoman.admin.question import Column, Question
from dragoman.admin.tasks import (
    ENDS,
    OPEN,
    STATES_BY_WORD,
    ChangeFailure,
    Reason,
    StateWord,
    TaskFilter,
)
from dragoman.model.errors import InvalidParams
from dragoman.model.task import TERMINAL

TASKS_MAX = 10_000
"""Most tasks of one job."""

FAILURES_MAX = 20
"""Most failures that a job tells of one by one."""

BulkAction = Literal["cancel", "delete", "send-again"]

BulkState = Literal["waiting", "finding", "working", "ended", "stopped", "failed", "interrupted"]


class BulkRequest(TaskFilter, frozen=True, kw_only=True):
    """Cancel, delete or send again the tasks that fit, at most `limit`. With `dry_run` they are only counted.

    `cancel` is about open tasks, and the other two about those that have ended; with `force`, `delete` cancels open
    ones before. `reason` goes into the logs of canceled tasks.
    """

    action: BulkAction
    limit: Annotated[int, Meta(ge=1, le=TASKS_MAX)] = TASKS_MAX
    dry_run: bool = False
    force: bool = False
    reason: Reason = ""

    @property
    def states(self) -> tuple[StateWord, ...]:
        """The states of the tasks that it is about."""
        if self.state is not None:
            return (self.state,)
        if self.action == "cancel":
            return OPEN
        return (*OPEN, *ENDS) if self.force and self.action == "delete" else ENDS

    @property
    def query(self) -> str:
        """The filter as text: `state=failed agent=echo`."""
        values = [(field.encode_name, getattr(self, field.name)) for field in fields(TaskFilter)]
        return " ".join(f"{name}={value}" for name, value in values if value is not None)


class BulkJob(Struct, frozen=True, kw_only=True):
    """A job, as it stood a second ago.

    It has `found` so many tasks, of which it has changed `done`. It left out `skipped`, which had another state by
    then. `failed` could not be changed; the first of them are `failures`. `more`: tasks beyond the limit fit as well.
    A job is `interrupted` if its server ended, and has `failed` if the store could not answer the query. `by` started
    it.
    """

    id: str
    action: BulkAction
    query: str
    by: str
    state: BulkState
    started_at: str
    dry_run: bool = False
    found: int = 0
    done: int = 0
    skipped: int = 0
    failed: int = 0
    failures: tuple[ChangeFailure, ...] = ()
    more: bool = False

    @property
    def open(self) -> bool:
        """Whether the job goes on."""
        return self.state in ("waiting", "finding", "working")


class BulkQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The job with an `id`, or all of the last day. An operator of the server knows those of all teams."""

    id: str = ""


class BulkJobs(Struct, frozen=True, kw_only=True):
    """Jobs, the newest first."""

    jobs: tuple[BulkJob, ...]


def check_bulk(wanted: BulkRequest) -> None:
    """Check which tasks are meant. Raises InvalidParams."""
    if wanted.empty:
        raise InvalidParams("filter", "is empty: name the tasks; older_than_s = 0 selects every task")
    ended = wanted.state is not None and STATES_BY_WORD[wanted.state] in TERMINAL
    if wanted.action == "cancel" and ended:
        raise InvalidParams("state", f"{wanted.state} is an end: choose one of {', '.join(OPEN)}")
    forced = wanted.force and wanted.action == "delete"
    if wanted.action != "cancel" and wanted.state is not None and not (ended or forced):
        raise InvalidParams("state", f"{wanted.state} is no end: choose one of {', '.join(ENDS)}")


START_BULK = Question(
    name="startBulk",
    of_teams=True,
    method="POST",
    path="/bulk",
    summary="Cancel, delete or send again all tasks that fit a filter, at most 10,000, as a job.",
    given=BulkRequest,
    answer=BulkJob,
    check=check_bulk,
)
"""The audit trail has one entry of a job, with the query and the number of tasks, before it changes the first one."""

LIST_BULK = Question(
    name="listBulk",
    of_teams=True,
    path="/bulk",
    summary="Show the jobs that act on many tasks, of the last day.",
    given=BulkQuery,
    answer=BulkJobs,
    action="bulk.list",
    lines="jobs",
    columns=(
        *(Column("ID", "id"), Column("ACTION", "action"), Column("STATE", "state"), Column("FOUND", "found")),
        *(Column("DONE", "done"), Column("SKIPPED", "skipped"), Column("FAILED", "failed"), Column("QUERY", "query")),
    ),
)
STOP_BULK: Question[None, BulkJob] = Question(
    name="stopBulk",
    of_teams=True,
    method="POST",
    path="/bulk/{id}:stop",
    summary="Stop a job that acts on many tasks. What it has changed stays changed.",
    answer=BulkJob,
    action="bulk.stop",
)
