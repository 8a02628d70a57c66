"""The caller: one attempt at a delivery, from the claimed row to its outcome.

Invariant: any failure, here or at the receiver, costs this attempt and nothing else.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from dragoman.dialects.api import PushForm
from dragoman.model.ids import Clock
from dragoman.net.errors import BadUrl, EgressError
from dragoman.net.poster import Poster
from dragoman.net.target import target
from dragoman.push import headers, verdict
from dragoman.push.headers import Token
from dragoman.push.hosts import Host
from dragoman.push.schedule import Schedule
from dragoman.store.outbox import Due, Settled

log = logging.getLogger(__name__)


class Caller:
    """Calls webhooks. See `Courier` for its arguments."""

    def __init__(
        self,
        forms: Mapping[str, PushForm],
        *,
        guarded: Poster,
        unguarded: Poster,
        named: Callable[[str], bool],
        clock: Clock,
        token: Token | None,
        schedule: Schedule,
        chance: Callable[[], float],
    ) -> None:
        self._forms = forms
        self._guarded = guarded
        self._unguarded = unguarded
        self._named = named
        self._clock = clock
        self._token = token
        self._schedule = schedule
        self._chance = chance

    async def close(self) -> None:
        """Close all connections."""
        await self._guarded.close()
        await self._unguarded.close()

    async def called(self, due: Due, host: Host, timeout_s: float) -> Settled:
        """Make one call within `timeout_s`, and return its outcome.

        A bug here costs this call. Otherwise it would end the server, again at every start.
        """
        try:
            return await self._try(due, host, timeout_s)
        except Exception as error:  # noqa: BLE001 — input of callers and receivers must not end the server
            # The text of the error is not logged: it may contain a secret.
            log.error("webhook call %d failed in this server: %s", due.number, type(error).__name__)
            return verdict.faulty(due, self._schedule, self._clock.now_ms(), self._chance())

    async def _try(self, due: Due, host: Host, timeout_s: float) -> Settled:
        theirs = self._forms.get(due.config.dialect)
        form = self._forms.get(due.delivery.dialect) if due.delivery.dialect else theirs
        if form is None or theirs is None:
            return verdict.unsendable(due, "its dialect is not spoken here")
        loop, schedule = asyncio.get_running_loop(), self._schedule
        sent = headers.of_attempt(due, form, theirs, self._clock.now_ms(), self._token)
        began = loop.time()
        try:
            to = target(due.config.url)
            poster = self._unguarded if self._named(to.host) else self._guarded
            reply = await poster.post(to, body=due.delivery.body, headers=sent, timeout_s=timeout_s)
        except BadUrl:
            return verdict.unsendable(due, "not a URL that can be called")
        except EgressError as error:
            host.failed()
            return verdict.unanswered(due, error, schedule, self._clock.now_ms(), self._chance())
        settled = verdict.answered(due, reply, schedule, self._clock.now_ms(), self._chance())
        took_s = loop.time() - began
        if reply.ok:
            host.took(took_s)
        else:
            host.refused(reply.status, took_s)
        return settled
