"""Conversations: questions are answered in their task, ends are followed by new tasks, and the context stays."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dragoman import Part
from dragoman.client import connect
from dragoman.client.connection import Connection
from dragoman.client.conversation import Reply, make_message, text_of
from dragoman.config import Config
from dragoman.model.errors import UnsupportedOperation
from dragoman.model.message import Artifact, Message, Role
from dragoman.model.task import Task, TaskState, TaskStatus
from dragoman.model.updates import StatusUpdate
from dragoman.server import serving
from tests.kit.waiting import no_hang
from tests.net.peer import DEADLINE_S, Asked, listening, says
from tests.spec.agents import Gates, house

CONFIG = Config(port=0, store="memory:", shutdown_grace_s=0.1, cancel_grace_s=0.3)


@pytest.fixture(scope="module")
async def url() -> AsyncIterator[str]:
    async with serving(CONFIG, house(Gates())) as url:
        yield url


@pytest.fixture
async def agent(url: str) -> AsyncIterator[Connection]:
    async with no_hang(), connect(f"{url}/agents/script") as agent:
        yield agent


async def test_a_question_is_answered_in_its_task(agent: Connection) -> None:
    talk = agent.conversation()
    asked = await talk.say("ask twice")
    assert (asked.asks, asked.text) == (True, "Which?")
    again = await talk.say("this")
    assert (again.asks, again.text) == (True, "Sure?")
    done = await talk.say("yes")
    assert (done.asks, done.state, done.text) == (False, TaskState.COMPLETED, "thisyes")
    assert asked.task is not None
    assert done.task is not None
    assert asked.task.id == done.task.id


async def test_after_an_end_a_new_task_goes_on_in_the_same_context(agent: Connection) -> None:
    talk = agent.conversation()
    first, second = (await talk.say("chunks 1")).task, (await talk.say("chunks 2")).task
    assert first is not None
    assert second is not None
    assert first.id != second.id
    assert first.context_id == second.context_id == talk.context_id


async def test_a_context_that_is_given_is_gone_on_with(agent: Connection) -> None:
    talk = agent.conversation()
    await talk.say("chunks 1")
    later = agent.conversation(talk.context_id)
    await later.say("chunks 1")
    assert later.context_id == talk.context_id


async def test_a_turn_can_be_streamed(agent: Connection) -> None:
    talk = agent.conversation()
    states = [each.status.state async for each in talk.stream("ask once") if isinstance(each, StatusUpdate)]
    assert states[-1] is TaskState.INPUT_REQUIRED
    assert talk.reply is not None
    assert talk.reply.asks
    async for _ in talk.stream("this"):
        pass
    assert talk.reply.text == "this"


async def test_what_needs_a_login_says_so(agent: Connection) -> None:
    talk = agent.conversation()
    reply = await talk.say("login")
    assert (reply.needs_auth, reply.asks, reply.text) == (True, False, "Who are you?")
    assert (await talk.say("me")).text == "in"


async def test_parts_come_back_as_text_data_and_files(agent: Connection) -> None:
    sent: list[str | Part] = ["text", Part(data={"a": 1}), Part(raw=b"bytes", filename="f")]
    reply = await agent.conversation().say(sent)
    assert (reply.text, reply.data, [file.raw for file in reply.files]) == ("text", {"a": 1}, [b"bytes"])


async def test_an_agent_without_tasks_answers_with_a_message(url: str) -> None:
    async with connect(f"{url}/agents/direct") as agent:
        talk = agent.conversation()
        reply = await talk.say("hello")
        assert (reply.text, reply.task, reply.state) == ("hello", None, TaskState.COMPLETED)


async def test_an_agent_without_streams_can_be_streamed_from(url: str) -> None:
    async with connect(f"{url}/agents/mute") as agent:
        talk = agent.conversation()
        assert [type(each) async for each in talk.stream("hello")] == [Task]
        assert talk.reply is not None
        assert talk.reply.text == "hello"


async def test_when_a_task_has_ended_meanwhile_what_is_said_next_begins_another(agent: Connection) -> None:
    talk = agent.conversation()
    asked = (await talk.say("ask once")).task
    assert asked is not None
    await agent.cancel(asked.id)
    with pytest.raises(UnsupportedOperation):
        await talk.say("this")
    assert (await talk.say("chunks 1")).text == "0 "


async def test_a_reply_is_waited_for_beyond_the_patience_of_the_server() -> None:
    working: dict[str, Any] = {"id": "t", "sessionId": "c", "status": {"state": "working"}}
    done = {**working, "status": {"state": "completed", "message": "Done"}}
    done["history"] = [{"role": "agent", "parts": [{"type": "text", "text": "It rains"}]}]
    left = [working, working, done]

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        answer = left.pop(0) if len(left) > 1 else left[0]
        await says(json.dumps({"jsonrpc": "2.0", "id": asked.json["id"], "result": answer}).encode())(asked, writer)

    async with asyncio.timeout(DEADLINE_S), listening() as peer:
        peer.scripts["POST /"] = script
        async with connect(peer.url, dialect="kaos") as agent:
            talk = agent.conversation()
            assert (await talk.say("weather")).text == "It rains"
            left[:] = [working, done]
            async for _ in talk.stream("weather"):
                pass
            assert talk.reply is not None
            assert talk.reply.text == "It rains"


def agents(text: str) -> Message:
    return Message(message_id="m", role=Role.AGENT, parts=(Part(text=text),))


USER = Message(message_id="u", role=Role.USER, parts=(Part(text="asked"),))
MADE = (Artifact(artifact_id="a", parts=(Part(text="ma"), Part(text="de"))), Artifact(artifact_id="b", parts=()))


@pytest.mark.parametrize(
    ("state", "artifacts", "said", "history", "text"),
    [
        (TaskState.COMPLETED, MADE, "said", (agents("last"),), "made"),
        (TaskState.COMPLETED, (), "said", (agents("last"),), "said"),
        (TaskState.COMPLETED, (), "Done", (agents("last"), USER), "last"),
        (TaskState.COMPLETED, (), "Done", (USER,), "Done"),
        (TaskState.COMPLETED, (), "", (USER,), ""),
        (TaskState.INPUT_REQUIRED, MADE, "Which?", (), "Which?"),
        (TaskState.FAILED, (), "why", (), "why"),
    ],
)
def test_the_text_of_an_answer_is_where_it_says_most(
    state: TaskState, artifacts: tuple[Artifact, ...], said: str, history: tuple[Message, ...], text: str
) -> None:
    status = TaskStatus(state=state, message=agents(said) if said else None, timestamp="")
    task = Task(id="t", context_id="c", status=status, artifacts=artifacts, history=history)
    assert text_of(task) == Reply(task).text == text


# Content


@pytest.mark.parametrize("content", ["Hi", Part(text="Hi"), ["Hi"], ("Hi",), [Part(text="Hi")]])
def test_texts_and_parts_are_content(content: Any) -> None:
    assert make_message(content).parts == (Part(text="Hi"),)


@pytest.mark.parametrize("content", [{"size": 5}, [{"size": 5}], ["Look:", {"size": 5}]])
def test_data_is_content_only_as_a_part(content: Any) -> None:
    with pytest.raises(TypeError, match=r"Part\(data=…\)"):
        make_message(content)


@pytest.mark.parametrize("content", [b"bytes", [b"bytes"], 5, [5], None])
def test_anything_else_is_no_content(content: Any) -> None:
    with pytest.raises(TypeError, match="a str, a Part, several of them, or a Message"):
        make_message(content)
