"""Sessions of the OpenAI Agents SDK in our store: what a conversation remembers, and what a crash costs."""

import asyncio
import json
import random
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents import Agent as SdkAgent
from agents import Runner, RunState, SQLiteSession
from msgspec.structs import replace

from dragoman.agents.frameworks.openai_agents import StoredSession, Turns, adapt
from dragoman.agents.frameworks.sessions import PIECE_BYTES, SessionItems
from dragoman.cli.entries import make_agent
from dragoman.cli.references import AgentReferenceError
from dragoman.client import connect
from dragoman.config import AgentEntry
from dragoman.engine.state_space import StoredSpace
from dragoman.model.task import TaskState
from dragoman.server import serving
from dragoman.store.state import StateScope, StateStore
from dragoman.testing import ClientFixture, client
from dragoman.testing.loopback import CONFIG
from tests.frameworks.chores import CALLS
from tests.frameworks.completions import Answer, Call, completions
from tests.frameworks.conversations import send, space_of
from tests.frameworks.kills import killed_often
from tests.frameworks.kit import CLEANING, served
from tests.frameworks.kits.openai_agents import KIT
from tests.frameworks.restarts import worked
from tests.kit.processes import ServerProcess
from tests.soak import times

HERE = Path(__file__).parent


SPACE_SCOPE = StateScope("desk", "ada", "talk", "session")


@pytest.fixture
def space(state: StateStore) -> StoredSpace:
    return space_of(state, SPACE_SCOPE)


async def loaded(space: StoredSpace, task: str) -> SessionItems:
    items = SessionItems(space, task, "agents")
    await items.load()
    return items


async def test_the_conversation_is_a_session_with_the_calls_of_tools(dragoman_client: ClientFixture) -> None:
    with completions(Answer(calls=[Call("forecast", {"city": "Lyon"})]), "Sunny.", "I said so.", "Hello") as model:
        async with dragoman_client(served(KIT.agent(model, forecasts=True))) as connection:
            first = await send(connection, "How is it?")
            await send(connection, "Really?", first)
            await send(connection, "Hello")
    assert model.said(2) == ["How is it?", "", "Sunny in Lyon", "Sunny.", "Really?"]
    assert model.said(3) == ["Hello"]


async def test_it_is_remembered_after_a_restart_and_a_conversation_that_began_before_is_given_once(
    tmp_path: Path,
) -> None:
    config = replace(CONFIG, store=f"sqlite:///{tmp_path / 'store.db'}")
    with completions("One.", "Two.", "Three.") as model:
        async with client(adapt(KIT.agent(model), "test", session="none"), config=config) as connection:
            first = await send(connection, "1")
        for text in ("2", "3"):
            async with client(adapt(KIT.agent(model), "test"), config=config) as connection:
                await send(connection, text, first)
    assert model.said(1) == ["1", "One.", "2"]
    assert model.said(2) == ["1", "One.", "2", "Two.", "3"]


async def test_workers_share_the_session_of_a_conversation() -> None:
    with completions(Answer(calls=[Call("forecast", {"city": "Lyon"})]), "Sunny.", "I said so.") as model:
        await worked(lambda: served(KIT.agent(model, forecasts=True)), "How is it?", "Really?")
    assert model.said(2) == ["How is it?", "", "Sunny in Lyon", "Sunny.", "Really?"]


async def test_without_a_session_the_messages_are_given_with_each_task(dragoman_client: ClientFixture) -> None:
    script = (Answer(calls=[Call("forecast", {"city": "Lyon"})]), "Sunny.", "I said so.")
    with completions(*script) as model:
        agent = adapt(KIT.agent(model, forecasts=True), "test", session="none")
        assert not agent.traits.restartable
        async with dragoman_client(agent) as connection:
            await send(connection, "Really?", await send(connection, "How is it?"))
    assert model.said(2) == ["How is it?", "Sunny.", "Really?"]


async def test_the_key_of_the_table_keeps_no_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_of_it = f"{HERE / 'chores.py'}:agent"
    kept = make_agent(AgentEntry(id="kept", run=run_of_it))
    brief = make_agent(AgentEntry(id="brief", run=run_of_it, session="none"))
    assert (kept.traits.sessions, kept.traits.restartable) == (True, True)
    assert (brief.traits.sessions, brief.traits.restartable) == (False, False)
    monkeypatch.setenv("LEDGER", str(tmp_path / "ledger"))
    config = replace(CONFIG, store=f"sqlite:///{tmp_path / 'store.db'}")
    async with serving(config, [kept, brief]) as url:
        for agent in ("kept", "brief"):
            async with connect(f"{url}/agents/{agent}") as connection:
                await send(connection, "Two", await send(connection, "One"))
    store = sqlite3.connect(tmp_path / "store.db")
    agents = {agent for (agent,) in store.execute("SELECT agent FROM state_spaces WHERE kind = 'session'")}
    store.close()
    assert agents == {"kept"}


