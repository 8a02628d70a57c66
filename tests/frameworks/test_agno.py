"""Agents and teams of Agno, with its own client of chat completions and a local server."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.exceptions import InputCheckError
from agno.models.openai import OpenAIChat
from agno.run.agent import RunInput
from agno.team import Team
from agno.tools import tool
from agno.tools.user_feedback import UserFeedbackTools
from pydantic import BaseModel

from dragoman import Part
from dragoman.agents.frameworks import adapt, framework_of
from dragoman.agents.python.agent import Agent as Served
from dragoman.model.message import Message, Role
from dragoman.model.principal import Principal
from dragoman.model.task import TaskState
from dragoman.testing import ClientFixture, run
from tests.frameworks.completions import Answer, Call, Completions, completions
from tests.frameworks.documented import run_block
from tests.frameworks.meanwhile import canceled, meanwhile
from tests.frameworks.restarts import restarted


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agno tells its maker of every run unless it is told not to."""
    monkeypatch.setenv("AGNO_TELEMETRY", "false")


def chat(model: Completions) -> OpenAIChat:
    """The model with connections of its own: those that Agno shares belong to the event loop of an earlier test."""
    alone = httpx.AsyncClient(limits=httpx.Limits(max_keepalive_connections=0))
    return OpenAIChat(id="test-model", base_url=model.url, api_key="test", max_retries=0, http_client=alone)


def made(model: Completions, **given: Any) -> Agent:
    return Agent(model=chat(model), **given)


def served(value: Agent | Team) -> Served:
    found = adapt(value, "test")
    assert found is not None
    return found


@tool
def forecast(city: str) -> str:
    """The forecast for a city."""
    if city == "Atlantis":
        raise ValueError("no such city")
    return f"Sunny in {city}"


def asked(model: Completions, number: int = -1) -> Sequence[Any]:
    """What the messages of a request say."""
    return [message["content"] for message in model.requests[number]["messages"]]


async def test_text_streams() -> None:
    with completions("Good morning to you") as model:
        ran = await run(served(made(model)), "Hello")
    assert ran.text == "Good morning to you"
    assert (ran.usage.input_tokens, ran.usage.output_tokens) == (7, 3)


async def test_the_card_says_what_the_agent_says_of_itself() -> None:
    with completions() as model:
        profile = served(made(model, name="Weather", description="Knows the weather", tools=[forecast])).profile
        unnamed = served(made(model, instructions="You tell the weather.")).profile
    assert (profile.id, profile.name, profile.description) == ("test", "Weather", "Knows the weather")
    assert profile.skills[0].tags == ("forecast",)
    assert (unnamed.name, unnamed.description) == ("test", "You tell the weather.")


async def test_tool_calls_are_statuses() -> None:
    calls = Answer(
        "Let me see.", calls=[Call("forecast", {"city": "Lyon"}), Call("forecast", {"city": "Atlantis"}, "2")]
    )
    with completions(calls, "It is sunny") as model:
        ran = await run(served(made(model, tools=[forecast])), "Weather?")
    assert ran.statuses == [
        "Calling forecast",
        "Calling forecast",
        "forecast is done",
        "forecast failed: the log says why",
    ]
    assert ran.text == "Let me see.\n\nIt is sunny"
    assert (ran.usage.input_tokens, ran.usage.output_tokens) == (14, 6)


class City(BaseModel):
    """A city."""

    name: str
    people: int


async def test_structured_output_is_data() -> None:
    with completions('{"name": "Lyon", "people": 5}') as model:
        ran = await run(served(made(model, output_schema=City)), "Which city?")
    assert ran.data == [{"name": "Lyon", "people": 5}]
    assert ran.text == ""


HISTORY = [
    Message(message_id="1", role=Role.USER, parts=(Part(text="My name is Ada"),)),
    Message(message_id="2", role=Role.AGENT, parts=(Part(text="Hello Ada"),)),
]


