"""A question of an operator, or an act: one row of the table from which the admin API, its clients and commands come.

Invariant: pure values. A row says what is asked, what is answered, and what the audit trail keeps of it. How the answer
is found stands where it is found: `engine/admin/operator_desk.py` has a function for each row.
"""

from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, TypeVar, get_type_hints
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

PREFIX = "/admin/v1"
"""The path below which every server answers operators."""

SUBJECT_CHARACTERS = 100
"""Most characters of an id that the audit trail keeps: somebody may have made it up."""

Given = TypeVar("Given")
Answer = TypeVar("Answer")

Spelling = Literal["plain", "age", "moment"]
"""How a value is shown to people: as it is, as the age that a number of seconds is, or as a time to the second."""


class Column(Struct, frozen=True):
    """A column of a table for people: its head, and the field of a line that it shows."""

    head: str
    field: str
    spelling: Spelling = "plain"


class Question(Struct, Generic[Given, Answer], frozen=True, kw_only=True):
    """A question or an act. `name` is that of the operation, and `path` is below the prefix; `{id}` in it is an id, and
    `{member}` the name of a member of an agent's pool.

    `given` is read from the body of a POST or PATCH, otherwise from the query; None if nothing is given. `optional`:
    the body may be left out. `answer` is what comes back. A stream has `events` by their names instead, or also, for
    those who accept `text/event-stream`.

    Each answer has an entry in the audit trail with the `action`; streams, and questions without an action, note
    themselves. The entry's task is the id in a path of tasks; its subject is the id in another path, or `subject`,
    which `made` replaces once there is an answer. `check` raises InvalidParams for what is refused without an entry.
    A store answers what is `stored`, also without a server; of a `quiet` question it makes no entry then.

    Several operators who ask the same at the same moment get one answer if it is `shared`. The answer of a `versioned`
    one has the object's `version`, which is its ETag; If-Match (RFC 9110 §13.1.1) is another name for `version` in what
    is given.

    Operators of one team may ask a question `of_teams`, and are answered from what their team has. All others are about
    the whole server, and refused to them.

    For people, `lines` names the field of the answer that has the lines of a table, with these `columns`; if there are
    none, `none` says so. `cursor` names the field of the query, and that of the answer, by which a next page is asked.
    """

    name: str
    path: str
    summary: str
    method: Literal["GET", "POST", "PATCH", "DELETE"] = "GET"
    given: type[Given] | None = None
    optional: bool = False
    answer: type[Answer] | None = None
    events: Mapping[str, type[Struct]] = {}
    action: str | Callable[[Given], str] = ""
    followed: str = ""
    check: Callable[[Given], object] | None = None
    subject: Callable[[Given], str] | None = None
    made: Callable[[Given, Answer], str] | None = None
    stored: bool = False
    quiet: bool | Callable[[Given, Answer], bool] = False
    shared: bool = False
    versioned: bool = False
    of_teams: bool = False
    lines: str = ""
    columns: tuple[Column, ...] = ()
    none: str = "There are none."
    cursor: tuple[str, str] = ("cursor", "next_cursor")

    @property
    def has_body(self) -> bool:
        """Whether what is given is the body of the request."""
        return self.method in ("POST", "PATCH")

    @property
    def takes_version(self) -> bool:
        """Whether a request may name the version that it is about, by `version` or by If-Match."""
        return self.versioned and "version" in getattr(self.given, "__struct_fields__", ())

    def place(self, of: str = "") -> str:
        """The path below the server's URL, with the id `of`. That of a member is the agent, a slash, and its name."""
        whole, member = of.split("/", 1) if "{member}" in self.path else (of, "")
        return PREFIX + self.path.replace("{id}", quote(whole, safe="")).replace("{member}", quote(member, safe=""))

    def action_of(self, given: Given) -> str:
        """The action that the audit trail names."""
        return self.action if isinstance(self.action, str) else self.action(given)

    def task_of(self, of: str) -> str:
        """The task that the entry in the audit trail is about; empty for none."""
        return of if self.path.startswith("/tasks/") else ""

    def subject_of(self, of: str, given: Given, answer: Answer | None) -> str:
        """The subject of the entry in the audit trail, before and after there is an answer."""
        if self.made is not None and answer is not None:
            return self.made(given, answer)
        if self.subject is not None:
            return self.subject(given)
        return "" if self.path.startswith("/tasks/") else of[:SUBJECT_CHARACTERS]

    def quiet_about(self, given: Given, answer: Answer) -> bool:
        """Whether an answer from a store needs no entry."""
        return self.quiet if isinstance(self.quiet, bool) else self.quiet(given, answer)

    def line_members(self) -> tuple[str, ...]:
        """The names of what a line has, in their order."""
        assert self.answer is not None
        lines: Any = get_type_hints(self.answer)[self.lines]
        members: tuple[str, ...] = lines.__args__[0].__struct_fields__
        return members

    def next_page(self, given: Given, answer: Answer) -> Given | None:
        """The query for the page after `answer`; None after the last one."""
        asked, told = self.cursor
        position = getattr(answer, told)
        if position is None or position == "":
            return None
        changed: Any = replace(given, **{asked: position})  # type: ignore[type-var]  # a query is a struct
        found: Given = changed
        return found


AnyQuestion = Question[Any, Any]
