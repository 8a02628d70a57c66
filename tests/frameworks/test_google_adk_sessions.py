"""Sessions of Google ADK in our store: what its own services answer, what a conversation remembers, and kills."""

import asyncio
import itertools
import json
import random
from pathlib import Path
from typing import Any

import pytest
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.sessions import InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.tools.tool_context import ToolContext
from google.genai import types
from msgspec.structs import replace

from dragoman.agents.frameworks.adk_sessions import StoredSessionService
from dragoman.agents.frameworks.google_adk import adapt
from dragoman.agents.frameworks.sessions import PIECE_BYTES
from dragoman.client import connect
from dragoman.model.ids import SystemClock
from dragoman.model.task import TaskState
from dragoman.store.state import StateScope, StateStore
from dragoman.testing import ClientFixture, client
from dragoman.testing.loopback import CONFIG
from tests.frameworks.completions import Answer, Call
from tests.frameworks.conversations import send, space_of
from tests.frameworks.kills import killed_often
from tests.frameworks.kit import CLEANING, served
from tests.frameworks.kits.google_adk import KIT
from tests.frameworks.kits.scripted import ScriptedModel
from tests.frameworks.restarts import worked
from tests.frameworks.ushers import CALLS
from tests.kit.processes import ServerProcess
from tests.soak import times

HERE = Path(__file__).parent


def service_of(state: StateStore, task: str, *, context: str = "talk", owner: str = "ada") -> StoredSessionService:
    scopes = [StateScope("desk", whose, where, "session") for whose, where in ((owner, context), (owner, ""), ("", ""))]
    return StoredSessionService(task, *(space_of(state, scope) for scope in scopes))


def told(session: Session | None) -> Any:
    """What two services have to agree on."""
    if session is None:
        return None
    return session.id, session.state, [(event.id, event.actions.state_delta) for event in session.events]


KEYS = "a", "b", "app:a", "app:b", "user:a", "temp:a", "k" * 300


async def test_it_answers_as_the_kits_own_service(state: StateStore) -> None:
    chance = random.Random(1)
    ours, theirs = service_of(state, "one"), InMemorySessionService()
    for number in range(times(300, 3000)):
        app, user, name = chance.choice(("x", "y")), chance.choice(("ada", "e/ve")), chance.choice("123")
        place = {"app_name": app, "user_id": user, "session_id": name}
        delta = {chance.choice(KEYS): chance.choice([number, None, ["a"], {"b": 1.5}]) for _ in range(2)}
        act, recent = (
            chance.choice(("create", "append", "append", "get", "list", "delete", "user")),
            chance.randrange(3),
        )
        after = float(chance.randrange(number + 1))
        answers = []
        for service in (ours, theirs):
            answer: Any = None
            match act:
                case "create":
                    try:
                        answer = told(await service.create_session(**place, state=dict(delta)))
                    except AlreadyExistsError:
                        answer = "exists"
                case "append":
                    session = await service.get_session(**place)
                    gone = session is None
                    session = session or Session(id=name, app_name=app, user_id=user)
                    actions = EventActions(state_delta=dict(delta))
                    event = Event(id=f"e{number}", author="user", timestamp=float(number), actions=actions)
                    try:
                        await service.append_event(session, event)
                        await service.append_event(session, event)
                        answer = told(session)
                    except SessionNotFoundError:
                        answer = gone
                case "get":
                    answer = told(await service.get_session(**place))
                    for config in (GetSessionConfig(num_recent_events=recent), GetSessionConfig(after_timestamp=after)):
                        answer = answer, told(await service.get_session(**place, config=config))
                case "list":
                    for whose in (user, None):
                        listed = (await service.list_sessions(app_name=app, user_id=whose)).sessions
                        found = {f"{each.user_id} {each.id}": told(each) for each in listed}
                        answer = answer, found
                case "delete":
                    await service.delete_session(**place)
                case _:
                    answer = await service.get_user_state(app_name=app, user_id=user)
            answers.append(answer)
        assert answers[0] == answers[1], act


