"""Crews and agents of CrewAI, with its own client of chat completions and a local server."""

import asyncio
import threading
from pathlib import Path
from typing import Any

from crewai import Crew
from crewai.flow import Flow, start
from crewai.hooks import HookAborted, before_llm_call, clear_all_llm_call_hooks
from crewai.memory.unified_memory import Memory

from dragoman import Part
from dragoman.agents.adapters import adapt
from dragoman.agents.frameworks.crewai import AnswerText
from dragoman.model.principal import Principal
from dragoman.model.task import TaskState
from dragoman.testing import ClientFixture, run
from tests.frameworks.completions import Answer, Completions, completions
from tests.frameworks.kit import HISTORY, served
from tests.frameworks.kits.crewai import crew, writer
from tests.frameworks.meanwhile import meanwhile
from tests.frameworks.restarts import restarted


def text_of(model: Completions, number: int = -1) -> str:
    """All that a request says."""
    return "\n".join(model.said(number))


async def test_the_message_fills_the_only_place() -> None:
    with completions("Good morning to you") as model:
        await run(served(crew(model, "Greet {name}")), "Ada")
        assert "Current Task: Greet Ada" in text_of(model)
        assert model.requests[0]["stream"] is True


async def test_an_agent_without_a_crew_is_served() -> None:
    with completions("Ada") as model:
        agent = served(writer(model))
        ran = await run(agent, "Who am I?", history=HISTORY)
        first, second, third = model.said()
    assert (agent.profile.name, agent.profile.description) == ("Writer", "Write well")
    assert (first, second) == ("My name is Ada", "Hello Ada")
    assert "Who am I?" in third
    assert ran.text == "Ada"


async def test_the_last_task_makes_the_answer_and_the_others_are_progress() -> None:
    with completions("Notes", "The text") as model:
        ran = await run(served(crew(model, "Look at {topic}", "Write about it")), "Lyon")
    assert ran.text == "The text"
    assert ran.progress == [(1, 2), (2, 2)]


async def test_the_conversation_is_an_input() -> None:
    with completions("Ada") as model:
        await run(served(crew(model, "After {history} answer {message}")), "Who am I?", history=HISTORY)
        assert "After user: My name is Ada\nagent: Hello Ada answer Who am I?" in text_of(model)


async def test_a_crew_without_places_gets_the_message() -> None:
    with completions("Ada") as model:
        await run(served(crew(model, "Answer")), "Who am I?", history=HISTORY)
        assert "Trigger Payload: user: My name is Ada\nagent: Hello Ada\nuser: Who am I?" in text_of(model)


async def test_data_fills_places_and_what_is_missing_is_asked() -> None:
    with completions("Done", "Done") as model:
        agent = served(crew(model, "From {start} to {goal} by {means}"))
        await run(agent, Part(data={"start": "Lyon", "goal": "Nice", "means": "train"}))
        assert "From Lyon to Nice by train" in text_of(model)
        ran = await run(agent, Part(data={"start": "Lyon"}), answers=["Paris", "bus"])
        assert "From Lyon to Paris by bus" in text_of(model)
    assert ran.questions == ["What is goal?", "What is means?"]


async def test_a_review_is_asked_of_the_caller() -> None:
    with completions("A draft", "A better text") as model:
        agent = served(crew(model, "Write about {topic}", human_input=True))
        ran = await run(agent, "Lyon", answers=["shorter, please", "Yes."])
        assert "shorter, please" in text_of(model)
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
        assert ["Ada likes tea." in text_of(model, number) for number in range(3)] == [False, True, False]


async def test_cancel_stops_the_model_at_the_next_word(dragoman_client: ClientFixture) -> None:
    held = threading.Event()
    with completions(Answer("word " * 20_000, held=held)) as model:
        async with dragoman_client(served(crew(model, "Answer {message}"))) as connection:

            async def cancel(task_id: str) -> None:
                await connection.cancel(task_id)
                held.set()

            await meanwhile(connection, "Tell me a story", cancel)
            assert await asyncio.to_thread(model.left.wait, 60)


def test_thoughts_are_not_said() -> None:
    speech = AnswerText()
    said = [speech.feed(chunk) for chunk in ("Tho", "ught: I know\nFinal", " Answer: It", " rains")]
    assert said == ["", "", "It", " rains"]
    plain = AnswerText()
    assert [plain.feed("Tho"), plain.feed("mas"), plain.feed(" went")] == ["", "Thomas", " went"]
    short = AnswerText()
    assert [short.feed("Th"), short.finish()] == ["", "Th"]


def test_a_flow_is_no_agent() -> None:
    class Trip(Flow):  # type: ignore[type-arg]
        @start()
        def go(self) -> str:
            return "gone"

    assert adapt(Trip(), "test") is None