async def test_the_conversation_is_the_history() -> None:
    with completions("Ada") as model:
        await run(served(made(model)), "Who am I?", history=HISTORY)
        assert asked(model) == ["My name is Ada", "Hello Ada", "Who am I?"]


async def test_what_agno_remembers_is_not_told_again_and_is_the_callers_own() -> None:
    with completions("Hello", "Ada", "Nobody") as model:
        agent = served(made(model, db=InMemoryDb(), add_history_to_context=True))
        await run(agent, "My name is Ada", principal=Principal("ada"))
        await run(agent, "Who am I?", history=HISTORY, principal=Principal("ada"))
        await run(agent, "Who am I?", principal=Principal("eve"))
        assert asked(model, 1) == ["My name is Ada", "Hello", "Who am I?"]
        assert asked(model, 2) == ["Who am I?"]


async def test_files_reach_the_model() -> None:
    message = (
        Part(text="What is this?"),
        Part(raw=b"PNG", media_type="image/png"),
        Part(url="https://files.example/dog.png", media_type="image/png"),
    )
    with completions("A picture") as model:
        await run(served(made(model)), message, files={"https://files.example/dog.png": b"DOG"})
        text, *images = asked(model)[0]
    assert text["text"] == "What is this?"
    assert [image["image_url"]["url"] for image in images] == [
        "data:image/png;base64,UE5H",
        "data:image/png;base64,RE9H",
    ]


async def test_conversations_at_the_same_time_share_nothing(dragoman_client: ClientFixture) -> None:
    held = threading.Event()
    with completions(Answer("One two", held=held), "Three") as model:
        agent = served(made(model))
        seconds: list[str] = []

        async def second(_: str) -> None:
            seconds.append((await run(agent, "Second")).text)
            held.set()

        async with dragoman_client(agent) as connection:
            assert await meanwhile(connection, "First", second) == "One two"
        assert (asked(model, 0), asked(model, 1)) == (["First"], ["Second"])
    assert seconds == ["Three"]


def careful(model: Completions, deleted: list[str]) -> Agent:
    """An agent that deletes a file after it was allowed to."""

    @tool
    def look() -> str:
        """Look around."""
        deleted.append("looked")
        return "a.txt"

    @tool(requires_confirmation=True)
    def delete(path: str) -> str:
        """Delete a file."""
        deleted.append(path)
        return f"{path} is gone"

    return made(model, tools=[look, delete])


CLEANING = (
    Answer("Let me see.", calls=[Call("look", {}, "look-1")]),
    Answer(calls=[Call("delete", {"path": "a.txt"})]),
)


async def test_a_tool_that_needs_confirmation_asks() -> None:
    deleted: list[str] = []
    with completions(*CLEANING, "It is gone") as model:
        ran = await run(served(careful(model, deleted)), "Clean up", answers=["Yes."])
    assert ran.questions == ['May delete be called with {"path": "a.txt"}? Answer yes or no.']
    assert deleted == ["looked", "a.txt"]
    assert ran.text.endswith("It is gone")
    assert ran.statuses[-1] == "delete is done"
    assert ran.usage.input_tokens == 21


async def test_a_denial_is_told_to_the_model() -> None:
    deleted: list[str] = []
    with completions(*CLEANING, "I keep it") as model:
        await run(served(careful(model, deleted)), "Clean up", answers=["no, keep it"])
        assert "no, keep it" in asked(model)[-1]
    assert deleted == ["looked"]


async def test_a_confirmation_survives_a_restart_and_nothing_is_done_twice(tmp_path: Path) -> None:
    deleted: list[str] = []
    with completions(*CLEANING, "It is gone") as model:
        task = await restarted(tmp_path, lambda: served(careful(model, deleted)), "Clean up", "yes")
    assert deleted == ["looked", "a.txt"]
    assert [artifact.parts[-1].text for artifact in task.artifacts] == ["Let me see.", "It is gone"]


