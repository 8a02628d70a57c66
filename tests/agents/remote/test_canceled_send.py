"""A send whose task was canceled before the upstream had named its own: how long its name is awaited."""

import asyncio
from typing import Any, cast

from dragoman.agents.remote.canceled_send import LEFT_MAX, STOP_S, cancel_once_named
from dragoman.agents.remote.route import UpstreamRoute
from dragoman.client import Connection
from dragoman.client.stream import TaskStream
from dragoman.config import Upstream
from dragoman.model.updates import Update
from tests.virtual_time import in_virtual_time

ANSWER_S = 60.0


class Fold:
    task_id = ""


class Theirs:
    """An upstream, as its stream and its connection, which names its task after `names_s`."""

    def __init__(self, names_s: float) -> None:
        self.names_s = names_s
        self.fold = Fold()
        self.canceled: list[tuple[str, float]] = []
        self.closed_s = 0.0

    async def next(self) -> list[Update] | None:
        await asyncio.sleep(self.names_s)
        self.fold.task_id = "theirs"
        return []

    async def cancel(self, task_id: str) -> None:
        self.canceled.append((task_id, asyncio.get_running_loop().time()))

    def close(self) -> None:
        self.closed_s = self.closed_s or asyncio.get_running_loop().time()


def route() -> UpstreamRoute:
    upstream = Upstream(url="http://127.0.0.1:1", answer_s=ANSWER_S)
    return UpstreamRoute("partner", upstream, cast(Any, None), lambda: 0.0)


async def leave(theirs: Theirs, at: UpstreamRoute) -> None:
    """Do what outlives a run that was canceled in its first wait."""
    await cancel_once_named(theirs.next(), cast(TaskStream, theirs), cast(Connection, theirs), at)


@in_virtual_time
async def test_a_name_is_awaited_as_long_as_the_agents_answers() -> None:
    theirs = Theirs(ANSWER_S - 1)
    await leave(theirs, route())
    assert theirs.canceled == [("theirs", ANSWER_S - 1)]


@in_virtual_time
async def test_an_upstream_that_names_nothing_is_given_up() -> None:
    theirs = Theirs(1000.0)
    await leave(theirs, route())
    assert (theirs.canceled, theirs.closed_s) == ([], ANSWER_S)


@in_virtual_time
async def test_where_many_sends_wait_each_further_one_waits_a_moment() -> None:
    at, theirs = route(), Theirs(ANSWER_S - 1)
    at.left = LEFT_MAX
    await leave(theirs, at)
    assert (theirs.canceled, theirs.closed_s) == ([], STOP_S)
