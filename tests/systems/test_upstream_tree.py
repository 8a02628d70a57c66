"""The tree of a task that was sent on: the other server's own task in it, with its state, as it was last heard."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from msgspec.structs import replace

from dragoman.auth.operator_token import read_token
from dragoman.client import ApiKey, Connection, connect
from dragoman.engine.api import Runner
from dragoman.model.ids import timestamp_ms
from dragoman.model.task import Task, TaskState
from dragoman.server import serving
from tests.drills.proxy import before
from tests.kit.places import asked
from tests.spec.agents import Gates, house
from tests.systems.test_upstream import AT, CONFIG, DEADLINE_S, partner

Json = dict[str, Any]


@pytest.fixture
async def upstream(gates: Gates) -> AsyncIterator[str]:
    """The server behind."""
    async with serving(CONFIG, house(gates)) as url:
        yield url


class Front(NamedTuple):
    """The server in front: a caller of its agent `partner`, and its operator."""

    caller: Connection
    http: aiohttp.ClientSession

    async def tree(self, task_id: str) -> list[Json]:
        """The tasks of a tree."""
        async with self.http.get(f"/admin/v1/tasks/{task_id}/tree") as answer:
            assert answer.status == HTTPStatus.OK, await answer.text()
            return list((await answer.json())["tasks"])

    async def ask_upstream(self, task_id: str) -> tuple[int, Json]:
        """The status and the body of the answer to the question how the other server's task stands."""
        async with self.http.post(f"/admin/v1/tasks/{task_id}:ask-upstream") as answer:
            return answer.status, dict(await answer.json())

    async def audited(self, action: str) -> list[Json]:
        """The entries of the audit trail, once there are some."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                async with self.http.get("/admin/v1/audit", params={"action": action}) as answer:
                    if entries := (await answer.json())["entries"]:
                        return list(entries)
                await asyncio.sleep(0.05)

    async def theirs(self, task_id: str, fits: Callable[[Json], bool]) -> Json:
        """The task that the other server made, once it fits."""
        async with asyncio.timeout(DEADLINE_S):
            while not (len(rows := await self.tree(task_id)) == 2 and fits(rows[1])):
                await asyncio.sleep(0.01)
        return rows[1]


@asynccontextmanager
async def front(folder: Path, agent: Runner) -> AsyncIterator[Front]:
    store = f"sqlite:///{folder}/front.db"
    config = replace(CONFIG, store=store, cancel_grace_s=DEADLINE_S)
    async with serving(config, [agent]) as url, connect(f"{url}/agents/partner") as caller:
        headers = {"Authorization": f"Bearer {read_token(store, 0)}"}
        async with aiohttp.ClientSession(url, headers=headers) as http:
            yield Front(caller, http)


@asynccontextmanager
async def behind(url: str) -> AsyncIterator[Task]:
    """The only task of the server behind."""
    async with connect(f"{url}/agents/script") as agent:
        (task,) = (await agent.list()).tasks
        yield task


@pytest.mark.parametrize("dialect", ["1.0", "0.3", "beeos", "kaos"])
async def test_the_other_servers_task_has_its_own_id_state_and_times(
    upstream: str, tmp_path: Path, dialect: str
) -> None:
    async with front(tmp_path, partner(upstream + AT[dialect], dialect=dialect)) as site:
        task = await asked(site.caller, "chunks 3")
        ours, theirs = await site.tree(task.id)
        async with behind(upstream) as there:
            assert (theirs["id"], theirs["parent"], theirs["agent"]) == (there.id, task.id, "partner")
            told = theirs["upstream"]
            if dialect == "beeos":  # whose streams have no times
                assert told["first_status_at"] is told["last_status_at"] is None
            else:
                assert timestamp_ms(told["last_status_at"]) == timestamp_ms(there.status.timestamp)
                assert "" < told["first_status_at"] <= told["last_status_at"]
        assert theirs["url"] == (upstream + AT[dialect])
        assert (theirs["state"], theirs["elsewhere"], theirs["ended_at"]) == ("completed", True, ours["ended_at"])
        assert (told["known"], told["differs"], told["lost_at"], told["followed_until"]) == (True, False, None, None)
        assert told["dragoman"] is True


async def test_a_question_there_is_one_here(upstream: str, tmp_path: Path) -> None:
    async with front(tmp_path, partner(upstream + AT["1.0"])) as site:
        task = await asked(site.caller, "ask")
        _, theirs = await site.tree(task.id)
        assert (theirs["state"], theirs["upstream"]["differs"]) == ("input-required", False)
        assert theirs["upstream"]["followed_until"] is None
        await asked(site.caller, "red", task_id=task.id)
        _, theirs = await site.tree(task.id)
        assert (theirs["state"], theirs["upstream"]["differs"]) == ("completed", False)


async def test_a_lost_connection_is_told_until_something_comes_again(
    upstream: str, gates: Gates, tmp_path: Path
) -> None:
    port = int(upstream.rpartition(":")[2])
    async with (
        before("127.0.0.1", port) as wire,
        front(tmp_path, partner(f"http://127.0.0.1:{wire.port}{AT['1.0']}")) as site,
    ):
        task = await asked(site.caller, "wait told", return_immediately=True)
        theirs = await site.theirs(task.id, lambda row: bool(row["state"] == "working"))
        assert theirs["upstream"]["lost_at"] is None
        wire.refuse()
        theirs = await site.theirs(task.id, lambda row: row["upstream"]["lost_at"] is not None)
        assert (theirs["state"], theirs["upstream"]["differs"]) == ("working", False)
        assert theirs["upstream"]["followed_until"] == theirs["upstream"]["lost_at"]
        wire.heal()
        gates.open["told"].set()
        theirs = await site.theirs(task.id, lambda row: bool(row["state"] == "completed"))
        assert theirs["upstream"]["lost_at"] is None


async def test_a_task_that_was_canceled_here_and_goes_on_there_differs(
    upstream: str, gates: Gates, tmp_path: Path
) -> None:
    port = int(upstream.rpartition(":")[2])
    async with (
        before("127.0.0.1", port) as wire,
        front(tmp_path, partner(f"http://127.0.0.1:{wire.port}{AT['1.0']}")) as site,
    ):
        task = await asked(site.caller, "wait told", return_immediately=True)
        await site.theirs(task.id, lambda row: bool(row["state"] == "working"))
        wire.refuse()
        await site.theirs(task.id, lambda row: row["upstream"]["lost_at"] is not None)
        canceled = await site.caller.cancel(task.id)
        assert canceled.status.state is TaskState.CANCELED
        ours, theirs = await site.tree(task.id)
        assert (ours["state"], theirs["state"], theirs["ended_at"]) == ("canceled", "working", None)
        assert theirs["upstream"]["differs"]
        assert theirs["upstream"]["cancel"] == "unanswered"
        assert theirs["upstream"]["followed_until"] == theirs["upstream"]["lost_at"] < ours["ended_at"]
        wire.heal()
        async with behind(upstream) as there:
            status, answer = await site.ask_upstream(task.id)
            assert (status, answer["id"], answer["state"]) == (HTTPStatus.OK, there.id, "working")
            assert (answer["status_at"], answer["differs"], answer["failure"]) == (there.status.timestamp, True, "")


async def test_a_cancel_that_the_other_server_has_carried_out_is_told(upstream: str, tmp_path: Path) -> None:
    async with front(tmp_path, partner(upstream + AT["1.0"])) as site:
        task = await asked(site.caller, "wait told", return_immediately=True)
        await site.theirs(task.id, lambda row: bool(row["state"] == "working"))
        await site.caller.cancel(task.id)
        ours, theirs = await site.tree(task.id)
        assert (ours["state"], theirs["state"], theirs["upstream"]["cancel"]) == ("canceled", "canceled", "accepted")
        assert not theirs["upstream"]["differs"]


async def test_a_question_that_nobody_answers_says_why_and_is_in_the_audit_trail(upstream: str, tmp_path: Path) -> None:
    port = int(upstream.rpartition(":")[2])
    async with (
        before("127.0.0.1", port) as wire,
        front(tmp_path, partner(f"http://127.0.0.1:{wire.port}{AT['1.0']}", retry_wait_s=0.1)) as site,
    ):
        task = await asked(site.caller, "ask")
        wire.refuse()
        status, answer = await site.ask_upstream(task.id)
        assert (status, answer["state"]) == (HTTPStatus.OK, None)
        assert f"127.0.0.1:{wire.port}" in answer["failure"]
        (entry,) = await site.audited("tasks.ask-upstream")
        assert (entry["task"], entry["subject"], entry["allowed"]) == (task.id, "partner", True)
        assert (await site.ask_upstream("none"))[0] == HTTPStatus.NOT_FOUND


async def test_nobody_is_asked_with_the_credentials_of_callers_or_before_the_task_is_named(
    upstream: str, tmp_path: Path
) -> None:
    async with front(tmp_path, partner(upstream + AT["1.0"], forwards=True)) as site:
        async with connect(str(site.caller.interface.url), credentials=ApiKey("callers-own-key-1")) as mine:
            task = await asked(mine, "ask")
        status, answer = await site.ask_upstream(task.id)
        assert (status, answer["state"]) == (HTTPStatus.OK, None)
        assert "callers' credentials" in answer["failure"]
        unnamed = await asked(site.caller, "hello")
        assert unnamed.status.state is TaskState.AUTH_REQUIRED
        status, answer = await site.ask_upstream(unnamed.id)
        assert status == HTTPStatus.BAD_REQUEST
        assert "has not named a task" in str(answer)
