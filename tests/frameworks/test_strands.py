"""Agents of Strands, with its own client of chat completions and a local server."""

from pathlib import Path
from typing import Any

import pytest
from strands.hooks import BeforeInvocationEvent, BeforeToolCallEvent
from strands.session.file_session_manager import FileSessionManager

from dragoman import Part
from dragoman.agents.frameworks.strands import own_of
from dragoman.cli.references import AgentReferenceError, load_reference
from dragoman.model.message import Message, Role
from dragoman.model.task import TaskState
from dragoman.testing import run
from tests.frameworks.completions import Answer, Call, completions
from tests.frameworks.documented import run_block
from tests.frameworks.kit import served
from tests.frameworks.kits.strands import KIT, forecast


async def test_an_agent_without_a_name_is_described_by_its_prompt() -> None:
    with completions() as model:
        profile = served(KIT.agent(model, system_prompt="You tell the weather.")).profile
    assert (profile.name, profile.description) == ("test", "You tell the weather.")


async def test_a_message_of_several_parts_is_one_text_and_the_author_s_agent_stays_as_it_was() -> None:
    history = [
        Message(message_id="1", role=Role.USER, parts=(Part(text="My name is Ada"),)),
        Message(message_id="2", role=Role.AGENT, parts=(Part(text="Hello"), Part(text="Ada"))),
    ]
    with completions("Ada") as model:
        agent = KIT.agent(model)
        await run(served(agent), "Who am I?", history=history)
        words = model.said()
    assert words == ["My name is Ada", "Hello\nAda", "Who am I?"]
    assert agent.messages == []


async def test_messages_that_the_author_gave_come_first_in_every_task() -> None:
    with completions("One", "Two") as model:
        agent = served(KIT.agent(model, messages=[{"role": "user", "content": [{"text": "Be kind"}]}]))
        await run(agent, "First")
        await run(agent, "Second")
        assert (model.said(0), model.said(1)) == (["Be kind", "First"], ["Be kind", "Second"])


async def test_an_agent_that_is_a_tool_is_a_twin_too() -> None:
    calls = [Answer(calls=[Call("helper", {"input": word})]) for word in ("one", "two")]
    with completions(calls[0], "helped", "done", calls[1], "helped", "done") as model:
        helper = KIT.agent(model, name="helper")
        agent = served(KIT.agent(model, tools=[helper.as_tool(preserve_context=True)]))
        await run(agent, "First")
        await run(agent, "Second")
        assert model.said(4) == ["two"]
    assert helper.messages == []


async def test_an_answer_with_data_is_the_response() -> None:
    responses: list[Any] = []

    def choose(event: BeforeInvocationEvent) -> None:
        event.agent.state.set("asked", True)

    def ask(event: BeforeToolCallEvent) -> None:
        responses.append(event.interrupt("choice", reason={"of": ["a", "b"]}))

    with completions(Answer(calls=[Call("forecast", {"city": "Lyon"})]), "Fine") as model:
        agent = KIT.agent(model, tools=[forecast], hooks=[choose, ask])
        ran = await run(served(agent), "Go", answers=[Part(data={"chosen": "b"})])
    assert responses == [{"chosen": "b"}]
    assert ran.questions == ['choice: {"of": ["a", "b"]}']
    assert agent.state.get() == {}


async def test_a_content_filter_rejects(monkeypatch: pytest.MonkeyPatch) -> None:
    with completions("I will not") as model:
        agent = KIT.agent(model)
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


async def test_a_session_manager_is_refused(tmp_path: Path) -> None:
    with completions() as model, pytest.raises(ValueError, match="leave it out"):
        served(KIT.agent(model, session_manager=FileSessionManager("one", storage_dir=str(tmp_path))))


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


async def test_the_hook_of_the_page_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    ask_first = run_block("strands.md", 2)["ask_first"]
    with completions(Answer(calls=[Call("forecast", {"city": "Lyon"})]), "Sunny") as model:
        ran = await run(served(KIT.agent(model, tools=[forecast], hooks=[ask_first])), "Weather?", answers=["yes"])
    assert (ran.questions, ran.text) == (["leave: Delete it?"], "Sunny")


def test_what_a_twin_has_for_itself_is_what_a_run_changes() -> None:
    """A version with other attributes has to be looked at: what is new may belong to one conversation."""
    with completions() as model:
        agent = KIT.agent(model)
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
"""The settings that the author of an agent gave it."""
