"""The caller: one attempt at a delivery, from the claimed row to its outcome.

Invariant: any failure, here or at the receiver, costs this attempt and nothing else. `webhook-id` is the same in every
attempt, `webhook-timestamp` is the time of this attempt, and the signature covers both, if the configuration has a
secret (Standard Webhooks 1.0).
"""

import asyncio
import logging
import random
import re
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from dragoman.dialects.api import PushForm, Signing
from dragoman.model.ids import Clock
from dragoman.model.operations import PushConfig
from dragoman.net.egress import Poster
from dragoman.net.errors import BadUrl, EgressError
from dragoman.net.http1 import CONTROL_CHARACTER
from dragoman.net.target import target
from dragoman.push.lanes import Host
from dragoman.push.outcome import AttemptResult, CannotSend, ReceiverAnswered, ReceiverSilent, Schedule, ServerFault
from dragoman.store.outbox import Due, Settled

log = logging.getLogger(__name__)

Token = Callable[[str, str, str, bytes], str | None]
"""Makes the JWT of a delivery from its URL, its id, the task's id and the body. None: the call has no JWT."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
"""A header's name (RFC 9110 §5.1)."""

_OURS = frozenset(
    {"connection", "content-encoding", "content-length", "content-type", "expect", "host", "keep-alive", "te"}
    | {"trailer", "transfer-encoding", "upgrade", "accept-encoding", "user-agent", "traceparent", "tracestate"}
    | {"webhook-id", "webhook-timestamp", "webhook-signature", "x-dragoman-seq", "x-dragoman-jwt"}
)
"""Headers that the server sets itself. A caller that registers a webhook cannot choose them."""


class Posters(Struct, frozen=True):
    """The ways to receivers. `guarded` checks every address that it dials.

    `unguarded` is for hosts for which `named` is true: the operator allows them whatever their address is.
    """

    guarded: Poster
    unguarded: Poster
    named: Callable[[str], bool]

    def to(self, host: str) -> Poster:
        """Return the way to a host."""
        return self.unguarded if self.named(host) else self.guarded

    async def close(self) -> None:
        """Close all connections."""
        await self.guarded.close()
        await self.unguarded.close()


class Caller:
    """Calls webhooks. `forms` are the dialects' push formats by name. With a `token` every call carries a JWT."""

    def __init__(
        self,
        forms: Mapping[str, PushForm],
        posters: Posters,
        clock: Clock,
        token: Token | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._forms = forms
        self._posters = posters
        self._clock = clock
        self._token = token
        self._chance = chance

    async def close(self) -> None:
        """Close all connections."""
        await self._posters.close()

    async def attempt(self, due: Due, host: Host, timeout_s: float, schedule: Schedule) -> Settled:
        """Make one call within `timeout_s`, and return its outcome.

        A bug here costs this call. Otherwise it would end the server, again at every start.
        """
        try:
            result = await self._call(due, timeout_s)
            return host.settle(due, result, schedule, self._clock.now_ms(), self._chance())
        except Exception as error:  # noqa: BLE001 — input of callers and receivers must not end the server
            # The text of the error is not logged: it may contain a secret.
            log.error("webhook call %d failed in this server: %s", due.number, type(error).__name__)
            return host.settle(due, ServerFault(), schedule, self._clock.now_ms(), self._chance())

    async def _call(self, due: Due, timeout_s: float) -> AttemptResult:
        theirs = self._forms.get(due.config.dialect)
        form = self._forms.get(due.delivery.dialect) if due.delivery.dialect else theirs
        if form is None or theirs is None:
            return CannotSend("its dialect is not spoken here")
        loop = asyncio.get_running_loop()
        headers = make_headers(due, form, theirs, self._clock.now_ms(), self._token)
        began_s = loop.time()
        try:
            to = target(due.config.url)
            reply = await self._posters.to(to.host).post(
                to, body=due.delivery.body, headers=headers, timeout_s=timeout_s
            )
        except BadUrl:
            return CannotSend("not a URL that can be called")
        except EgressError as error:
            return ReceiverSilent(error)
        return ReceiverAnswered(reply.status, loop.time() - began_s, reply.headers.get("retry-after"))


def make_headers(due: Due, form: PushForm, theirs: PushForm, now_ms: int, token: Token | None) -> dict[str, str]:
    """Make all headers of a call except those that HTTP itself needs. Their names are in lower case.

    `form` is the format of the body. `theirs` is the format of the configuration's dialect, which places the tokens.
    """
    delivery, config = due.delivery, due.config
    timestamp_s = now_ms // 1000
    headers = _lower(theirs.authorization(config))
    headers.update(_lower(form.headers))
    headers["content-type"] = form.content_type
    headers["webhook-id"] = delivery.id
    headers["webhook-timestamp"] = str(timestamp_s)
    headers["x-dragoman-seq"] = delivery.place
    if delivery.traceparent is not None:
        headers["traceparent"] = delivery.traceparent
    if config.secret is not None:
        signing = Signing(delivery_id=delivery.id, task_id=due.task_id, timestamp_s=timestamp_s, body=delivery.body)
        headers.update(_lower(form.signature(config.secret, signing)))
    if token is not None and (jwt := token(config.url, delivery.id, due.task_id, delivery.body)) is not None:
        if "authorization" in headers:
            headers["x-dragoman-jwt"] = jwt
        else:
            headers["authorization"] = f"Bearer {jwt}"
    return headers


def header_fault(form: PushForm, config: PushConfig) -> str | None:
    """Why the headers that a caller chose cannot be sent; None if they can."""
    for name, value in form.authorization(config):
        if _NAME.fullmatch(name) is None or name.lower() in _OURS:
            return "the header that authentication names cannot be set: use Authorization, or a name like X-API-Key"
        if CONTROL_CHARACTER.search(value):
            return f"the value for the header {name} has a line break or another control character: remove it"
    return None


def _lower(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}
