"""Agents of Google's Agent Development Kit, with a model that is a class of the test's own, as the kit has it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.openapi.models import APIKey, APIKeyIn, OAuth2, OAuthFlowAuthorizationCode, OAuthFlows
from google.adk.agents import BaseAgent, LlmAgent, SequentialAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.apps import App
from google.adk.auth import AuthConfig
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.events import Event
from google.adk.events.request_input import RequestInput
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools import FunctionTool, LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import Workflow
from google.genai import types
from pydantic import BaseModel

from dragoman import Part
from dragoman.agents.frameworks import adapt, framework_of
from dragoman.agents.frameworks.google_adk import response_to
from dragoman.agents.python.agent import Agent as Served
from dragoman.agents.python.context import Answer
from dragoman.model.message import Message, Role
from dragoman.model.principal import Principal
from dragoman.model.task import TaskState
from dragoman.testing import run
from dragoman.testing.loopback import client
from tests.frameworks.documented import run_block
from tests.frameworks.meanwhile import meanwhile
from tests.frameworks.restarts import restarted

Call = tuple[str, dict[str, Any]]
USED = types.GenerateContentResponseUsageMetadata(prompt_token_count=7, candidates_token_count=3, total_token_count=10)


class Scripted(BaseLlm):
    """Says what the test wrote down: text word by word, calls of tools, or an answer as it is."""

    model: str = "scripted"
    script: list[Any] = []  # noqa: RUF012  a model of Pydantic copies it
    seen: list[Any] = []  # noqa: RUF012
    held: Any = None
    stopped: Any = None

    async def generate_content_async(self, request: LlmRequest, stream: bool = False) -> AsyncGenerator[Any, None]:
        """One answer."""
        self.seen.append([(content.role, [_said(part) for part in content.parts]) for content in request.contents])
        match self.script.pop(0):
            case str() as text:
                for word in [word for word in text.replace(" ", " \0").split("\0") if word]:
                    yield LlmResponse(content=_model(types.Part(text=word)), partial=True)
                    if self.held is not None:
                        try:
                            await self.held.wait()
                        finally:
                            self.stopped.set()
                yield LlmResponse(content=_model(types.Part(text=text)), usage_metadata=USED)
            case list() as calls:
                parts = [types.Part(function_call=types.FunctionCall(name=name, args=args)) for name, args in calls]
                yield LlmResponse(content=_model(*parts), usage_metadata=USED)
            case answer:
                yield answer


def _model(*parts: types.Part) -> types.Content:
    return types.Content(role="model", parts=list(parts))


def _said(part: types.Part) -> Any:
    if part.function_response is not None:
        return part.function_response.response
    return part.text or part.inline_data or (part.function_call.name if part.function_call else None)


def scripted(*script: Any) -> Scripted:
    model = Scripted()
    model.script, model.seen = list(script), []
    return model


def made(model: Scripted, **given: Any) -> LlmAgent:
    return LlmAgent(**{"name": "helper", "model": model, **given})


def served(value: Any) -> Served:
    found = adapt(value, "test")
    assert found is not None
    return found


async def forecast(city: str) -> str:
    """The forecast for a city."""
    return f"Sunny in {city}"


async def failing(city: str) -> dict[str, str]:
    """The forecast for a city that is not there."""
    return {"error": f"no city {city}"}


async def test_text_streams() -> None:
    ran = await run(served(made(scripted("Good morning to you"))), "Hello")
    assert ran.text == "Good morning to you"
    assert (ran.usage.input_tokens, ran.usage.output_tokens) == (7, 3)


async def test_the_card_says_what_the_agent_says_of_itself() -> None:
    profile = served(made(scripted(), description="Knows the weather", tools=[forecast])).profile
    unsaid = served(made(scripted(), instruction="You tell the weather.")).profile
    assert (profile.id, profile.name, profile.description) == ("test", "helper", "Knows the weather")
    assert profile.skills[0].tags == ("forecast",)
    assert unsaid.description == "You tell the weather."


async def test_tool_calls_are_statuses() -> None:
    calls: list[Call] = [("forecast", {"city": "Lyon"}), ("failing", {"city": "Atlantis"})]
    ran = await run(served(made(scripted("Let me see", calls), tools=[forecast, failing])), "Weather?")
    assert ran.text == "Let me see"
    ran = await run(served(made(scripted(calls, "It is sunny"), tools=[forecast, failing])), "Weather?")
    assert ran.statuses == [
        "Calling forecast",
        "Calling failing",
        "forecast is done",
        "failing failed: no city Atlantis",
    ]
    assert ran.text == "It is sunny"
    assert (ran.usage.input_tokens, ran.usage.output_tokens) == (14, 6)


class City(BaseModel):
    """A city."""

    name: str
    people: int


async def test_structured_output_is_data() -> None:
    ran = await run(served(made(scripted('{"name": "Lyon", "people": 5}'), output_schema=City)), "Which city?")
    assert ran.data == [{"name": "Lyon", "people": 5}]
    assert ran.text == ""


HISTORY = [
    Message(message_id="1", role=Role.USER, parts=(Part(text="My name is Ada"),)),
    Message(message_id="2", role=Role.AGENT, parts=(Part(text="Hello Ada"),)),
]


async def test_the_conversation_is_the_history() -> None:
    model = scripted("Ada")
    await run(served(made(model)), "Who am I?", history=HISTORY)
    assert model.seen == [[("user", ["My name is Ada"]), ("model", ["Hello Ada"]), ("user", ["Who am I?"])]]


async def test_tasks_of_an_agent_share_no_session() -> None:
    model = scripted("Hello", "Nobody")
    agent = served(made(model))
    await run(agent, "My name is Ada")
    await run(agent, "Who am I?")
    assert model.seen[1] == [("user", ["Who am I?"])]


async def test_a_runner_keeps_its_sessions_by_caller() -> None:
    model = scripted("Hello", "Ada", "Nobody")
    agent = served(Runner(agent=made(model), app_name="desk", session_service=InMemorySessionService()))
    await run(agent, "My name is Ada", principal=Principal("ada"))
    await run(agent, "Who am I?", history=HISTORY, principal=Principal("ada"))
    await run(agent, "Who am I?", principal=Principal("eve"))
    assert model.seen[1] == [("user", ["My name is Ada"]), ("model", ["Hello"]), ("user", ["Who am I?"])]
    assert model.seen[2] == [("user", ["Who am I?"])]


async def test_an_app_is_served() -> None:
    ran = await run(served(App(name="desk", root_agent=made(scripted("Good day")))), "Hello")
    assert ran.text == "Good day"


async def test_several_agents_speak_in_turn() -> None:
    first, second = made(scripted("One"), name="first"), made(scripted("Two"), name="second")
    ran = await run(served(SequentialAgent(name="both", sub_agents=[first, second])), "Count")
    assert ran.text == "One\n\nTwo"


async def test_files_reach_the_model() -> None:
    model = scripted("A picture")
    message = (Part(text="What is this?"), Part(raw=b"PNG", media_type="image/png"))
    await run(served(made(model)), message)
    assert model.seen == [[("user", ["What is this?", types.Blob(data=b"PNG", mime_type="image/png")])]]


async def test_files_that_a_tool_saves_are_given_out() -> None:
    async def draw(tool_context: ToolContext) -> str:
        """Draw a picture."""
        await tool_context.save_artifact("cat.png", types.Part.from_bytes(data=b"PNG", mime_type="image/png"))
        return "drawn"

    ran = await run(served(made(scripted([("draw", {})], "Here"), tools=[draw])), "Draw a cat")
    assert [(file.filename, file.raw, file.media_type) for file in ran.files] == [("cat.png", b"PNG", "image/png")]


def careful(deleted: list[str]) -> LlmAgent:
    """An agent that deletes a file after it was allowed to."""

    async def look() -> str:
        """Look around."""
        deleted.append("looked")
        return "a.txt"

    async def delete(path: str) -> str:
        """Delete a file."""
        deleted.append(path)
        return f"{path} is gone"

    return made(CLEANING(), tools=[look, FunctionTool(delete, require_confirmation=True)])


def CLEANING() -> Scripted:  # noqa: N802  it is the script of every one of these tests
    return scripted([("look", {})], [("delete", {"path": "a.txt"})], "It is gone")


async def test_a_tool_that_needs_confirmation_asks() -> None:
    deleted: list[str] = []
    ran = await run(served(careful(deleted)), "Clean up", answers=["Yes."])
    assert ran.questions == ['May delete be called with {"path": "a.txt"}? Answer yes or no.']
    assert deleted == ["looked", "a.txt"]
    assert ran.statuses == ["Calling look", "look is done", "Calling delete", "delete is done"]
    assert ran.text == "It is gone"


async def test_a_denial_is_told_to_the_model() -> None:
    deleted: list[str] = []
    agent = careful(deleted)
    ran = await run(served(agent), "Clean up", answers=["no"])
    assert deleted == ["looked"]
    assert ran.statuses[-1] == "delete failed: This tool call is rejected."
    assert "rejected" in str(agent.model.seen[-1])  # type: ignore[union-attr]


async def test_a_confirmation_survives_a_restart_and_nothing_is_done_twice(tmp_path: Path) -> None:
    deleted: list[str] = []
    agents = iter((careful(deleted), careful(deleted)))

    def again() -> Served:
        agent = next(agents)
        if deleted:
            agent.model.script = ["It is gone"]  # type: ignore[union-attr]
        return served(agent)

    task = await restarted(tmp_path, again, "Clean up", "yes")
    assert deleted == ["looked", "a.txt"]
    assert [artifact.parts[-1].text for artifact in task.artifacts] == ["It is gone"]


async def test_a_tool_that_runs_long_is_asked_for_its_result() -> None:
    def book(hotel: str) -> dict[str, str]:
        """Book a hotel."""
        return {"status": "pending"}

    model = scripted([("book", {"hotel": "Ritz"})], "I wait", "It is booked")
    ran = await run(served(made(model, tools=[LongRunningFunctionTool(book)])), "Book it", answers=["room 12"])
    assert ran.questions == ['What does book give for {"hotel": "Ritz"}?']
    assert "room 12" in str(model.seen[-1])
    assert ran.text.endswith("It is booked")


KEY = AuthConfig(auth_scheme=APIKey(**{"in": APIKeyIn.header, "name": "X-Key"}))

FLOW = OAuthFlowAuthorizationCode(
    authorizationUrl="https://sign.example/in", tokenUrl="https://sign.example/token", scopes={"read": "Read"}
)
SIGN_IN = AuthConfig(
    auth_scheme=OAuth2(flows=OAuthFlows(authorizationCode=FLOW)),
    raw_auth_credential=AuthCredential(
        auth_type=AuthCredentialTypes.OAUTH2, oauth2=OAuth2Auth(client_id="me", client_secret="hidden")
    ),
)


def calendar(config: AuthConfig, given: list[Any]) -> Callable[..., Any]:
    async def calendar(tool_context: ToolContext) -> str:
        """The calendar."""
        credential = tool_context.get_auth_response(config)
        if credential is None:
            tool_context.request_credential(config)
            return "waiting"
        given.append(credential)
        return "free"

    return calendar


async def test_a_credential_is_asked_for_as_authentication() -> None:
    given: list[Any] = []
    agent = served(made(scripted([("calendar", {})], "You are free"), tools=[calendar(KEY, given)]))
    ran = await run(agent, "Am I free?")
    assert ran.state is TaskState.AUTH_REQUIRED
    agent = served(made(scripted([("calendar", {})], "You are free"), tools=[calendar(KEY, given)]))
    ran = await run(agent, "Am I free?", answers=["my-key"])
    assert ran.questions == ["Give the credential for X-Key."]
    assert [credential.api_key for credential in given] == ["my-key"]
    assert ran.text == "You are free"
    assert ran.statuses == ["Calling calendar", "calendar is done"]


async def test_a_sign_in_says_where_and_not_the_secret() -> None:
    agent = served(made(scripted([("calendar", {})], "You are free"), tools=[calendar(SIGN_IN, [])]))
    ran = await run(agent, "Am I free?")
    assert ran.questions[0].startswith("Sign in at https://sign.example/in?")
    assert "hidden" not in repr(ran.events)


async def test_a_caller_does_not_say_where_the_secret_goes() -> None:
    call = {"name": "adk_request_credential", "args": {"authConfig": {"authScheme": {"type": "oauth2"}}}}
    theirs = {
        "authScheme": {"tokenUrl": "https://eve.example"},
        "exchangedAuthCredential": {"oauth2": {"authCode": "1"}},
    }
    answer = Message(message_id="1", role=Role.USER, parts=(Part(data=theirs),))
    assert response_to(call, Answer(answer)) == {
        "authScheme": {"type": "oauth2"},
        "exchangedAuthCredential": {"oauth2": {"authCode": "1"}},
    }


async def test_a_workflow_asks_for_input() -> None:
    async def ask(node_input: Any) -> AsyncIterator[Any]:
        yield RequestInput(interrupt_id="where", message="Where to?")

    def book(node_input: Any) -> str:
        return f"Booked: {node_input}"

    trip = Workflow(name="trip", edges=[("START", ask, book)])
    ran = await run(served(trip), "Book", answers=["Lyon"])
    assert ran.questions == ["Where to?"]
    assert "Booked" in ran.text
    assert "Lyon" in ran.text


async def test_an_answer_that_was_refused_rejects() -> None:
    refused = LlmResponse(error_code="SAFETY", error_message="not that")
    ran = await run(served(made(scripted(refused))), "Something bad")
    assert ran.state is TaskState.REJECTED
    assert ran.reason == "The model refused: not that"


async def test_an_error_of_the_model_fails_the_task() -> None:
    broken = LlmResponse(error_code="MAX_TOKENS", error_message="too long")
    with pytest.raises(RuntimeError, match="MAX_TOKENS: too long"):
        await run(served(made(scripted(broken))), "Hello")


async def test_a_tool_that_breaks_fails_the_task() -> None:
    async def broken() -> str:
        """Break."""
        raise ValueError("secret of the server")

    with pytest.raises(ValueError, match="secret"):
        await run(served(made(scripted([("broken", {})]), tools=[broken])), "Hello")


async def test_conversations_at_the_same_time_share_nothing() -> None:
    model = scripted("One", "Two")
    agent = served(made(model))
    first, second = await asyncio.gather(run(agent, "First"), run(agent, "Second"))
    assert sorted((first.text, second.text)) == ["One", "Two"]
    assert sorted(model.seen) == [[("user", ["First"])], [("user", ["Second"])]]


async def test_cancel_stops_the_model() -> None:
    model = scripted("Once upon a time")
    model.held, model.stopped = asyncio.Event(), asyncio.Event()
    async with client(served(made(model))) as connection:

        async def cancel(task_id: str) -> None:
            await connection.cancel(task_id)
            await model.stopped.wait()

        assert await meanwhile(connection, "Tell me a story", cancel) == "Once "


class Silent(BaseAgent):
    """An agent of the author's own."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        yield Event(author=self.name, content=_model(types.Part(text="Hm"), types.Part(text="thought", thought=True)))


async def test_an_agent_of_ones_own_is_served() -> None:
    ran = await run(served(Silent(name="silent")), "Hello")
    assert ran.text == "Hm"


def test_the_page_shows_what_works() -> None:
    assert served(run_block("google-adk.md", 1)["agent"]).profile.name == "assistant"


async def test_other_objects_of_the_package_are_no_agents() -> None:
    assert framework_of(FunctionTool(forecast)) is not None
    assert adapt(FunctionTool(forecast), "test") is None