def test_an_agent_without_sessions_refuses_the_key() -> None:
    with pytest.raises(AgentReferenceError, match="session is for agents of the OpenAI Agents SDK and Google ADK"):
        make_agent(AgentEntry(id="echo", run="examples/agents.py:echo", session="none"))


async def test_a_session_of_the_authors_is_kept(tmp_path: Path, dragoman_client: ClientFixture) -> None:
    made: list[str] = []

    def session(name: str) -> SQLiteSession:
        made.append(name)
        return SQLiteSession(name, tmp_path / "sessions.db")

    with completions("One.", "Two.", *CLEANING, "gone") as model:
        done: list[str] = []
        async with dragoman_client(adapt(KIT.careful(model, done), "test", session=session)) as connection:
            first = await send(connection, "1")
            await send(connection, "2", first)
            asking = await send(connection, "Clean", first)
            await connection.send("yes", task_id=asking.id, context_id=asking.context_id)
    assert len(set(made)) == 1
    assert made[0].startswith("test/")
    assert made[0].endswith(f"/{first.context_id}")
    assert model.said(1) == ["1", "One.", "2"]
    items = await session(made[0]).get_items()
    assert [item.get("role") or item["type"] for item in items] == [
        *("user", "assistant") * 2,
        *("user", "assistant", "function_call", "function_call_output"),
        *("function_call", "function_call_output", "assistant"),
    ]


async def test_two_agents_of_one_object_have_sessions_of_their_own() -> None:
    with completions("1", "2", "3") as model:
        agent = KIT.agent(model)
        async with serving(CONFIG, [adapt(agent, "one"), adapt(agent, "two")]) as url:
            for name in ("one", "two", "one"):
                async with connect(f"{url}/agents/{name}") as connection:
                    await connection.send(f"To {name}", context_id="here")
    assert [model.said(number) for number in range(3)] == [["To one"], ["To two"], ["To one", "1", "To one"]]


async def test_a_task_that_failed_is_not_in_the_next_one(dragoman_client: ClientFixture) -> None:
    script = ("Hello Ada.", Answer(calls=[Call("forecast", {"city": "Lyon"})]), Answer("broken", status=500), "Ada.")
    with completions(*script) as model:
        async with dragoman_client(served(KIT.agent(model, forecasts=True))) as connection:
            first = await send(connection, "I am Ada")
            failed = await send(connection, "How is it?", first)
            await send(connection, "Who am I?", first)
    assert failed.status.state is TaskState.FAILED
    assert model.said() == ["I am Ada", "Hello Ada.", "Who am I?"]


async def test_a_task_that_waits_is_in_the_session_once_it_has_ended(tmp_path: Path) -> None:
    config = replace(CONFIG, store=f"sqlite:///{tmp_path / 'store.db'}")
    done: list[str] = []
    with completions(*CLEANING, "Meanwhile.", "It is gone.", "Yes.") as model:

        def agent() -> Any:
            return adapt(KIT.careful(model, done), "test")

        async with client(agent(), config=config) as connection:
            first = await send(connection, "Clean")
            await send(connection, "Hello", first)
        async with client(agent(), config=config) as connection:
            await connection.send("yes", task_id=first.id, context_id=first.context_id)
            await send(connection, "Is it?", first)
    assert done == ["looked", "a.txt"]
    assert model.said(2) == ["Hello"]
    cleaned = ["Clean", "Let me see.", "a.txt", "", "a.txt is gone", "It is gone."]
    assert model.said() == ["Hello", "Meanwhile.", *cleaned, "Is it?"]


async def test_tasks_at_work_at_once_are_one_after_the_other_in_the_session(space: StoredSpace) -> None:
    tasks = [await loaded(space, f"task-{number}") for number in range(5)]
    for turn in range(3):
        await asyncio.gather(*(each.append([f"{number}-{turn}".encode()]) for number, each in enumerate(tasks)))
    await asyncio.gather(*(each.finish() for each in tasks[1:]))
    after = await loaded(space, "later")
    kept = [value.decode() for value in after.values]
    assert sorted(kept[::3]) == [f"{number}-0" for number in range(1, 5)]
    for place in range(0, 12, 3):
        number = kept[place][0]
        assert kept[place : place + 3] == [f"{number}-{turn}" for turn in range(3)]


async def test_a_large_item_is_kept_in_pieces(space: StoredSpace) -> None:
    first = StoredSession("talk", await loaded(space, "one"))
    large = {"role": "user", "content": [{"type": "input_image", "image_url": "data:," + "x" * (2 * PIECE_BYTES)}]}
    await first.add_items([{"role": "user", "content": "ä\ud800"}, large])
    assert len(first.items.own[1].keys) == 3
    await first.items.finish()
    second = StoredSession("talk", await loaded(space, "two"))
    assert await second.get_items() == [{"role": "user", "content": "ä\ud800"}, large]
    assert await second.get_items(1) == [large]
    assert await second.get_items(0) == []
    assert await second.pop_item() == large
    third = StoredSession("talk", await loaded(space, "three"))
    assert len(await third.get_items()) == 1
    await third.clear_session()
    assert await third.pop_item() is None
    assert not await space.list_entries()


