"""The keys of callers as operators list, make, limit, replace and revoke them, and what a key began.

Invariant: pure values. A key itself is in `IssuedKey` alone.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, replace

from dragoman.admin.question import Column, Question
from dragoman.admin.tasks import StateWord
from dragoman.model.principal import AccessRole, KeyLimits, Scope


class BegunStreams(Struct, frozen=True, kw_only=True):
    """The open streams of a key on one server."""

    server: str
    streams: int


class BegunWebhook(Struct, frozen=True, kw_only=True):
    """A webhook of a key. `host` is `scheme://host:port` of its URL."""

    task: str
    agent: str
    id: str
    host: str


class BegunTask(Struct, frozen=True, kw_only=True):
    """A task of a key that has not ended."""

    id: str
    agent: str
    state: StateWord
    created_at: str


class KeyStopLine(Struct, frozen=True, kw_only=True):
    """A request to end what the key began, its tasks too or not. `done` is null while servers work on it.

    `left` counts the tasks that could not be canceled at the last attempt; another one follows.
    """

    asked: str
    by: str
    tasks: bool
    done: str | None
    left: int


class KeyBeginnings(Struct, frozen=True, kw_only=True):
    """The beginnings of a key that go on. Streams are those of a moment ago.

    `webhooks` and `tasks` list some of them: `more_webhooks` says whether there are others, `open_tasks` counts all
    tasks that have not ended. `unknown_tasks` and `unknown_webhooks` count those of the same caller that have no key
    noted, since they came before keys were: any key of that name may have begun them.
    """

    streams: tuple[BegunStreams, ...]
    webhooks: tuple[BegunWebhook, ...]
    more_webhooks: bool
    tasks: tuple[BegunTask, ...]
    open_tasks: int
    unknown_tasks: int
    unknown_webhooks: int
    stop: KeyStopLine | None = None


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}", re.ASCII)


EXPIRES_MAX_S = 36_525 * 86_400
"""The longest validity. More than a century is a typing error, and may exceed what a date can express."""


OVERLAP_MAX_S = 30 * 86_400
"""The longest time for which a key counts beside the one that replaces it."""


class BareRole(Struct, frozen=True):
    """Why keys of a role go without agents and scopes, and without limits."""

    reach: str
    rate: str


TEAMLESS_ROLES: Mapping[AccessRole, str] = MappingProxyType(
    {
        AccessRole.AGENT: "a worker does the tasks of every team",
        AccessRole.MONITOR: "/metrics are those of the whole server",
        AccessRole.ADMIN: "/metrics are those of the whole server",
    }
)
"""The roles whose keys are in no team, and why."""


BARE_ROLES: Mapping[AccessRole, BareRole] = MappingProxyType(
    {
        AccessRole.OPERATOR: BareRole("it reaches every task", "the admin API has none"),
        AccessRole.MONITOR: BareRole("it reaches no agent", "/metrics has none"),
    }
)
"""The roles whose keys have no restrictions of their own."""


KeyState = Literal["active", "expired", "revoked"]


ExpiryS = Annotated[int, Meta(ge=1, le=EXPIRES_MAX_S)]


class KeyQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys that fit every field that is set, a page of at most `limit` after `cursor`.

    With `agent` they are those that reach it: their own agents include it, and so do those of their team.
    """

    name: str | None = None
    role: AccessRole | None = None
    state: KeyState | None = None
    team: str | None = None
    agent: str | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: str = ""


class KeyLine(Struct, frozen=True, kw_only=True):
    """A key without its secret. `agents` and `scopes` null: all; `limits` null: those of the server's settings.

    `in_use`: the request that asks was sent with this key, or belongs to a session that was begun with it.
    `one_person`: one person alone uses the key. `team` is that of its caller, and left out if it has none.
    """

    id: str
    name: str
    role: AccessRole
    agents: tuple[str, ...] | None
    scopes: tuple[Scope, ...] | None
    limits: KeyLimits | None
    made: str
    expires: str | None
    revoked: str | None
    state: KeyState
    in_use: bool = False
    one_person: bool = False
    team: str | UnsetType = UNSET


class KeyLines(Struct, frozen=True, kw_only=True):
    """A page of keys, oldest first. `next_cursor` is empty on the last page. `total` counts those on all pages."""

    keys: tuple[KeyLine, ...]
    total: int
    next_cursor: str = ""


