"""The rules for the agents of every framework that gives them a model. The file with a framework's name has its own.

A framework is described by its kit: see `tests/frameworks/kit.py`.
"""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from dragoman import Part
from dragoman.agents.adapters import adapt, framework_of, own_id
from dragoman.agents.python.factory import FactoryAgent
from dragoman.config import agent_id_fault
from dragoman.model.task import Task, TaskState
from dragoman.testing import ClientFixture, run
from tests.frameworks.completions import Answer, Call
from tests.frameworks.conftest import MODELLED
from tests.frameworks.documented import run_block
from tests.frameworks.kit import CLEANING, HISTORY, Kit, served
from tests.frameworks.meanwhile import canceled, meanwhile
from tests.frameworks.restarts import handed_over, restarted


@pytest.fixture(params=MODELLED)
def kit(request: pytest.FixtureRequest) -> Kit:
    found: Kit = import_module(f"tests.frameworks.kits.{request.param}").KIT
    return found


def made(agent: Any | None) -> Any:
    if agent is None:
        pytest.skip("the framework has no such agents")
    return agent


def needs(answer: object) -> None:
    if not answer:
        pytest.skip("the framework does that in its own way: see the file of its name")


async def test_text_streams(kit: Kit) -> None:
    with kit.model("Good morning to you") as model:
        ran = await run(served(kit.agent(model)), "Hello")
        assert "Hello" in model.said()[-1]
    assert ran.text == "Good morning to you"
    assert ran.usage.output_tokens > 0
    if kit.counts:
        assert (ran.usage.input_tokens, ran.usage.output_tokens) == (7, 3)
    named = [(each.model, each.input_tokens, each.output_tokens) for each in ran.usage.models]
    assert named == [(kit.model_name, ran.usage.input_tokens, ran.usage.output_tokens)]


