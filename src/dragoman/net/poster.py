"""Poster: how webhook calls leave: a POST of which the status counts. Whatever else is asked goes through Egress.

Invariant: no redirect is followed, no cookie kept; of no answer more is read than is bounded. A connection is made as
Dialer says (invariant 13).
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
"""As many as there are calls to one host at once."""

IDLE_MAX = 256

ANSWER_BYTES_MAX = 16 * 1024
"""Of a body, so much is kept."""


class Poster:
    """Connections under one policy; posters of different policies share none.

    `resolver` finds the addresses of hosts, for each connection anew, and is not closed with it. A connection that is
    kept was checked when it was made. How many calls are under way at once is for the caller to bound; each has a
    connection of its own.

    Belongs to the event loop of its first call, and is to be closed there.
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
        """Tell a host something; the answer is there once its head is, and its body is read or given up.

        Of the body there is as much as came, at most `max_answer_bytes`, as it came: an answer that is too large,
        breaks off, or is compressed is an answer. `timeout_s` is for all of it; once its head is there, the rest has a
        second (`REST_S`), however it drips.

        A connection that was kept may have been ended by the other side just now: a call that ends with it, before a
        byte of an answer has come, is made once more, on a new connection. So what is posted must be such that it may
        come twice, as a webhook call may, whose `webhook-id` is the same.

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
        """End every connection, and the calls that use them. A later call opens new ones."""
        await self._dialer.close()
