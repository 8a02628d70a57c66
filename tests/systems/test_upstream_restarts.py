"""Either server stops, or dies, while a task is between them: the task goes on where it was."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from dragoman.client import Connection, connect
from dragoman.config import Config
from dragoman.model.task import TaskState
from dragoman.server import serving
from tests.client.proxy import Fault, before
from tests.kit.places import asked
from tests.kit.processes import serving_process
from tests.kit.values import text_of, told_by
from tests.kit.waiting import until
from tests.ports import kept_port
from tests.spec.agents import Gates, house
from tests.systems.test_upstream import AT, CONFIG, DEADLINE_S, answer, partner

DRAGOMAN = Path(sys.executable).parent / "dragoman"
RESUMED = ("1.0", "0.3", "beeos", "evoai", "protoagent")


@pytest.fixture
def kept(tmp_path: Path) -> Config:
    """The server in front, on a store that outlives it."""
    return replace(CONFIG, store=f"sqlite:///{tmp_path / 'front.db'}")


async def ended(connection: Connection, task_id: str) -> str:
    """The text of the task once it is completed."""
    async with asyncio.timeout(DEADLINE_S):
        while (task := await connection.get(task_id)).status.state is TaskState.WORKING:
            await asyncio.sleep(0.02)
    assert task.status.state is TaskState.COMPLETED, told_by(task)
    return text_of(task)


@pytest.mark.parametrize("dialect", RESUMED)
async def test_a_task_that_works_at_the_upstream_is_taken_up_after_our_restart(
    kept: Config, gates: Gates, dialect: str
) -> None:
    async with serving(CONFIG, house(gates)) as upstream:

        @asynccontextmanager
        async def front() -> AsyncIterator[Connection]:
            agent = partner(upstream + AT[dialect], dialect=dialect)
            async with serving(kept, [agent]) as url, connect(f"{url}/agents/partner") as connection:
                yield connection

        async with front() as connection:
            task = await asked(connection, "wait here", return_immediately=True)
            await asyncio.wait_for(gates.reached["here"].wait(), DEADLINE_S)
        gates.open["here"].set()
        async with front() as connection:
            assert await ended(connection, task.id) == "done"
        async with connect(upstream + AT["1.0"]) as behind:
            assert len((await behind.list()).tasks) == 1 or dialect not in ("1.0", "0.3")


async def test_a_task_that_ends_just_before_we_subscribe_to_it_is_read(kept: Config, gates: Gates) -> None:
    over = {"jsonrpc": "2.0", "id": None, "error": {"code": -32004, "message": "the task has ended"}}

    def choose(request: bytes) -> Fault | None:
        if b"SubscribeToTask" not in request:
            return None
        gates.open["here"].set()
        return Fault(refuses=answer(over))

    async with serving(CONFIG, house(gates)) as upstream, before(upstream) as between:
        agent = partner(between.url + AT["1.0"])
        async with serving(kept, [agent]) as url, connect(f"{url}/agents/partner") as connection:
            task = await asked(connection, "wait here", return_immediately=True)
            await asyncio.wait_for(gates.reached["here"].wait(), DEADLINE_S)
        between.choose = choose
        agent = partner(between.url + AT["1.0"])
        async with serving(kept, [agent]) as url, connect(f"{url}/agents/partner") as connection:
            assert await ended(connection, task.id) == "done"


@pytest.mark.parametrize("red", ["red, ", "red, " * 5000], ids=["short", "with_snapshots"])
@pytest.mark.parametrize("dialect", RESUMED)
async def test_a_question_outlives_our_restart_and_each_answer_is_sent_once(
    kept: Config, gates: Gates, dialect: str, red: str
) -> None:
    async with serving(CONFIG, house(gates)) as upstream:
        task, task_id = None, ""
        for text, asks in (("ask twice", "Which?"), (red, "Sure?"), ("yes", "")):
            agent = partner(upstream + AT[dialect], dialect=dialect)
            async with serving(kept, [agent]) as url, connect(f"{url}/agents/partner") as connection:
                task = await asked(connection, text, task_id=task_id or None)
                task_id = task.id
                assert told_by(task) == asks
        assert task is not None
        assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, f"{red}yes")


async def test_what_a_stopped_server_has_given_out_is_not_given_twice(kept: Config, gates: Gates) -> None:
    from tests.systems.agents import house as desks

    async with serving(CONFIG, desks(gates)) as upstream:
        async with serving(kept, [partner(f"{upstream}/agents/desk")]) as url, connect(f"{url}/agents/partner") as at:
            task = await asked(at, "held there", return_immediately=True)
            await asyncio.wait_for(gates.reached["there"].wait(), DEADLINE_S)
            async with asyncio.timeout(DEADLINE_S):
                while text_of(await at.get(task.id)) != "first ":
                    await asyncio.sleep(0.02)
        async with serving(kept, [partner(f"{upstream}/agents/desk")]) as url, connect(f"{url}/agents/partner") as at:
            gates.open["there"].set()
            assert await ended(at, task.id) == "first second"


async def test_what_an_upstream_may_have_that_is_gone_after_our_restart_is_not_to_be_sent_again(
    kept: Config, gates: Gates
) -> None:
    async with serving(CONFIG, house(gates)) as upstream, before(upstream) as between:
        between.choose = lambda asked: Fault(stall=0) if b"SendStreamingMessage" in asked else None
        place = f"{between.url}/agents/script"
        async with serving(kept, [partner(place, dedupes=True)]) as url, connect(f"{url}/agents/partner") as connection:
            task = await asked(connection, "hello", return_immediately=True)
            await until(lambda: any(b"SendStreamingMessage" in request for request in between.asked))
    agent = partner(place, dedupes=True)
    async with serving(kept, [agent]) as url, connect(f"{url}/agents/partner") as connection:
        async with asyncio.timeout(DEADLINE_S):
            while (found := await connection.get(task.id)).status.state is not TaskState.FAILED:
                await asyncio.sleep(0.02)
        assert found.status.message is not None
        assert found.status.message.metadata == {"reason": "upstream_uncertain"}


async def test_a_conversation_goes_on_after_our_restart(kept: Config) -> None:
    from dragoman import Agent, Context

    elephant = Agent("elephant")

    @elephant.skill
    async def recall(ctx: Context) -> str:
        """Says what was said."""
        return " | ".join(message.text for message in await ctx.history())

    async with serving(CONFIG, [elephant]) as upstream:
        texts = []
        for text in ("one", "two"):
            agent = partner(f"{upstream}/agents/elephant")
            async with serving(kept, [agent]) as url, connect(f"{url}/agents/partner") as connection:
                texts.append(text_of(await asked(connection, text, context_id="ours")))
        assert texts[0] == ""
        assert texts[1].startswith("one")


async def test_an_upstream_that_restarts_goes_on_with_the_question_it_asked(gates: Gates, tmp_path: Path) -> None:
    behind = replace(CONFIG, port=kept_port(), store=f"sqlite:///{tmp_path / 'behind.db'}")
    async with serving(behind, house(gates)) as url:
        agent = partner(f"{url}/agents/script")
        front = serving(CONFIG, [agent])
        own = await front.__aenter__()
        opened = connect(f"{own}/agents/partner")
        connection = await opened.__aenter__()
        task = await asked(connection, "ask")
    try:
        async with serving(behind, house(gates)):
            task = await asked(connection, "blue", task_id=task.id)
            assert (task.status.state, text_of(task)) == (TaskState.COMPLETED, "blue")
    finally:
        await opened.__aexit__(None, None, None)
        await front.__aexit__(None, None, None)


async def test_a_task_whose_upstream_has_forgotten_it_says_so(gates: Gates) -> None:
    behind = replace(CONFIG, port=kept_port())
    async with serving(behind, house(gates)) as url:
        front = serving(CONFIG, [partner(f"{url}/agents/script")])
        own = await front.__aenter__()
        opened = connect(f"{own}/agents/partner")
        connection = await opened.__aenter__()
        task = await asked(connection, "wait forever", return_immediately=True)
        await asyncio.wait_for(gates.reached["forever"].wait(), DEADLINE_S)
    try:
        async with serving(behind, house(gates)), asyncio.timeout(DEADLINE_S):
            while (found := await connection.get(task.id)).status.state is TaskState.WORKING:
                await asyncio.sleep(0.02)
            assert found.status.state is TaskState.FAILED
    finally:
        await opened.__aexit__(None, None, None)
        await front.__aexit__(None, None, None)


# -- a process that is killed ------------------------------------------------------------------------------------------

SERVE = ("--store", "sqlite:///tasks.db", "--port", "0")

FILE = """
[[agents]]
id = "partner"
run = "a2a:{url}"
{dedupes}
"""


async def test_a_task_outlives_the_killing_of_our_process(gates: Gates, tmp_path: Path) -> None:
    async with serving(CONFIG, house(gates)) as upstream:
        (tmp_path / "dragoman.toml").write_text(FILE.format(url=f"{upstream}/agents/script", dedupes="dedupes = false"))
        async with serving_process(tmp_path, *SERVE) as server, connect(f"{server.url}/agents/partner") as connection:
            task = await asked(connection, "wait dead", return_immediately=True)
            await asyncio.wait_for(gates.reached["dead"].wait(), DEADLINE_S)
            async with asyncio.timeout(DEADLINE_S):
                while told_by(await connection.get(task.id)) != "waiting":  # the id came before that
                    await asyncio.sleep(0.01)
            await server.kill()
        gates.open["dead"].set()
        async with serving_process(tmp_path, *SERVE) as server, connect(f"{server.url}/agents/partner") as connection:
            assert await ended(connection, task.id) == "done"
            assert "Traceback" not in server.said()
        async with connect(f"{upstream}/agents/script") as behind:
            assert len((await behind.list()).tasks) == 1


@pytest.mark.parametrize("dedupes", ["dedupes = false", "dedupes = true", ""])
async def test_a_send_that_a_kill_cut_off_is_repeated_only_where_that_is_safe(
    gates: Gates, tmp_path: Path, dedupes: str
) -> None:
    from tests.client.proxy import Fault, before

    async with serving(CONFIG, house(gates)) as upstream, before(upstream) as between:
        between.choose = lambda asked: Fault(stall=0) if b"SendStreamingMessage" in asked else None
        text = FILE.format(url=f"{between.url}/agents/script", dedupes=dedupes)
        (tmp_path / "dragoman.toml").write_text(text)
        async with serving_process(tmp_path, *SERVE) as server, connect(f"{server.url}/agents/partner") as connection:
            task = await asked(connection, "hello", return_immediately=True)
            await until(lambda: any(b"SendStreamingMessage" in request for request in between.asked))
            await server.kill()
        between.choose = lambda asked: None
        async with serving_process(tmp_path, *SERVE) as server, connect(f"{server.url}/agents/partner") as connection:
            async with asyncio.timeout(DEADLINE_S):
                while (found := await connection.get(task.id)).status.state is TaskState.WORKING:
                    await asyncio.sleep(0.02)
            if dedupes != "dedupes = false":
                assert (found.status.state, text_of(found)) == (TaskState.COMPLETED, "hello")
            else:
                assert found.status.message is not None
                assert found.status.message.metadata == {"reason": "upstream_uncertain"}
        async with connect(f"{upstream}/agents/script") as behind:
            assert len((await behind.list()).tasks) == 1