@pytest.fixture
async def sessions(space: StoredSpace, tmp_path: Path) -> AsyncIterator[tuple[StoredSession, SQLiteSession]]:
    theirs = SQLiteSession("talk")
    yield StoredSession("talk", await loaded(space, "one")), theirs
    theirs.close()


async def test_a_session_answers_as_the_sdks_own(sessions: tuple[StoredSession, SQLiteSession]) -> None:
    chance = random.Random(1)
    for number in range(times(300, 3000)):
        done = []
        word, size = chance.choice("aaaggpc" if number % 50 == 0 else "aaaggp"), chance.randrange(4)
        for session in sessions:
            match word:
                case "a":
                    await session.add_items([{"role": "user", "content": f"{number}-{each}"} for each in range(size)])
                    done.append(None)
                case "g":
                    done.append(await session.get_items(size or None))
                case "p":
                    done.append(await session.pop_item())
                case _:
                    await session.clear_session()
                    done.append(None)
        assert done[0] == done[1]


async def test_a_run_state_of_the_sdk_goes_on_with_a_session(space: StoredSpace) -> None:
    done: list[str] = []
    with completions(*CLEANING, "gone") as model:
        agent = KIT.careful(model, done)
        session = StoredSession("talk", await loaded(space, "one"))
        result = await Runner.run(agent, "Clean", session=session)
        state = await RunState.from_string(agent, result.to_state().to_string())
        for item in state.get_interruptions():
            state.approve(item)
        await Runner.run(agent, state, session=StoredSession("talk", await loaded(space, "one")))
    kept = [json.loads(item.value) for item in (await loaded(space, "one")).own]
    assert [item.get("role") or item["type"] for item in kept] == [
        *("user", "assistant", "function_call", "function_call_output"),
        *("function_call", "function_call_output", "assistant"),
    ]


def call(name: str, number: int) -> dict[str, Any]:
    return {"type": "function_call", "name": name, "call_id": str(number), "arguments": "{}"}


def result(number: int) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": str(number), "output": "done"}


def test_turns_go_on_with_the_agent_that_was_handed_over_to() -> None:
    import agents

    french = SdkAgent("French")
    host = SdkAgent("Host", handoffs=[french])
    asked = {"role": "user", "content": "Bonjour"}
    said = {"role": "assistant", "content": "One moment"}
    items = [asked, said, call("transfer_to_french", 1), result(1)]
    turns = Turns(agents, host, [*items, call("look", 2)])
    assert (turns.asked, turns.whole, turns.agent(4)) == (1, 4, french)
    assert turns.told(1, 4) == ("One moment",)
    assert not turns.ended(4)
    assert Turns(agents, host, items[:3]).whole == 1


ROUNDS = times(4, 100)
TASKS = times(4, 10)
LINES = 2 * CALLS + 1
"""Lines of the ledger for each task."""


@pytest.mark.slow
async def test_after_kill_9_no_finished_turn_is_asked_again_and_the_session_is_whole(tmp_path: Path) -> None:
    chance, ledger = random.Random(1), tmp_path / "ledger"
    server = ServerProcess(
        tmp_path, str(HERE / "chores.py:agent"), "--store", f"sqlite:///{tmp_path / 'store.db'}", "--port", "0"
    )
    async with (
        killed_often(server, "foreman", ledger, chance, rounds=ROUNDS, tasks=TASKS, lines=LINES, talks=True) as after,
        connect(after.url) as connection,
    ):
        for each in range(TASKS):
            await send(connection, f"last-{each}", context_id=f"c{each}")
    assert {task.status.state for task in after.tasks.values()} == {TaskState.COMPLETED}, server.said()[-4000:]
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    again = 0
    for name, task in after.tasks.items():
        did = [line["did"] for line in lines if line["task"] == name and "did" in line]
        assert did == sorted(did)
        assert set(did) == set(range(CALLS))
        again += len(did) - CALLS
        told = [f"{name}-{part} " for part in range(CALLS)]
        assert ["".join(part.text or "" for part in each.parts) for each in task.artifacts] == [
            "\n\n".join([*told, f"{name} is done"])
        ]
    assert again <= ROUNDS * TASKS
    print(f"{again} tools of {len(after.tasks)} tasks worked again")
    for each in range(TASKS):
        asked = next(line["asked"] for line in lines if line["task"] == f"last-{each}" and "asked" in line)
        for number in range(ROUNDS):
            name = f"task-{number}-{each}"
            assert asked.count(name) == 1
            begin = asked.index(name)
            whole = [name]
            for part in range(CALLS):
                whole += [f"{name}-{part} ", f"call {name}/{part}", f"result {name}: done {part}"]
            assert asked[begin : begin + len(whole) + 1] == [*whole, f"{name} is done"]