async def test_what_a_tool_needs_of_the_user_is_asked() -> None:
    sent: list[tuple[str, str, int]] = []

    @tool(requires_user_input=True, user_input_fields=["to", "copies"])
    def send(subject: str, to: str, copies: int) -> str:
        """Send a mail."""
        sent.append((subject, to, copies))
        return "sent"

    with completions(Answer(calls=[Call("send", {"subject": "Hello"})]), "Sent") as model:
        ran = await run(served(made(model, tools=[send])), "Send it", answers=["Ada", "2"])
    assert ran.questions == ["send needs to: str", "send needs copies: int"]
    assert sent == [("Hello", "Ada", 2)]
    assert ran.text == "Sent"


async def test_a_tool_of_the_callers_is_asked_for_its_result() -> None:
    @tool(external_execution=True)
    def locate() -> str:
        """Where the user is."""
        return ""

    with completions(Answer(calls=[Call("locate")]), "You are in Lyon") as model:
        ran = await run(served(made(model, tools=[locate])), "Where am I?", answers=[Part(data={"city": "Lyon"})])
        assert asked(model)[-1] == '{"city": "Lyon"}'
    assert ran.questions == ["What does locate give for {}?"]
    assert ran.text == "You are in Lyon"


async def test_a_choice_is_asked() -> None:
    options = [{"label": "Sea"}, {"label": "Hills"}]
    call = Call("ask_user", {"questions": [{"question": "Where?", "header": "Place", "options": options}]})
    with completions(Answer(calls=[call]), "To the sea") as model:
        ran = await run(served(made(model, tools=[UserFeedbackTools()])), "Holidays", answers=["Sea"])
        assert "Sea" in asked(model)[-1]
    assert ran.questions == ["Where? (Sea, Hills)"]
    assert ran.text == "To the sea"


async def test_a_guardrail_rejects() -> None:
    def guard(run_input: RunInput) -> None:
        raise InputCheckError(f"not about {run_input.input_content_string()[:0]}this")

    with completions() as model:
        ran = await run(served(made(model, pre_hooks=[guard])), "Something bad")
    assert ran.state is TaskState.REJECTED
    assert ran.reason == "not about this"


async def test_an_error_of_the_model_fails_the_task() -> None:
    with completions(Answer("broken", status=500)) as model, pytest.raises(RuntimeError, match="broken"):
        await run(served(made(model)), "Hello")


async def test_cancel_stops_the_model() -> None:
    with completions(Answer("Once upon a time", held=threading.Event())) as model:
        assert await canceled(served(made(model)), model)


async def test_a_team_answers_with_what_its_leader_says() -> None:
    call = Call("delegate_task_to_member", {"member_id": "weather", "task": "Weather in Lyon?"})
    with completions(Answer(calls=[call]), "Sunny", "It is sunny in Lyon") as model:
        member = made(model, name="Weather", id="weather", role="Knows the weather")
        team = Team(model=chat(model), members=[member], name="Desk", description="Answers questions")
        ran = await run(served(team), "Weather?")
        assert served(team).profile.name == "Desk"
    assert ran.text == "It is sunny in Lyon"
    assert ran.statuses == ["Calling delegate_task_to_member", "delegate_task_to_member is done"]
    assert (ran.usage.input_tokens, ran.usage.output_tokens) == (21, 9)


async def test_a_team_asks_for_its_member() -> None:
    deleted: list[str] = []
    call = Call("delegate_task_to_member", {"member_id": "cleaner", "task": "Clean up"})
    with completions(Answer(calls=[call]), *CLEANING, "It is gone", "All clean") as model:
        member = careful(model, deleted)
        member.id = member.name = "cleaner"
        team = Team(model=chat(model), members=[member], name="Desk")
        ran = await run(served(team), "Clean up", answers=["yes"])
    assert deleted == ["looked", "a.txt"]
    assert ran.text == "All clean"


def test_the_page_shows_what_works() -> None:
    assert served(run_block("agno.md", 1)["agent"]).profile.name == "Assistant"


async def test_other_objects_of_the_package_are_no_agents() -> None:
    with completions() as model:
        assert framework_of(chat(model)) is not None
        assert adapt(chat(model), "test") is None