async def test_events_are_kept_whole_also_large_ones(state: StateStore) -> None:
    first = service_of(state, "one")
    session = await first.create_session(app_name="x", user_id="ada", session_id="talk", state={"at": SystemClock})
    blob = types.Blob(data=bytes(range(256)) * (PIECE_BYTES // 128), mime_type="image/png")
    content = types.Content(role="user", parts=[types.Part(inline_data=blob), types.Part(text="ä")])
    event = await first.append_event(session, Event(author="user", content=content))
    await first.finish()
    again = await service_of(state, "two").get_session(app_name="x", user_id="ada", session_id="talk")
    assert again is not None
    assert again.events == [event]
    assert again.state == {"at": str(SystemClock)}


async def test_tasks_that_append_at_once_lose_nothing_and_see_each_other_when_they_have_finished(
    state: StateStore,
) -> None:
    place = {"app_name": "x", "user_id": "ada", "session_id": "talk"}
    tasks = [service_of(state, f"task-{number}") for number in range(4)]
    made = await asyncio.gather(*(each.create_session(**place) for each in tasks), return_exceptions=True)
    assert sum(isinstance(each, AlreadyExistsError) for each in made) == 3

    async def add(number: int) -> None:
        session = await tasks[number].get_session(**place)
        assert session is not None
        events = [
            Event(author="user", actions=EventActions(state_delta={f"{number}-{each}": each})) for each in range(5)
        ]
        await asyncio.gather(*(tasks[number].append_event(session, event) for event in events))

    await asyncio.gather(*map(add, range(4)))
    seen = await service_of(state, "early").get_session(**place)
    assert seen is not None
    assert not seen.events
    await asyncio.gather(*(each.finish() for each in tasks[1:]))
    after = await service_of(state, "later").get_session(**place)
    assert after is not None
    assert after.state == {f"{number}-{each}": each for number in range(1, 4) for each in range(5)}
    order = [next(iter(event.actions.state_delta))[0] for event in after.events]
    assert [len(list(same)) for _, same in itertools.groupby(order)] == [5, 5, 5]


async def test_app_state_is_of_all_callers_and_user_state_of_one(state: StateStore) -> None:
    place = {"app_name": "x", "session_id": "talk"}
    await service_of(state, "one").create_session(**place, user_id="ada", state={"app:a": 1, "user:b": 2, "c": 3})
    same = await service_of(state, "two", context="other").create_session(**place, user_id="ada")
    eve = await service_of(state, "three", owner="eve").create_session(**place, user_id="eve")
    assert same.state == {"app:a": 1, "user:b": 2}
    assert eve.state == {"app:a": 1}


async def count(tool_context: ToolContext) -> dict[str, Any]:
    """Count."""
    for key in ("here", "user:mine", "app:all", "temp:now"):
        tool_context.state[key] = tool_context.state.get(key, 0) + 1
    return {key: tool_context.state[key] for key in ("here", "user:mine", "app:all", "temp:now")}


async def test_a_conversation_keeps_events_and_state_over_a_restart(tmp_path: Path) -> None:
    config = replace(CONFIG, store=f"sqlite:///{tmp_path / 'store.db'}")
    counted = (Answer(calls=[Call("count", {})]), "Done")
    model = ScriptedModel(counted * 3)

    def agent() -> Any:
        return adapt(KIT.agent(model, tools=[count]), "test")

    async with client(agent(), config=config) as connection:
        first = await send(connection, "One")
    async with client(agent(), config=config) as connection:
        await send(connection, "Two", first)
        await send(connection, "Other")
    assert model.said(3)[0] == "One"
    said = [text for number in (1, 3, 5) for text in model.said(number)[-1:]]
    assert said == [
        str({"here": 1, "user:mine": 1, "app:all": 1, "temp:now": 1}),
        str({"here": 2, "user:mine": 2, "app:all": 2, "temp:now": 1}),
        str({"here": 1, "user:mine": 3, "app:all": 3, "temp:now": 1}),
    ]


async def test_workers_share_events_and_state_of_a_conversation() -> None:
    model = ScriptedModel((Answer(calls=[Call("count", {})]), "Done") * 2)
    await worked(lambda: adapt(KIT.agent(model, tools=[count]), "test"), "One", "Two")
    assert model.said(3)[0] == "One"
    assert model.said(3)[-1] == str({"here": 2, "user:mine": 2, "app:all": 2, "temp:now": 1})


async def test_a_conversation_that_began_before_is_given_once(tmp_path: Path) -> None:
    config = replace(CONFIG, store=f"sqlite:///{tmp_path / 'store.db'}")
    model = ScriptedModel(["One.", "Two.", "Three."])
    async with client(adapt(KIT.agent(model), "test", session="none"), config=config) as connection:
        first = await send(connection, "1")
    for text in ("2", "3"):
        async with client(adapt(KIT.agent(model), "test"), config=config) as connection:
            await send(connection, text, first)
    assert model.said(1) == ["1", "One.", "2"]
    assert model.said(2) == ["1", "One.", "2", "Two.", "3"]


async def test_a_task_that_failed_is_not_in_the_next_one(dragoman_client: ClientFixture) -> None:
    model = ScriptedModel(["Hello Ada.", Answer(calls=[Call("count", {})]), Answer("broken", status=500), "Ada."])
    async with dragoman_client(served(KIT.agent(model, tools=[count]))) as connection:
        first = await send(connection, "I am Ada")
        failed = await send(connection, "How is it?", first)
        await send(connection, "Who am I?", first)
    assert failed.status.state is TaskState.FAILED
    assert model.said() == ["I am Ada", "Hello Ada.", "Who am I?"]


async def test_a_task_that_waits_goes_on_after_a_restart_and_is_then_in_the_session(tmp_path: Path) -> None:
    config = replace(CONFIG, store=f"sqlite:///{tmp_path / 'store.db'}")
    done: list[str] = []
    model = ScriptedModel([*CLEANING, "Meanwhile.", "It is gone.", "Yes."])

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
    assert model.said()[:3] == ["Hello", "Meanwhile.", "Clean"]
    assert model.said()[-2:] == ["It is gone.", "Is it?"]


ROUNDS = times(4, 60)
TASKS = 3
LINES = CALLS + 1
"""Lines of the ledger for each task."""


@pytest.mark.slow
async def test_after_kill_9_a_session_has_all_tasks_that_finished_once_and_nothing_of_others(tmp_path: Path) -> None:
    chance, ledger = random.Random(1), tmp_path / "ledger"
    server = ServerProcess(
        tmp_path, str(HERE / "ushers.py:agent"), "--store", f"sqlite:///{tmp_path / 'store.db'}", "--port", "0"
    )
    async with killed_often(
        server, "usher", ledger, chance, rounds=ROUNDS, tasks=TASKS, lines=LINES, talks=True
    ) as after:
        states = {name: task.status.state for name, task in after.tasks.items()}
        async with connect(after.url) as connection:
            for each in range(TASKS):
                await send(connection, f"task-last-{each}", context_id=f"c{each}")
    assert set(states.values()) <= {TaskState.COMPLETED, TaskState.FAILED}, server.said()[-4000:]
    assert TaskState.COMPLETED in states.values()
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    for each in range(TASKS):
        given = next(line for line in lines if line[-1] == f"task-last-{each}")[:-1]
        for name, ended in states.items():
            calls = [f"call {name}-{number}" for number in range(CALLS)]
            if not name.endswith(f"-{each}"):
                assert name not in given
            elif ended is TaskState.COMPLETED:
                assert given.count(name) == 1
                block = given[given.index(name) :][: 2 + 2 * CALLS]
                assert block[1::2] == [*calls, f"Welcome, {name}"]
                seats = [int(text.removeprefix("seat ")) for text in block[2::2]]
                assert seats == [seats[0] + number for number in range(CALLS)]
            else:  # nothing of it; or all, if the kill came between its last event and its end
                whole = [*calls, f"Welcome, {name}"]
                assert [text for text in whole if text in given] in ([], whole)
