"""Webhook deliveries and paused hosts as operators see and change them.

Invariant: pure values. Nothing in an answer is a secret.
"""

from collections.abc import Collection
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from dragoman.admin.question import Column, Question
from dragoman.dialects.json_bounds import EXACT_MAX
from dragoman.model.errors import InvalidParams
from dragoman.net.errors import BadUrl
from dragoman.net.target import target


class PausedHostLine(Struct, frozen=True, kw_only=True):
    """A host to which nothing is sent, since when and by whom. `waiting` counts the deliveries that wait for it."""

    host: str
    since: str
    by: str
    waiting: int


class HostName(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A host of webhooks: `hooks.example.org`, one port of it `hooks.example.org:8443`, or `https://hooks.example.org`."""

    host: str


class PausedHostLines(Struct, frozen=True, kw_only=True):
    """The paused hosts, by name. `waiting` counts all deliveries that wait, each once."""

    hosts: tuple[PausedHostLine, ...]
    waiting: int


class HostChanged(Struct, frozen=True, kw_only=True):
    """A host that is paused now, or not any more. `changed` is false if it was so before.

    `waiting` counts the deliveries that wait, or that were waiting. After a resume `held` of them still wait, because
    another paused host covers theirs, and `later` go out when their next attempt is due, the first at `next`. All
    others go out now.
    """

    host: str
    paused: bool
    changed: bool
    waiting: int
    held: int = 0
    later: int = 0
    next: str | None = None


class NotSentAgain(Struct, frozen=True, kw_only=True):
    """A delivery that arrived and is not sent again, and why."""

    number: int
    reason: str


DeliveryState = Literal["pending", "dead", "delivered"]


DeliveryStatus = Literal["delivered", "dead", "sending", "paused", "in-turn", "retrying", "due"]


LaneWord = Literal["answers", "unknown", "failing"]


class DeliveryQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Deliveries in a `state`, at most `limit`, with numbers above `after`; without a state the pending and dead ones.

    Those that were delivered come newest first, with numbers below `before`. With `task` only those of one task. `dead`
    true and false mean the states `dead` and `pending`. With `host` (`scheme://host:port`) only those to it,
    of the pending and dead ones.
    """

    state: DeliveryState | None = None
    dead: bool | None = None
    before: Annotated[int, Meta(ge=1, le=EXACT_MAX)] | None = None
    task: str | None = None
    host: str | None = None
    after: Annotated[int, Meta(ge=0, le=EXACT_MAX)] = 0
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100


class DeliveryLine(Struct, frozen=True, kw_only=True):
    """A delivery. `made` is when it was written, and so due for the first time. `failed` counts failed attempts.

    `next` is when it is tried next; null if it was delivered, is dead, or waits for one before it. `reason` is why the
    last failed attempt failed. `host` is that of its URL as `scheme://host:port`. `paused`: it waits until an operator
    resumes that host. `arrived` is when it was delivered, `http_status` the answer, which came after `took_ms`.
    """

    number: int
    id: str
    task: str
    agent: str
    config: str
    url: str
    seq: int
    made: str
    failed: int
    dead: bool
    next: str | None
    reason: str
    host: str = ""
    paused: bool = False
    state: DeliveryState = "pending"
    arrived: str | None = None
    http_status: int | None = None
    took_ms: int | None = None


class DeliveryReport(DeliveryLine, frozen=True, kw_only=True):
    """A delivery with its standing.

    `status` is `delivered` if it arrived; `obstacle` is then why it cannot be sent again, or null. It is `dead` if it
    was given up; `sending` while it is under way, until `claimed_until` at the latest;
    `paused` if its host is, by `pauses`; `in-turn` while it waits for the `before` deliveries of its configuration;
    `retrying` while it waits for its next attempt; `due` if it is about to be sent. `behind` deliveries wait for it.
    `lane` tells about the host: it `answers`, be it with errors; it is `failing` since a call to it found no answer,
    until one arrives; or it is `unknown`, because it was not called yet. Null if the delivery has arrived.
    """

    status: DeliveryStatus
    part: int
    dialect: str
    size_bytes: int
    lane: LaneWord | None
    claimed_until: str | None
    before: int
    behind: int
    pauses: tuple[PausedHostLine, ...] = ()
    obstacle: str | None = None


class DeliveryLines(Struct, frozen=True, kw_only=True):
    """Deliveries in their order. More follow if `next_after` is not null: ask again with it as `after`.

    More deliveries that arrived follow if `next_before` is not null. `pending`, `paused` and `dead` count all
    that there are; those of paused hosts are pending, too.
    """

    deliveries: tuple[DeliveryLine, ...]
    pending: int
    dead: int
    paused: int = 0
    next_after: int | None = None
    next_before: int | None = None


class DeliveryGroup(Struct, frozen=True, kw_only=True):
    """Pending or `dead` deliveries to a host that have one cause: `deliveries` of so many `webhooks`, the oldest `made`
    then.

    `cause` is why the last attempt failed, empty if there was none. `paused`: they wait until the host is resumed.
    """

    host: str
    dead: bool
    cause: str
    deliveries: int
    webhooks: int
    made: str
    paused: bool


class DeliveryGroups(Struct, frozen=True, kw_only=True):
    """Pending and dead deliveries in groups, the largest first; `more`: there are others than these 200."""

    groups: tuple[DeliveryGroup, ...]
    more: bool = False


class TaskDeliveries(Struct, frozen=True, kw_only=True):
    """The deliveries of a task by number: those that were delivered, are pending, or dead. `more`: there are others."""

    deliveries: tuple[DeliveryLine, ...]
    more: bool


class DeadLetters(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dead deliveries by their numbers, or `all` of them. With `pending` also those of the numbers that are pending.

    With `delivered` also those that arrived, which can be sent again but not deleted.
    """

    numbers: tuple[Annotated[int, Meta(ge=1, le=EXACT_MAX)], ...] = ()
    all: bool = False
    pending: bool = False
    delivered: bool = False


class DeadLettersChanged(Struct, frozen=True, kw_only=True):
    """How many deliveries were changed: the dead ones among those that were named, and those that were pending.

    `again` counts those that had arrived and are sent again; `refused` are those for which that is not possible.
    `missing` are the numbers of no delivery that is known; null if so many were named that they were not looked up.
    """

    count: int
    pending: int = 0
    again: int = 0
    refused: tuple[NotSentAgain, ...] = ()
    missing: tuple[int, ...] | None = ()


NUMBERS_SHOWN = 10
"""The audit trail lists up to this many numbers of deliveries; beyond that, only their count."""


def chosen_numbers(chosen: DeadLetters) -> Collection[int] | None:
    """The numbers that are named, each once; None for all dead deliveries. Raises InvalidParams."""
    if chosen.all == bool(chosen.numbers):
        raise InvalidParams("numbers", "names the dead deliveries, or else set all: one of the two")
    if chosen.all and (chosen.pending or chosen.delivered):
        raise InvalidParams("pending" if chosen.pending else "delivered", "goes with numbers, not with all")
    return None if chosen.all else sorted(set(chosen.numbers))


def read_host(text: str) -> str:
    """The name of a host as it is stored: `host`, `host:port` or `scheme://host:port`. Raises InvalidParams."""
    scheme, separator, place = text.strip().rpartition("://")
    try:
        to = target(f"{scheme or 'http'}://{place}")
    except BadUrl as error:
        raise InvalidParams(
            "host", f"must be like hooks.example.org or https://hooks.example.org:8443: {error}"
        ) from None
    if to.url.partition("://")[2].partition("/")[2]:
        raise InvalidParams("host", "must be without a path, like hooks.example.org or https://hooks.example.org:8443")
    if separator:
        return to.origin
    whole = to.origin.partition("://")[2]
    return whole if place.removesuffix("/").endswith(f":{to.port}") else whole.rpartition(":")[0]


def _named(chosen: DeadLetters) -> str:
    numbers = chosen_numbers(chosen)
    if numbers is None:
        return "all"
    return ",".join(map(str, numbers)) if len(numbers) <= NUMBERS_SHOWN else f"{len(numbers)} chosen"


def _named_and_counted(chosen: DeadLetters, changed: DeadLettersChanged) -> str:
    """The numbers, if they are few, or else how many deliveries were changed besides."""
    numbers = chosen_numbers(chosen)
    if numbers is not None and len(numbers) <= NUMBERS_SHOWN:
        return _named(chosen)
    return f"{_named(chosen)}, {changed.count + changed.pending + changed.again}"


READ_DELIVERIES: Question[None, TaskDeliveries] = Question(
    name="readDeliveries",
    of_teams=True,
    path="/tasks/{id}/deliveries",
    summary="Read the webhook deliveries of the task: delivered, pending and dead ones.",
    answer=TaskDeliveries,
    action="tasks.deliveries",
    stored=True,
    quiet=True,
    lines="deliveries",
    columns=(
        *(Column("NUMBER", "number"), Column("STATE", "state"), Column("MADE", "made", "moment")),
        *(Column("ARRIVED", "arrived", "moment"), Column("SEQ", "seq"), Column("URL", "url")),
        *(Column("ATTEMPTS", "failed"), Column("ANSWER", "http_status")),
    ),
)
_EVENT = (Column("AGENT", "agent"), Column("TASK", "task"), Column("SEQ", "seq"), Column("URL", "url"))

LIST_WEBHOOKS = Question(
    name="listWebhooks",
    of_teams=True,
    path="/webhooks",
    summary="List webhook deliveries: pending and dead ones oldest first, delivered ones newest first.",
    given=DeliveryQuery,
    answer=DeliveryLines,
    action="webhooks.list",
    stored=True,
    quiet=True,
    lines="deliveries",
    columns=(
        *(Column("NUMBER", "number"), Column("MADE", "made", "moment"), *_EVENT),
        *(Column("FAILED", "failed"), Column("NEXT", "next"), Column("REASON", "reason")),
    ),
    none="No deliveries.",
    cursor=("after", "next_after"),
)
LIST_DELIVERED = replace(
    LIST_WEBHOOKS,
    columns=(
        *(Column("NUMBER", "number"), Column("ARRIVED", "arrived", "moment"), *_EVENT),
        *(Column("ATTEMPTS", "failed"), Column("ANSWER", "http_status"), Column("TOOK", "took_ms")),
    ),
    cursor=("before", "next_before"),
)
"""The same question about deliveries that arrived, which are listed the other way round."""

GROUP_WEBHOOKS: Question[None, DeliveryGroups] = Question(
    name="groupWebhooks",
    of_teams=True,
    path="/webhooks/groups",
    summary="Group pending and dead webhook deliveries by host and cause, the largest groups first.",
    answer=DeliveryGroups,
    action="webhooks.list",
    stored=True,
    quiet=True,
    shared=True,
    lines="groups",
    columns=(
        *(Column("HOST", "host"), Column("CAUSE", "cause"), Column("DEAD", "dead"), Column("CALLS", "deliveries")),
        *(Column("WEBHOOKS", "webhooks"), Column("OLDEST", "made", "moment"), Column("PAUSED", "paused")),
    ),
    none="No deliveries.",
)
REDELIVER_WEBHOOKS = Question(
    name="redeliverWebhooks",
    of_teams=True,
    method="POST",
    path="/webhooks:redeliver",
    summary="Send webhook deliveries again: dead ones, with `pending` and `delivered` also such ones.",
    given=DeadLetters,
    answer=DeadLettersChanged,
    check=chosen_numbers,
    action="webhooks.redeliver",
    stored=True,
    subject=_named,
    made=_named_and_counted,
)
DELETE_WEBHOOKS = Question(
    name="deleteWebhooks",
    of_teams=True,
    method="POST",
    path="/webhooks:delete",
    summary="Delete dead webhook deliveries, and with `pending` also those that are not under way.",
    given=DeadLetters,
    answer=DeadLettersChanged,
    check=chosen_numbers,
    action="webhooks.delete",
    stored=True,
    subject=_named,
    made=_named_and_counted,
)
LIST_PAUSED_HOSTS: Question[None, PausedHostLines] = Question(
    name="listPausedHosts",
    path="/webhooks/paused",
    summary="List the hosts to which no webhook is sent, because an operator has paused them.",
    answer=PausedHostLines,
    action="webhooks.paused.list",
    stored=True,
    quiet=True,
    lines="hosts",
    columns=(
        *(Column("HOST", "host"), Column("SINCE", "since", "moment"), Column("BY", "by")),
        Column("WAITING", "waiting"),
    ),
    none="No host is paused.",
)
PAUSE_HOST = Question(
    name="pauseHost",
    method="POST",
    path="/webhooks:pause",
    summary="Send nothing to a host from now on. Deliveries to it wait.",
    given=HostName,
    answer=HostChanged,
    check=lambda wanted: read_host(wanted.host),
    action="webhooks.pause",
    stored=True,
    subject=lambda wanted: read_host(wanted.host),
)
RESUME_HOST = Question(
    name="resumeHost",
    method="POST",
    path="/webhooks:resume",
    summary="Send to a paused host again.",
    given=HostName,
    answer=HostChanged,
    check=lambda wanted: read_host(wanted.host),
    action="webhooks.resume",
    stored=True,
    subject=lambda wanted: read_host(wanted.host),
)
SHOW_WEBHOOK: Question[None, DeliveryReport] = Question(
    name="showWebhook",
    of_teams=True,
    path="/webhooks/{id}",
    summary="Show one webhook delivery by its number or its webhook-id.",
    answer=DeliveryReport,
    action="webhooks.show",
    stored=True,
    quiet=True,
)
