"""Agents and teams of Agno, with its own client of chat completions and a local server."""

from pathlib import Path

import pytest
from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.exceptions import InputCheckError
from agno.media import File, Image
from agno.run.agent import RunInput
from agno.team import Team
from agno.tools import tool
from agno.tools.function import ToolResult
from agno.tools.user_feedback import UserFeedbackTools

from dragoman import Part
from dragoman.model.principal import Principal
from dragoman.model.task import TaskState
from dragoman.testing import run
from tests.frameworks.completions import Answer, Call, completions
from tests.frameworks.kit import CLEANING, HISTORY, served
from tests.frameworks.kits.agno import KIT, chat


async def test_an_agent_without_a_name_is_described_by_its_instructions() -> None:
    with completions() as model:
        profile = served(KIT.agent(model, instructions="You tell the weather.")).profile
    assert (profile.name, profile.description) == ("test", "You tell the weather.")


async def test_what_agno_remembers_is_not_told_again_and_is_the_callers_own() -> None:
    with completions("Hello", "Ada", "Nobody") as model:
        agent = served(KIT.agent(model, db=InMemoryDb(), add_history_to_context=True))
        await run(agent, "My name is Ada", principal=Principal("ada"))
        await run(agent, "Who am I?", history=HISTORY, principal=Principal("ada"))
        await run(agent, "Who am I?", principal=Principal("eve"))
        assert model.said(1) == ["My name is Ada", "Hello", "Who am I?"]
        assert model.said(2) == ["Who am I?"]


async def test_what_a_tool_needs_of_the_user_is_asked() -> None:
    sent: list[tuple[str, str, int]] = []

    @tool(requires_user_input=True, user_input_fields=["to", "copies"])
    def send(subject: str, to: str, copies: int) -> str:
        """Send a mail."""
        sent.append((subject, to, copies))
        return "sent"

    with completions(Answer(calls=[Call("send", {"subject": "Hello"})]), "Sent") as model:
        ran = await run(served(KIT.agent(model, tools=[send])), "Send it", answers=["Ada", "2"])
    assert ran.questions == ["send needs to: str", "send needs copies: int"]
    assert sent == [("Hello", "Ada", 2)]
    assert ran.text == "Sent"


async def test_a_tool_of_the_callers_is_asked_for_its_result() -> None:
    @tool(external_execution=True)
    def locate() -> str:
        """Where the user is."""
        return ""

    with completions(Answer(calls=[Call("locate")]), "You are in Lyon") as model:
        ran = await run(served(KIT.agent(model, tools=[locate])), "Where am I?", answers=[Part(data={"city": "Lyon"})])
        assert model.said()[-1] == '{"city": "Lyon"}'
    assert ran.questions == ["What does locate give for {}?"]
    assert ran.text == "You are in Lyon"


async def test_a_choice_is_asked() -> None:
    options = [{"label": "Sea"}, {"label": "Hills"}]
    call = Call("ask_user", {"questions": [{"question": "Where?", "header": "Place", "options": options}]})
    with completions(Answer(calls=[call]), "To the sea") as model:
        ran = await run(served(KIT.agent(model, tools=[UserFeedbackTools()])), "Holidays", answers=["Sea"])
        assert "Sea" in model.said()[-1]
    assert ran.questions == ["Where? (Sea, Hills)"]
    assert ran.text == "To the sea"


async def test_a_guardrail_rejects() -> None:
    def guard(run_input: RunInput) -> None:
        raise InputCheckError(f"not about {run_input.input_content_string()[:0]}this")

    with completions() as model:
        ran = await run(served(KIT.agent(model, pre_hooks=[guard])), "Something bad")
    assert ran.state is TaskState.REJECTED
    assert ran.reason == "not about this"


async def test_files_of_tools_are_given_out(tmp_path: Path) -> None:
    left = tmp_path / "cat.png"
    left.write_bytes(b"PNG")

    @tool
    def draw() -> ToolResult:
        """Draw a cat."""
        pictures = [Image(filepath=left, mime_type="image/png"), Image(url="https://here.test/dog.png")]
        files = [File(content=b"a,b", mime_type="text/csv", filename="cats.csv")]
        return ToolResult(content="drawn", images=pictures, files=files)

    with completions(Answer(calls=[Call("draw", {})]), "Here") as model:
        ran = await run(served(Agent(model=chat(model), tools=[draw])), "Draw a cat")
    assert ran.artifacts[0].parts == (
        Part(text="Here"),
        Part(raw=b"PNG", media_type="image/png", filename="cat.png"),
        Part(url="https://here.test/dog.png"),
        Part(raw=b"a,b", media_type="text/csv", filename="cats.csv"),
    )


@pytest.mark.parametrize("media_type", ["application/pdf", "application/zip"])
async def test_a_file_of_the_caller_reaches_the_model(media_type: str) -> None:
    with completions("Read") as model:
        ran = await run(served(KIT.agent(model)), Part(raw=b"%PDF-", media_type=media_type, filename="a.pdf"))
        assert "a.pdf" in str(model.requests[-1])
    assert (ran.state, ran.text) == (TaskState.COMPLETED, "Read")


async def test_a_team_answers_with_what_its_leader_says() -> None:
    call = Call("delegate_task_to_member", {"member_id": "weather", "task": "Weather in Lyon?"})
    with completions(Answer(calls=[call]), "Sunny", "It is sunny in Lyon") as model:
        member = KIT.agent(model, name="Weather", id="weather", role="Knows the weather")
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
        member = KIT.careful(model, deleted)
        member.id = member.name = "cleaner"
        team = Team(model=chat(model), members=[member], name="Desk")
        ran = await run(served(team), "Clean up", answers=["yes"])
    assert deleted == ["looked", "a.txt"]
    assert ran.text == "All clean"