async def test_nothing_is_printed(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    needs(not kit.prints)
    with kit.model("Good morning to you") as model:
        await run(served(kit.agent(model)), "Hello")
    assert capsys.readouterr().out == ""


async def test_the_card_says_what_the_agent_says_of_itself(kit: Kit) -> None:
    with kit.model() as model:
        profile = served(kit.introduced(model)).profile
    assert (profile.id, profile.name, profile.description) == ("test", kit.card.name, kit.card.description)
    assert tuple(profile.skills[0].tags) == tuple(kit.card.tags)


async def test_its_own_name_is_its_id_by_default(kit: Kit) -> None:
    with kit.model() as model:
        agent = kit.introduced(model)
        assert own_id(agent) == (kit.card.name if agent_id_fault(kit.card.name) is None else "")


async def test_a_factory_may_yield_it(kit: Kit, dragoman_client: ClientFixture) -> None:
    closed = []

    @asynccontextmanager
    async def opened() -> AsyncIterator[Any]:
        yield kit.agent(model)
        closed.append(True)

    with kit.model("Good morning to you") as model:
        agent = FactoryAgent("mine", opened)
        async with dragoman_client(agent) as connection:
            assert (await connection.conversation().say("Hello")).text == "Good morning to you"
        assert agent.profile.id == "mine"
        assert agent.profile.skills[0].id == "answer"
    assert closed == [True]


async def test_calls_of_tools_are_statuses(kit: Kit) -> None:
    says = "Let me see." if kit.speaks_before_calls else ""
    with kit.model(Answer(says, calls=[Call("forecast", {"city": "Lyon"})]), "It is sunny") as model:
        ran = await run(served(kit.agent(model, forecasts=True)), "Weather?")
        assert "Sunny in Lyon" in model.said()[-1]
    assert ran.statuses == ["Calling forecast", "forecast is done"]
    assert ran.text == (f"{says}\n\n" if says else "") + "It is sunny"
    if kit.counts:
        assert (ran.usage.input_tokens, ran.usage.output_tokens) == (14, 6)


async def test_a_tool_that_raises_has_failed_and_the_model_goes_on(kit: Kit) -> None:
    needs(kit.failure)
    calls = [Call("forecast", {"city": "Lyon"}), Call("forecast", {"city": "Atlantis"}, "call-2")]
    with kit.model(Answer(calls=calls), "It is sunny") as model:
        ran = await run(served(kit.agent(model, forecasts=True)), "Weather?")
    assert sorted(ran.statuses) == sorted(["Calling forecast", "Calling forecast", "forecast is done", kit.failure])
    assert ran.text == "It is sunny"


async def test_structured_output_is_data(kit: Kit) -> None:
    with kit.model(kit.city) as model:
        ran = await run(served(made(kit.structured(model))), "Which city?")
    assert ran.data == [{"name": "Lyon", "people": 5}]
    assert (ran.text, ran.statuses) == ("", [])


async def test_the_conversation_is_the_history(kit: Kit) -> None:
    needs(kit.hears_history)
    with kit.model("Ada") as model:
        await run(served(kit.agent(model)), "Who am I?", history=HISTORY)
        said = model.said()
    assert said == ["My name is Ada", "Hello Ada", "Who am I?"]


async def test_tasks_of_an_agent_share_no_conversation(kit: Kit) -> None:
    with kit.model("Hello", "Nobody") as model:
        agent = served(kit.agent(model))
        await run(agent, "My name is Ada")
        await run(agent, "Who am I?")
        (said,) = model.said(1)
    assert "Ada" not in said
    assert "Who am I?" in said


async def test_tasks_at_the_same_time_share_nothing(kit: Kit, dragoman_client: ClientFixture) -> None:
    held = threading.Event()
    with kit.model(Answer("One two", held=held), "Three") as model:
        agent = served(kit.agent(model))
        seconds: list[str] = []

        async def second(_: str) -> None:
            seconds.append((await run(agent, "Second")).text)
            held.set()

        async with dragoman_client(agent) as connection:
            assert await meanwhile(connection, "First", second) == "One two"
        (first,), (other,) = model.said(0), model.said(1)
    assert seconds == ["Three"]
    assert ("First" in first, "Second" in first) == (True, False)
    assert ("First" in other, "Second" in other) == (False, True)


async def test_text_files_of_any_kind_reach_the_model(kit: Kit, dragoman_client: ClientFixture) -> None:
    file = Part(raw=b"city,people", media_type="text/csv", filename="cities.csv")
    with kit.model("Two columns") as model:
        async with dragoman_client(served(kit.agent(model))) as connection:
            task = await connection.send([Part(text="Read this"), file])
        assert isinstance(task, Task)
        assert task.status.state is TaskState.COMPLETED
        assert "city,people" in model.said()[-1]


async def test_pictures_reach_the_model(kit: Kit) -> None:
    needs(kit.gets_pictures)
    message = [Part(text="What is this?"), Part(raw=b"PNG", media_type="image/png")]
    if kit.fetches:
        message.append(Part(url="https://files.example/dog.png", media_type="image/png"))
    with kit.model("A picture") as model:
        await run(served(kit.agent(model)), tuple(message), files={"https://files.example/dog.png": b"DOG"})
        assert model.said() == ["What is this?"]
        assert model.images() == ([b"PNG", b"DOG"] if kit.fetches else [b"PNG"])


async def test_a_tool_that_has_to_be_allowed_asks(kit: Kit) -> None:
    done: list[str] = []
    with kit.model(*CLEANING, "It is gone") as model:
        ran = await run(served(made(kit.careful(model, done))), "Clean up", answers=["yes"])
    assert ran.questions == [kit.question]
    assert done == ["looked", "a.txt"]
    assert ran.statuses == ["Calling look", "look is done", "Calling delete", "delete is done"]
    assert ran.text.endswith("It is gone")
    if kit.counts:
        assert (ran.usage.input_tokens, ran.usage.output_tokens) == (21, 9)


async def test_a_denial_is_told_to_the_model(kit: Kit) -> None:
    needs(kit.denial)
    done: list[str] = []
    with kit.model(*CLEANING, "I keep it") as model:
        ran = await run(served(made(kit.careful(model, done))), "Clean up", answers=["no, keep it"])
        assert str(kit.denial) in model.said()[-1]
    assert done == ["looked"]
    assert ran.text.endswith("I keep it")


async def test_a_permission_survives_a_restart_and_nothing_is_done_twice(kit: Kit, tmp_path: Path) -> None:
    done: list[str] = []
    with kit.model(*CLEANING, "It is gone") as model:
        made(kit.careful(model, []))
        task = await restarted(tmp_path, lambda: served(kit.careful(model, done)), "Clean up", "yes")
    assert task.status.state is TaskState.COMPLETED
    assert done == ["looked", "a.txt"]
    assert "".join(artifact.parts[-1].text or "" for artifact in task.artifacts).endswith("It is gone")
    assert len(task.artifacts) <= 2


async def test_a_permission_survives_its_worker_and_nothing_is_done_twice(kit: Kit) -> None:
    done: list[str] = []
    with kit.model(*CLEANING, "It is gone") as model:
        made(kit.careful(model, []))
        task = await handed_over(lambda: served(kit.careful(model, done)), "Clean up", "yes")
    assert task.status.state is TaskState.COMPLETED
    assert done == ["looked", "a.txt"]


async def test_an_error_of_the_model_fails_the_task(kit: Kit) -> None:
    with kit.model(*[Answer("broken", status=400)] * 4) as model, pytest.raises(Exception, match="broken"):
        await run(served(kit.agent(model)), "Hello")


async def test_cancel_stops_the_model(kit: Kit) -> None:
    needs(kit.stops_at_once)
    with kit.model(Answer("Once upon a time", held=threading.Event())) as model:
        assert await canceled(served(kit.agent(model)), model)


def test_the_page_shows_what_works(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    if kit.page is None:
        pytest.skip("the agent of the page needs what is not installed")
    file, variable, agent = kit.page
    assert served(run_block(file, 1)[variable]).profile.name == agent


async def test_other_objects_of_the_package_are_no_agents(kit: Kit) -> None:
    with kit.model() as model:
        stranger = kit.stranger(model)
    assert framework_of(stranger) is not None
    assert adapt(stranger, "test") is None