class LimitChanges(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a key to set. Null takes one away, so that the server's setting holds; one that is left out stays."""

    max_requests_per_s: Annotated[int, Meta(ge=1, le=1_000_000)] | UnsetType | None = UNSET
    max_open_tasks: Annotated[int, Meta(ge=1, le=1 << 31)] | UnsetType | None = UNSET
    max_daily_tasks: Annotated[int, Meta(ge=1, le=1 << 31)] | UnsetType | None = UNSET
    max_daily_tokens: Annotated[int, Meta(ge=1, le=1 << 53)] | UnsetType | None = UNSET

    def apply(self, limits: KeyLimits | None) -> KeyLimits | None:
        """The limits after these changes; None if the key has none of its own."""
        changes = {name: value for name, value in asdict(self).items() if value is not UNSET}
        changed = replace(limits or KeyLimits(), **changes)
        return None if changed == KeyLimits() else changed


class KeyRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key to make. `agents` and `scopes` null: all. `expires_s` seconds from now; null: never.

    With `one_person` it promises that one person alone uses it, so that an answer in a chat may be recognised by the
    turns before it. `team` is the team that its caller is in; empty for none, or that of the operator who asks.

    With `force` the first key of a server without authentication may be one that is no operator's. When the server
    starts again, nobody is an operator until somebody makes another key on its machine.
    """

    name: str
    role: AccessRole = AccessRole.CALLER
    agents: tuple[str, ...] | None = None
    scopes: tuple[Scope, ...] | None = None
    expires_s: ExpiryS | None = None
    limits: LimitChanges = LimitChanges()
    one_person: bool = False
    team: str = ""
    force: bool = False


class RotateRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a key is replaced. The old one counts for another `overlap_s` seconds.

    The new one is valid for `expires_s` seconds; null: for as long as the old one was when it was made.
    """

    overlap_s: Annotated[int, Meta(ge=0, le=OVERLAP_MAX_S)] = 0
    expires_s: ExpiryS | None = None


class RevokeRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With `force` also the key that the request itself was sent with.

    With `stop` servers end the streams and remove the webhooks that this key began, also if it was revoked before; with
    `tasks` they cancel its open tasks, too. With `dry_run` nothing changes, and the answer says what would end.
    """

    force: bool = False
    stop: bool = False
    tasks: bool = False
    dry_run: bool = False


class IssuedKey(Struct, frozen=True, kw_only=True):
    """A key that was just made. `secret` is the key itself, which nobody can read again.

    `first`: from now on every caller must send a key. `others` are the ids of the active keys of the same caller.
    `replaced` is the key in whose place it was made.
    """

    secret: str
    key: KeyLine
    first: bool = False
    others: tuple[str, ...] = ()
    replaced: KeyLine | None = None


class RevokedKey(Struct, frozen=True, kw_only=True):
    """A key that is revoked. `changed` is false if it was before.

    `began`, if it is to stop, is what it began and goes on as of the request; servers end it within 2 s. A `dry_run`
    changed nothing.
    """

    key: KeyLine
    changed: bool
    began: KeyBeginnings | None = None
    dry_run: bool = False


def revoke_action(wanted: RevokeRequest) -> str:
    """The action in the audit trail: a dry run only reads."""
    if wanted.dry_run:
        return "keys.show"
    return "keys.stop" if wanted.stop else "keys.revoke"


def _replaced(_: RotateRequest, issued: IssuedKey) -> str:
    """The old key and the new one."""
    return f"{'' if issued.replaced is None else issued.replaced.id},{issued.key.id}"


LIST_KEYS = Question(
    name="listKeys",
    of_teams=True,
    path="/keys",
    summary="List the keys of callers, oldest first, without their secrets.",
    given=KeyQuery,
    answer=KeyLines,
    action="keys.list",
    stored=True,
    quiet=True,
    lines="keys",
    columns=(
        *(Column("ID", "id"), Column("NAME", "name"), Column("ROLE", "role"), Column("AGENTS", "agents")),
        *(Column("SCOPES", "scopes"), Column("LIMITS", "limits"), Column("USERS", "one_person")),
        *(Column("TEAM", "team"), Column("MADE", "made", "moment")),
        *(Column("EXPIRES", "expires", "moment"), Column("STATE", "state")),
    ),
)
CREATE_KEY = Question(
    name="createKey",
    of_teams=True,
    method="POST",
    path="/keys",
    summary="Make a key. Its secret is in this answer alone.",
    given=KeyRequest,
    answer=IssuedKey,
    action="keys.create",
    stored=True,
    made=lambda _, issued: issued.key.id,
)
LIMIT_KEY = Question(
    name="limitKey",
    of_teams=True,
    method="POST",
    path="/keys/{id}:limit",
    summary="Change limits of a key.",
    given=LimitChanges,
    answer=KeyLine,
    action="keys.update",
    stored=True,
)
ROTATE_KEY = Question(
    name="rotateKey",
    of_teams=True,
    method="POST",
    path="/keys/{id}:rotate",
    summary="Replace a key, whose caller and rights stay. The secret of the new one is in this answer alone.",
    given=RotateRequest,
    optional=True,
    answer=IssuedKey,
    action="keys.rotate",
    stored=True,
    made=_replaced,
)
REVOKE_KEY = Question(
    name="revokeKey",
    of_teams=True,
    method="POST",
    path="/keys/{id}:revoke",
    summary="Revoke a key for good, and with stop end what it began.",
    given=RevokeRequest,
    optional=True,
    answer=RevokedKey,
    action=revoke_action,
    stored=True,
    quiet=lambda wanted, revoked: not (revoked.changed or wanted.stop),
)
SHOW_BEGUN: Question[None, KeyBeginnings] = Question(
    name="showBegun",
    of_teams=True,
    path="/keys/{id}/begun",
    summary="Show what one key began that goes on: streams, webhooks and tasks.",
    answer=KeyBeginnings,
    action="keys.show",
    stored=True,
)
SHOW_KEY: Question[None, KeyLine] = Question(
    name="showKey",
    of_teams=True,
    path="/keys/{id}",
    summary="Show one key, without its secret.",
    answer=KeyLine,
    action="keys.show",
    stored=True,
)
