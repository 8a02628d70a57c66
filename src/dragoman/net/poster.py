"""Poster: sends webhook calls, POSTs whose status is what counts. All other requests go through Egress.

Invariant: no redirect is followed, no cookie is kept, and only a bounded part of an answer is read. Connections are
made as Dialer says (invariant 13).
"""

import asyncio
from collections.abc import Mapping

from dragoman.net.address import Resolves
from dragoman.net.connection import Pool
from dragoman.net.dialer import CONNECT_TIMEOUT_S, IDLE_S, Dialer, Policy, silence
from dragoman.net.egress import Reply
from dragoman.net.exchange import Answer, requested
from dragoman.net.target import Target

IDLE_PER_HOST_MAX = 64
"""As many as the calls to one host at once."""

IDLE_MAX = 256

ANSWER_BYTES_MAX = 16 * 1024
"""Most bytes of a body that are kept."""


class Poster:
    """Connections under one policy; posters of different policies share none.

    `resolver` finds the addresses of hosts for each new connection, and is not closed with the poster. A kept
    connection was checked when it was made. The caller bounds the number of concurrent calls; each has its own
    connection.

    Belongs to the event loop of its first call; close it there.
    """

    def __init__(
        self,
        policy: Policy,
        resolver: Resolves,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        max_answer_bytes: int = ANSWER_BYTES_MAX,
        idle_per_host_max: int = IDLE_PER_HOST_MAX,
        idle_max: int = IDLE_MAX,
        idle_s: float = IDLE_S,
    ) -> None:
        self._max_answer_bytes = max_answer_bytes
        idle = Pool(per_place_max=idle_per_host_max, in_all_max=idle_max, idle_s=idle_s)
        self._dialer = Dialer(policy, resolver, connect_timeout_s=connect_timeout_s, idle=idle)

    async def post(self, to: Target, *, body: bytes, headers: Mapping[str, str], timeout_s: float) -> Reply:
        """Send a call. Returns once the answer's head has come and its body has been read or given up.

        The reply's body is as much as came, at most `max_answer_bytes`, unchanged. An answer that is too large, is cut
        off or is compressed counts as an answer. `timeout_s` covers the whole call; after the head, the rest has a
        second (`REST_S`), however slowly it comes.

        The other side may just have ended a kept connection. A call that ends with such a connection, before any byte
        of an answer, is sent once more on a new one. So a call must be safe to repeat. A webhook call is: its
        `webhook-id` stays the same.

        Raises EgressError, whose `sent` says whether the other side may have taken the call; never TooLarge.
        """
        request = requested(to, headers, body)
        until_s = asyncio.get_running_loop().time() + timeout_s
        answer = Answer(self._max_answer_bytes)
        connection = await self._dialer.ask(to, request, answer, until_s, again=True)
        self._dialer.release(connection)
        if not answer.status:
            raise silence(connection, to.shown, timeout_s)
        return Reply(answer.status, answer.headers, answer.body)

    async def close(self) -> None:
        """Close every connection, which ends the calls that use them. A later call opens new ones."""
        await self._dialer.close()
