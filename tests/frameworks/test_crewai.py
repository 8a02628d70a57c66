"""Crews and agents of CrewAI, with its own client of chat completions and a local server."""

import asyncio
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

os.environ |= {  # CrewAI reads them as it is imported: it tells its maker of every run unless it is told not to
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "CREWAI_STORAGE_DIR": (STORAGE := TemporaryDirectory(prefix="dragoman-crewai-")).name,
    "CREWAI_TRACING_ENABLED": "false",
    "OTEL_SDK_DISABLED": "true",
}

from crewai import LLM, Agent, Crew, Task
from crewai.flow import Flow, start
from crewai.hooks import HookAborted, before_llm_call, clear_all_llm_call_hooks
from crewai.memory.unified_memory import Memory
from crewai.tools import tool
from pydantic import BaseModel

from dragoman import Part
from dragoman.agents.frameworks import adapt, framework_of
from dragoman.agents.frameworks.crewai import AnswerText
from dragoman.agents.python.agent import Agent as Served
from dragoman.model.message import Message, Role
from dragoman.model.principal import Principal
from dragoman.model.task import TaskState
from dragoman.testing import ClientFixture, run
from tests.frameworks.completions import Answer, Call, Completions, completions
from tests.frameworks.documented import run_block
from tests.frameworks.meanwhile import meanwhile
from tests.frameworks.restarts import restarted


def writer(model: Completions, **given: Any) -> Agent:
    llm = LLM(model="openai/test-model", base_url=model.url, api_key="test", max_retries=0)
    return Agent(role="Writer", goal="Write well", backstory="You write.", llm=llm, **given)


def crew(model: Completions, *tasks: str, tools: Sequence[Any] = (), **given: Any) -> Crew:
    """A crew of one agent; `given` is for its last task."""
    agent = writer(model, tools=list(tools))
    made = [Task(description=text, expected_output="A text", agent=agent) for text in tasks[:-1]]
    made.append(Task(description=tasks[-1], expected_output="A text", agent=agent, **given))
    return Crew(agents=[agent], tasks=made)


def served(value: Any) -> Served:
    found = adapt(value, "test")
    assert found is not None
    return found


def asked(model: Completions, number: int = -1) -> str:
    """All that a request says."""
    return "\n".join(str(message["content"]) for message in model.requests[number]["messages"])


@tool("forecast")
def forecast(city: str) -> str:
    """The forecast for a city."""
    if city == "Atlantis":
        raise ValueError("no such city")
    return f"Sunny in {city}"


async def test_text_streams() -> None:
    with completions("Good morning to you") as model:
        ran = await run(served(crew(model, "Greet {name}")), "Ada")
        assert "Current Task: Greet Ada" in asked(model)
        assert model.requests[0]["stream"] is True
    assert ran.text == "Good morning to you"
    assert (ran.usage.input_tokens, ran.usage.output_tokens) == (7, 3)


async def test_the_card_says_what_the_crew_says_of_itself() -> None:
    with completions() as model:
        profile = served(crew(model, "Look", "Write", tools=[forecast])).profile
        agent = served(writer(model)).profile
    assert (profile.id, profile.name, profile.description) == ("test", "test", "Look; Write")
    assert profile.skills[0].tags == ("forecast",)
    assert (agent.name, agent.description) == ("Writer", "Write well")


async def test_the_last_task_makes_the_answer_and_the_others_are_progress() -> None:
    with completions("Notes", "The text") as model:
        ran = await run(served(crew(model, "Look at {topic}", "Write about it")), "Lyon")
    assert ran.text == "The text"
    assert ran.progress == [(1, 2), (2, 2)]


async def test_tool_calls_are_statuses() -> None:
    calls = [Call("forecast", {"city": "Lyon"}), Call("forecast", {"city": "Atlantis"}, "2")]
    with completions(Answer(calls=calls), "It is sunny") as model:
        ran = await run(served(crew(model, "Weather in {city}", tools=[forecast])), "Lyon")
    assert sorted(ran.statuses) == [
        "Calling forecast",
        "Calling forecast",
        "forecast failed: the log says why",
        "forecast is done",
    ]
    assert ran.text == "It is sunny"
    assert (ran.usage.input_tokens, ran.usage.output_tokens) == (14, 6)


class City(BaseModel):
    """A city."""

    name: str
    people: int


async def test_structured_output_is_data() -> None:
    with completions('{"name": "Lyon", "people": 5}') as model:
        ran = await run(served(crew(model, "Which {what}?", output_pydantic=City)), "city")
    assert ran.data == [{"name": "Lyon", "people": 5}]
    assert ran.text == ""


HISTORY = [
    Message(message_id="1", role=Role.USER, parts=(Part(text="My name is Ada"),)),
    Message(message_id="2", role=Role.AGENT, parts=(Part(text="Hello Ada"),)),
]


async def test_the_conversation_is_an_input() -> None:
    with completions("Ada") as model:
        await run(served(crew(model, "After {history} answer {message}")), "Who am I?", history=HISTORY)
        assert "After user: My name is Ada\nagent: Hello Ada answer Who am I?" in asked(model)


async def test_a_crew_without_places_gets_the_message() -> None:
    with completions("Ada") as model:
        await run(served(crew(model, "Answer")), "Who am I?", history=HISTORY)
        assert "Trigger Payload: user: My name is Ada\nagent: Hello Ada\nuser: Who am I?" in asked(model)


