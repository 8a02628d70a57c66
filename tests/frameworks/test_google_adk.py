"""Agents of Google's Agent Development Kit, with a model that is a class of the test's own, as the kit has it."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
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
from google.adk.tools import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import Workflow
from google.genai import types

from dragoman import Part
from dragoman.agents.frameworks.google_adk import response_to
from dragoman.agents.python.context import Answer as CallersAnswer
from dragoman.model.message import Message, Role
from dragoman.model.principal import Principal
from dragoman.model.task import TaskState
from dragoman.testing import run
from tests.frameworks.completions import Answer, Call
from tests.frameworks.kit import HISTORY, served
from tests.frameworks.kits.google_adk import KIT, said
from tests.frameworks.kits.scripted import ScriptedModel


def scripted(*answers: Answer | str) -> ScriptedModel:
    return ScriptedModel(answers)


def calling(name: str, **arguments: Any) -> Answer:
    return Answer(calls=[Call(name, arguments)])


async def test_an_agent_is_described_by_its_instruction() -> None:
    assert served(KIT.agent(scripted(), instruction="You tell the weather.")).profile.description == (
        "You tell the weather."
    )


async def test_a_runner_keeps_its_sessions_by_caller() -> None:
    model = scripted("Hello", "Ada", "Nobody")
    agent = served(Runner(agent=KIT.agent(model), app_name="desk", session_service=InMemorySessionService()))
    await run(agent, "My name is Ada", principal=Principal("ada"))
    await run(agent, "Who am I?", history=HISTORY, principal=Principal("ada"))
    await run(agent, "Who am I?", principal=Principal("eve"))
    assert model.said(1) == ["My name is Ada", "Hello", "Who am I?"]
    assert model.said(2) == ["Who am I?"]


async def test_an_app_is_served() -> None:
    ran = await run(served(App(name="desk", root_agent=KIT.agent(scripted("Good day")))), "Hello")
    assert ran.text == "Good day"


async def test_several_agents_speak_in_turn() -> None:
    first, second = KIT.agent(scripted("One"), name="first"), KIT.agent(scripted("Two"), name="second")
    ran = await run(served(SequentialAgent(name="both", sub_agents=[first, second])), "Count")
    assert ran.text == "One\n\nTwo"


async def test_files_that_a_tool_saves_are_given_out() -> None:
    async def draw(tool_context: ToolContext) -> str:
        """Draw a picture."""
        await tool_context.save_artifact("cat.png", types.Part.from_bytes(data=b"PNG", mime_type="image/png"))
        return "drawn"

    ran = await run(served(KIT.agent(scripted(calling("draw"), "Here"), tools=[draw])), "Draw a cat")
    assert [(file.filename, file.raw, file.media_type) for file in ran.files] == [("cat.png", b"PNG", "image/png")]


class Painter(BaseLlm):
    """Answers with files."""

    model: str = "painter"

    async def generate_content_async(self, request: LlmRequest, stream: bool = False) -> AsyncGenerator[Any, None]:
        inline = types.Blob(data=b"PNG", mime_type="image/png", display_name="cat.png")
        linked = types.FileData(file_uri="https://here.test/cat.mp4", mime_type="video/mp4")
        kept = types.FileData(file_uri="gs://bucket/cat.wav", mime_type="audio/wav")
        parts = [types.Part(inline_data=inline), types.Part(file_data=linked), types.Part(file_data=kept)]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


async def test_files_of_a_model_are_given_out() -> None:
    ran = await run(served(LlmAgent(name="painter", model=Painter())), "Draw a cat")
    (artifact,) = ran.artifacts
    assert artifact.parts == (
        Part(raw=b"PNG", media_type="image/png", filename="cat.png"),
        Part(url="https://here.test/cat.mp4", media_type="video/mp4"),
        Part(text="[file without a name, audio/wav]"),
    )


async def test_a_tool_that_runs_long_is_asked_for_its_result() -> None:
    def book(hotel: str) -> dict[str, str]:
        """Book a hotel."""
        return {"status": "pending"}

    model = scripted(calling("book", hotel="Ritz"), "I wait", "It is booked")
    ran = await run(served(KIT.agent(model, tools=[LongRunningFunctionTool(book)])), "Book it", answers=["room 12"])
    assert ran.questions == ['What does book give for {"hotel": "Ritz"}?']
    assert "room 12" in str(model.said())
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
    agent = served(KIT.agent(scripted(calling("calendar"), "You are free"), tools=[calendar(KEY, given)]))
    ran = await run(agent, "Am I free?")
    assert ran.state is TaskState.AUTH_REQUIRED
    agent = served(KIT.agent(scripted(calling("calendar"), "You are free"), tools=[calendar(KEY, given)]))
    ran = await run(agent, "Am I free?", answers=["my-key"])
    assert ran.questions == ["Give the credential for X-Key."]
    assert [credential.api_key for credential in given] == ["my-key"]
    assert ran.text == "You are free"
    assert ran.statuses == ["Calling calendar", "calendar is done"]


async def test_a_sign_in_says_where_and_not_the_secret() -> None:
    agent = served(KIT.agent(scripted(calling("calendar"), "You are free"), tools=[calendar(SIGN_IN, [])]))
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
    assert response_to(call, CallersAnswer(answer)) == {
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
    ran = await run(served(KIT.agent(scripted(Answer(refusal="not that")))), "Something bad")
    assert ran.state is TaskState.REJECTED
    assert ran.reason == "The model refused: not that"


async def test_an_error_of_the_model_has_its_code() -> None:
    with pytest.raises(RuntimeError, match="400: too long"):
        await run(served(KIT.agent(scripted(Answer("too long", status=400)))), "Hello")


async def test_a_tool_that_breaks_fails_the_task() -> None:
    async def broken() -> str:
        """Break."""
        raise ValueError("secret of the server")

    with pytest.raises(ValueError, match="secret"):
        await run(served(KIT.agent(scripted(calling("broken")), tools=[broken])), "Hello")


class Silent(BaseAgent):
    """An agent of the author's own."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        yield Event(author=self.name, content=said(types.Part(text="Hm"), types.Part(text="thought", thought=True)))


async def test_an_agent_of_ones_own_is_served() -> None:
    ran = await run(served(Silent(name="silent")), "Hello")
    assert ran.text == "Hm"
