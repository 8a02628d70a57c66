"""Agents of Strands, with its own client of chat completions and a local server."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from strands import Agent, tool
from strands.hooks import BeforeInvocationEvent, BeforeToolCallEvent
from strands.models.openai import OpenAIModel
from strands.session.file_session_manager import FileSessionManager

from dragoman import Part
from dragoman.agents.frameworks import adapt, framework_of
from dragoman.agents.frameworks.strands import own_of
from dragoman.agents.python.agent import Agent as Served
from dragoman.cli.references import AgentReferenceError, load_reference
from dragoman.model.message import Message, Role
from dragoman.model.task import TaskState
from dragoman.testing import ClientFixture, run
from tests.frameworks.completions import Answer, Call, Completions, completions
from tests.frameworks.documented import run_block
from tests.frameworks.meanwhile import canceled, meanwhile
from tests.frameworks.restarts import restarted


def made(model: Completions, **given: Any) -> Agent:
    client = {"base_url": model.url, "api_key": "test", "max_retries": 0}
    return Agent(model=OpenAIModel(client_args=client, model_id="test-model"), retry_strategy=None, **given)


def served(agent: Agent) -> Served:
    found = adapt(agent, "test")
    assert found is not None
    return found


@tool
def forecast(city: str) -> str:
    """The forecast for a city."""
    if city == "Atlantis":
        raise ValueError("no such city")
    return f"Sunny in {city}"


def asked(model: Completions, number: int = -1) -> Sequence[Any]:
    """The messages of a request, without the system prompt."""
    return [message for message in model.requests[number]["messages"] if message["role"] != "system"]


async def test_text_streams_and_nothing_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with completions("Good morning to you") as model:
        ran = await run(served(made(model)), "Hello")
    assert ran.text == "Good morning to you"
    assert (ran.usage.input_tokens, ran.usage.output_tokens) == (7, 3)
    assert capsys.readouterr().out == ""


async def test_the_card_says_what_the_agent_says_of_itself() -> None:
    with completions() as model:
        profile = served(made(model, name="Weather", description="Knows the weather", tools=[forecast])).profile
        unnamed = served(made(model, system_prompt="You tell the weather.")).profile
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
    with completions(Answer(calls=[Call("City", {"name": "Lyon", "people": 5})])) as model:
        ran = await run(served(made(model, structured_output_model=City)), "Which city?")
    assert ran.data == [{"name": "Lyon", "people": 5}]
    assert (ran.text, ran.statuses) == ("", [])


async def test_the_conversation_is_the_history() -> None:
    history = [
        Message(message_id="1", role=Role.USER, parts=(Part(text="My name is Ada"),)),
        Message(message_id="2", role=Role.AGENT, parts=(Part(text="Hello"), Part(text="Ada"))),
    ]
    with completions("Ada") as model:
        agent = made(model)
        await run(served(agent), "Who am I?", history=history)
        words = [part["text"] for message in asked(model) for part in message["content"]]
    assert words == ["My name is Ada", "Hello\nAda", "Who am I?"]
    assert agent.messages == []


async def test_files_reach_the_model() -> None:
    message = (
        Part(text="What is this?"),
        Part(raw=b"PNG", media_type="image/png"),
        Part(url="https://files.example/dog.png", media_type="image/png"),
    )
    with completions("A picture") as model:
        await run(served(made(model)), message, files={"https://files.example/dog.png": b"DOG"})
        text, *images = asked(model)[0]["content"]
    assert text["text"] == "What is this?"
    assert [image["image_url"]["url"] for image in images] == [
        "data:image/png;base64,UE5H",
        "data:image/png;base64,RE9H",
    ]


async def test_conversations_at_the_same_time_share_nothing(dragoman_client: ClientFixture) -> None:
    held = threading.Event()
    with completions(Answer("One two", held=held), "Three") as model:
        agent = served(made(model, messages=[{"role": "user", "content": [{"text": "Be kind"}]}]))
        seconds: list[str] = []

        async def second(_: str) -> None:
            seconds.append((await run(agent, "Second")).text)
            held.set()

        async with dragoman_client(agent) as connection:
            assert await meanwhile(connection, "First", second) == "One two"
        words = [[part["text"] for message in asked(model, at) for part in message["content"]] for at in (0, 1)]
    assert seconds == ["Three"]
    assert words == [["Be kind", "First"], ["Be kind", "Second"]]


async def test_an_agent_that_is_a_tool_is_a_twin_too() -> None:
    calls = [Answer(calls=[Call("helper", {"input": word})]) for word in ("one", "two")]
    with completions(calls[0], "helped", "done", calls[1], "helped", "done") as model:
        helper = made(model, name="helper")
        agent = served(made(model, tools=[helper.as_tool(preserve_context=True)]))
        await run(agent, "First")
        await run(agent, "Second")
        said = [message["content"] for message in asked(model, 4)]
    assert said == [[{"type": "text", "text": "two"}]]
    assert helper.messages == []


def careful(model: Completions, deleted: list[str]) -> Agent:
    """An agent that asks before it deletes a file."""

    @tool
    def look() -> str:
        """Look around."""
        deleted.append("looked")
        return "a.txt"

    @tool
    def delete(path: str) -> str:
        """Delete a file."""
        deleted.append(path)
        return f"{path} is gone"

    def approve(event: BeforeToolCallEvent) -> None:
        if event.tool_use["name"] != "delete":
            return
        if event.interrupt("approval", reason=f"Delete {event.tool_use['input']['path']}?") != "yes":
            event.cancel_tool = "was not allowed"

    return made(model, tools=[look, delete], hooks=[approve])


CLEANING = Answer("One moment.", calls=[Call("look", {}, "look-1"), Call("delete", {"path": "a.txt"})])


async def test_an_interrupt_asks() -> None:
    deleted: list[str] = []
    with completions(CLEANING, "It is gone") as model:
        ran = await run(served(careful(model, deleted)), "Clean up", answers=["yes"])
    assert ran.questions == ["approval: Delete a.txt?"]
    assert sorted(deleted) == ["a.txt", "looked"]
    assert ran.text.endswith("It is gone")
    assert "delete is done" in ran.statuses
    assert ran.usage.input_tokens == 14


async def test_an_interrupt_survives_a_restart_and_nothing_is_done_twice(tmp_path: Path) -> None:
    deleted: list[str] = []
    with completions(CLEANING, "It is gone") as model:
        task = await restarted(tmp_path, lambda: served(careful(model, deleted)), "Clean up", "yes")
    assert sorted(deleted) == ["a.txt", "looked"]
    assert [artifact.parts[-1].text for artifact in task.artifacts] == ["One moment.", "It is gone"]


async def test_an_answer_with_data_is_the_response() -> None:
    responses: list[Any] = []

    def choose(event: BeforeInvocationEvent) -> None:
        event.agent.state.set("asked", True)

    def ask(event: BeforeToolCallEvent) -> None:
        responses.append(event.interrupt("choice", reason={"of": ["a", "b"]}))

    with completions(Answer(calls=[Call("forecast", {"city": "Lyon"})]), "Fine") as model:
        agent = made(model, tools=[forecast], hooks=[choose, ask])
        ran = await run(served(agent), "Go", answers=[Part(data={"chosen": "b"})])
    assert responses == [{"chosen": "b"}]
    assert ran.questions == ['choice: {"of": ["a", "b"]}']
    assert agent.state.get() == {}


async def test_an_error_of_the_model_fails_the_task() -> None:
    with completions(Answer("broken", status=500)) as model, pytest.raises(Exception, match="broken"):
        await run(served(made(model)), "Hello")


async def test_a_content_filter_rejects(monkeypatch: pytest.MonkeyPatch) -> None:
    with completions("I will not") as model:
        agent = made(model)
        chunk = agent.model.format_chunk

        def filtered(event: dict[str, Any], **given: Any) -> Any:
            made = chunk(event, **given)
            if "messageStop" in made:
                made["messageStop"]["stopReason"] = "content_filtered"
            return made

        monkeypatch.setattr(agent.model, "format_chunk", filtered)
        ran = await run(served(agent), "Something bad")
    assert ran.state is TaskState.REJECTED
    assert ran.reason == "I will not"


async def test_cancel_stops_the_model() -> None:
    with completions(Answer("Once upon a time", held=threading.Event())) as model:
        assert await canceled(served(made(model)), model)


async def test_a_session_manager_is_refused(tmp_path: Path) -> None:
    with completions() as model, pytest.raises(ValueError, match="leave it out"):
        served(made(model, session_manager=FileSessionManager("one", storage_dir=str(tmp_path))))


def test_what_is_refused_is_said_of_the_reference(tmp_path: Path) -> None:
    file = tmp_path / "kept.py"
    file.write_text(
        "from strands import Agent\n"
        "from strands.models.openai import OpenAIModel\n"
        "from strands.session.file_session_manager import FileSessionManager\n"
        "model = OpenAIModel(client_args={'api_key': 'test'}, model_id='test-model')\n"
        f"agent = Agent(model=model, session_manager=FileSessionManager('one', storage_dir={str(tmp_path)!r}))\n"
    )
    with pytest.raises(AgentReferenceError, match=r"kept.py:agent: the session manager keeps one conversation"):
        load_reference(f"{file}:agent")


async def test_the_page_shows_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    assert served(run_block("strands.md", 1)["agent"]).profile.name == "Assistant"
    ask_first = run_block("strands.md", 2)["ask_first"]
    with completions(Answer(calls=[Call("forecast", {"city": "Lyon"})]), "Sunny") as model:
        ran = await run(served(made(model, tools=[forecast], hooks=[ask_first])), "Weather?", answers=["yes"])
    assert (ran.questions, ran.text) == (["leave: Delete it?"], "Sunny")


async def test_other_objects_of_the_package_are_no_agents() -> None:
    with completions() as model:
        agent = made(model)
    assert framework_of(agent.model) is not None
    assert adapt(agent.model, "test") is None


def test_what_a_twin_has_for_itself_is_what_a_run_changes() -> None:
    """A version with other attributes has to be looked at: what is new may belong to one conversation."""
    with completions() as model:
        agent = made(model)
    own = own_of(agent)
    assert set(vars(agent)) - set(own) - {"tool_caller", "callback_handler"} == SHARED
    for name, value in own.items():
        constant = value is None or isinstance(value, bool | int)
        assert constant or value is not vars(agent)[name], name
        assert type(value) is type(vars(agent)[name]), name


SHARED = {
    "_aux_model",
    "_background_tasks",
    "_checkpointing",
    "_context_manager",
    "_context_manager_instance",
    "_default_structured_output_model",
    "_intervention_registry",
    "_middleware_registry",
    "_model_router",
    "_plugin_registry",
    "_retry_strategy",
    "_sandbox",
    "_session_manager",
    "_storage",
    "_structured_output_prompt",
    "_system_prompt_content",
    "agent_id",
    "baggage_attributes",
    "description",
    "hooks",
    "load_tools_from_directory",
    "memory_manager",
    "model",
    "name",
    "record_direct_tool_call",
    "tool_executor",
    "trace_attributes",
    "tracer",
}
"""What the author of an agent gave it."""