async def test_data_fills_places_and_what_is_missing_is_asked() -> None:
    with completions("Done", "Done") as model:
        agent = served(crew(model, "From {start} to {goal} by {means}"))
        await run(agent, Part(data={"start": "Lyon", "goal": "Nice", "means": "train"}))
        assert "From Lyon to Nice by train" in asked(model)
        ran = await run(agent, Part(data={"start": "Lyon"}), answers=["Paris", "bus"])
        assert "From Lyon to Paris by bus" in asked(model)
    assert ran.questions == ["What is goal?", "What is means?"]


async def test_an_agent_is_told_the_conversation() -> None:
    with completions("Ada") as model:
        ran = await run(served(writer(model)), "Who am I?", history=HISTORY)
        said = [message["content"] for message in model.requests[0]["messages"]][1:]
    assert said[:2] == ["My name is Ada", "Hello Ada"]
    assert "Who am I?" in said[2]
    assert ran.text == "Ada"


async def test_conversations_at_the_same_time_share_nothing(dragoman_client: ClientFixture) -> None:
    held = threading.Event()
    with completions(Answer("One two", held=held), "Three") as model:
        agent = served(crew(model, "Answer {message}"))
        seconds: list[str] = []

        async def second(_: str) -> None:
            seconds.append((await run(agent, "Second")).text)
            held.set()

        async with dragoman_client(agent) as connection:
            assert await meanwhile(connection, "First", second) == "One two"
        assert "First" not in asked(model, 1)
    assert seconds == ["Three"]


async def test_a_review_is_asked_of_the_caller() -> None:
    with completions("A draft", "A better text") as model:
        agent = served(crew(model, "Write about {topic}", human_input=True))
        ran = await run(agent, "Lyon", answers=["shorter, please", "Yes."])
        assert "shorter, please" in asked(model)
    assert [question.partition("\n")[0] for question in ran.questions] == ["A draft", "A better text"]
    assert [artifact.parts[0].text for artifact in ran.artifacts] == ["A draft", "A better text"]
    assert ran.state is TaskState.COMPLETED


async def test_a_review_is_the_same_after_a_restart(tmp_path: Path) -> None:
    with completions("A text", "A text") as model:
        task = await restarted(tmp_path, lambda: served(crew(model, "Write {it}", human_input=True)), "Lyon", "yes")
    assert [artifact.parts[-1].text for artifact in task.artifacts] == ["A text"]


async def test_a_guardrail_that_is_not_met_rejects() -> None:
    def never(_: Any) -> tuple[bool, Any]:
        return False, "not about this"

    with completions("One", "Two") as model:
        agent = served(crew(model, "Write about {topic}", guardrail=never, guardrail_max_retries=1))
        ran = await run(agent, "Lyon")
    assert ran.state is TaskState.REJECTED
    assert "not about this" in ran.reason


async def test_a_hook_that_aborts_rejects() -> None:
    @before_llm_call
    def never(_: Any) -> None:
        raise HookAborted("not that")

    try:
        with completions("One") as model:
            ran = await run(served(crew(model, "Write about {topic}")), "Lyon")
    finally:
        clear_all_llm_call_hooks()
    assert ran.state is TaskState.REJECTED
    assert ran.reason == "not that"


class Notes(Memory):
    """Remembers each answer as it is, without asking a model."""

    def extract_memories(self, content: str) -> list[str]:
        return [content]

    def remember_many(self, contents: list[str], *args: Any, **given: Any) -> list[Any]:
        return super().remember_many(contents, scope="/notes", categories=[], importance=0.5, **given)


async def test_what_a_crew_remembers_of_one_caller_is_recalled_for_no_other(tmp_path: Path) -> None:
    with completions("Ada likes tea.", "You like tea.", "I do not know.") as model:
        memory = Notes(storage=str(tmp_path), embedder=lambda texts: [[1.0, 0.0] for _ in texts])
        made = crew(model, "Answer: {message}")
        agent = served(Crew(agents=made.agents, tasks=made.tasks, memory=memory))
        for name in ("ada", "ada", "eve"):
            await run(agent, "What do I like?", principal=Principal(name))
        assert ["Ada likes tea." in asked(model, number) for number in range(3)] == [False, True, False]


async def test_an_error_of_the_model_fails_the_task() -> None:
    failures = [Answer("broken", status=400)] * 4
    with completions(*failures) as model, pytest.raises(Exception, match="broken"):
        await run(served(crew(model, "Write about {topic}")), "Lyon")


async def test_cancel_stops_the_model_at_the_next_word(dragoman_client: ClientFixture) -> None:
    held = threading.Event()
    with completions(Answer("word " * 20_000, held=held)) as model:
        async with dragoman_client(served(crew(model, "Answer {message}"))) as connection:

            async def cancel(task_id: str) -> None:
                await connection.cancel(task_id)
                held.set()

            await meanwhile(connection, "Tell me a story", cancel)
            assert await asyncio.to_thread(model.left.wait, 20)


def test_thoughts_are_not_said() -> None:
    speech = AnswerText()
    said = [speech.feed(chunk) for chunk in ("Tho", "ught: I know\nFinal", " Answer: It", " rains")]
    assert said == ["", "", "It", " rains"]
    plain = AnswerText()
    assert [plain.feed("Tho"), plain.feed("mas"), plain.feed(" went")] == ["", "Thomas", " went"]
    short = AnswerText()
    assert [short.feed("Th"), short.finish()] == ["", "Th"]


def test_the_page_shows_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    assert served(run_block("crewai.md", 1)["crew"]).profile.name == "Writers"


async def test_other_objects_of_the_package_are_no_agents() -> None:
    class Trip(Flow):  # type: ignore[type-arg]
        @start()
        def go(self) -> str:
            return "gone"

    with completions() as model:
        agent = writer(model)
    assert framework_of(agent.llm) is not None
    assert adapt(agent.llm, "test") is None
    assert adapt(Trip(), "test") is None
