"""Webhook deliveries and paused hosts as operators see and change them.

Invariant: pure values. Nothing in an answer is a secret.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from dragoman.dialects.json_bounds import EXACT_MAX


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
    true and false mean the states `dead` and `pending`.
    """

    state: DeliveryState | None = None
    dead: bool | None = None
    before: Annotated[int, Meta(ge=1, le=EXACT_MAX)] | None = None
    task: str | None = None
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

    Of those that were delivered, more follow if `next_before` is not null. `pending`, `paused` and `dead` count all
    that there are; those of paused hosts are pending, too.
    """

    deliveries: tuple[DeliveryLine, ...]
    pending: int
    dead: int
    paused: int = 0
    next_after: int | None = None
    next_before: int | None = None


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
