"""The clients of python-a2a 0.5.10 against a server: `python python_a2a_client.py BASE_URL [WORD …]`, at `/agents/{id}`
and `/`.

`A2AClient` tries several endpoints until one answers, and turns what none answers into a message that says so: a
scenario looks for that message too.
"""

import asyncio
import functools
import sys
import uuid
from typing import Any

from python_a2a import A2AClient, Message, MessageRole, StreamingClient, Task, TaskState, TextContent
from python_a2a.exceptions import A2AConnectionError
from python_a2a.models import Conversation, FunctionCallContent, FunctionParameter, Metadata
from report import Scenario, run, selected

SKILLS = {
    "countdown": "countdown",
    "trip": "book",
    "papers": "files",
    "fail": "fail",
    "login": "login",
    "guide": "guide",
}


class Lane:
    """One way to the server: below `/agents/{id}`, or at `/`, where a skill names the agent."""

    def __init__(self, base_url: str, name: str) -> None:
        self.base_url, self.name = base_url, name

    def url(self, agent: str) -> str:
        """The agent's URL."""
        return f"{self.base_url}/agents/{agent}" if self.name == "agents" else self.base_url

    async def client(self, agent: str, **more: Any) -> A2AClient:
        """A client of the agent, which has read its card."""
        client = await asyncio.to_thread(A2AClient, self.url(agent), **more)
        assert client.get_agent_card().name != "Unknown Agent", "no card"
        return client

    def message(self, agent: str, text: str, **more: Any) -> Message:
        """A message for the agent."""
        skill = {"skill": SKILLS[agent]} if self.name == "root" and agent in SKILLS else {}
        metadata = Metadata(custom_fields=skill) if skill else None
        return Message(content=TextContent(text=text), role=MessageRole.USER, metadata=metadata, **more)

    def task(self, agent: str, text: str) -> Task:
        """A task for the agent."""
        return Task(message=self.message(agent, text).to_dict())


def said(message: Message) -> str:
    """The text of a message. A failure to reach the agent is no text."""
    assert message.content.type == "text", message
    return str(message.content.text)


async def card(lane: Lane) -> None:
    client = await lane.client("echo")
    shown = client.get_agent_card()
    assert (shown.name, [skill.id for skill in shown.skills]) == ("echo", ["echo"]), shown
    assert await client.check_streaming_support()
    assert await StreamingClient(lane.url("echo")).check_streaming_support()


async def ask(lane: Lane) -> None:
    client = await lane.client("echo")
    assert await asyncio.to_thread(client.ask, "héllo 🌍") == "héllo 🌍"


async def send_message(lane: Lane) -> None:
    client = await lane.client("countdown")
    message = lane.message("countdown", "3 every 0.01 s", conversation_id=str(uuid.uuid4()))
    answer = await client.send_message_async(message)
    assert said(answer) == "3\n2\n1\n", "the client reads one text of an artifact"
    assert (answer.parent_message_id, answer.conversation_id) == (message.message_id, message.conversation_id)


async def other_format(lane: Lane) -> None:
    """With parts instead of one content, as the library calls Google's format."""
    client = await lane.client("echo", google_a2a_compatible=True)
    assert await asyncio.to_thread(client.ask, "hello") == "hello"
    got = [each async for each in client.stream_response(lane.message("echo", "hello"))]
    assert got[0] == "hello", got


async def function_call(lane: Lane) -> None:
    content = FunctionCallContent(name="add", parameters=[FunctionParameter(name="a", value=1)])
    client = await lane.client("echo")
    answer = await client.send_message_async(Message(content=content, role=MessageRole.USER))
    assert (answer.content.type, answer.content.name) == ("function_call", "add"), answer
    assert [(each.name, each.value) for each in answer.content.parameters] == [("a", 1)], answer


async def task_send_and_get(lane: Lane) -> None:
    client = await lane.client("echo")
    done = await client.send_task_async(lane.task("echo", "hello"))
    assert (done.status.state, done.get_text()) == (TaskState.COMPLETED, "hello"), done
    again = await asyncio.to_thread(client.get_task, done.id)
    assert (again.id, again.session_id, again.status.state) == (done.id, done.session_id, TaskState.COMPLETED), again
    assert again.get_text() == "hello"
    history = (await asyncio.to_thread(client.get_task, done.id, 5)).history
    assert [part["text"] for each in history for part in each["parts"]] == ["hello"], history


async def data(lane: Lane) -> None:
    """An answer without a text has one beside it: the client takes it for no answer otherwise, and asks again."""
    sent = {"role": "user", "parts": [{"type": "data", "data": {"n": 1}}]}
    for more in ({}, {"google_a2a_compatible": True}):
        client = await lane.client("echo", **more)
        done = await client.send_task_async(Task(message=sent))
        assert done.status.state == TaskState.COMPLETED, done
        assert done.artifacts[-1]["parts"] == [{"type": "text", "text": '{"n":1}'}], done


async def message_or_task(lane: Lane) -> None:
    """An agent that decides by its work makes a task for each: the library reads no other result."""
    client = await lane.client("guide")
    for text in ("Rome", "plan Rome"):
        done = await client.send_task_async(lane.task("guide", text))
        assert (done.status.state, done.get_text()) == (TaskState.COMPLETED, f"About {text}"), done
        assert (await asyncio.to_thread(client.get_task, done.id)).get_text() == f"About {text}"
        assert said(await client.send_message_async(lane.message("guide", text))) == f"About {text}"


async def session(lane: Lane) -> None:
    client = await lane.client("echo")
    task = lane.task("echo", "hello")
    session_id = task.session_id
    done = await client.send_task_async(task)
    assert done.session_id == session_id, done


async def question(lane: Lane) -> None:
    client = await lane.client("trip")
    task = await client.send_task_async(lane.task("trip", "Book me a trip"))
    first = task.id
    for asked, answer in (("From where?", "Lyon"), ("To where?", "Oslo")):
        assert task.status.state == TaskState.INPUT_REQUIRED, task
        assert task.status.message["content"]["text"] == asked, task
        assert task.get_text() == asked, task
        task.message = lane.message("trip", answer).to_dict()
        task = await client.send_task_async(task)
    assert (task.id, task.status.state) == (first, TaskState.COMPLETED), task
    assert task.get_text() == "Booked: from Lyon to Oslo", task


async def question_as_message(lane: Lane) -> None:
    client = await lane.client("trip")
    assert said(await client.send_message_async(lane.message("trip", "Book me a trip"))) == "From where?"


async def cancel(lane: Lane) -> None:
    streaming, client = StreamingClient(lane.url("countdown")), await lane.client("countdown")
    async for update in streaming.tasks_send_subscribe(lane.task("countdown", "30")):
        canceled = await asyncio.to_thread(client.cancel_task, update.id)
        assert (canceled.id, canceled.status.state) == (update.id, TaskState.CANCELED), canceled
        break
    assert (await asyncio.to_thread(client.get_task, update.id)).status.state == TaskState.CANCELED


async def failure(lane: Lane) -> None:
    client = await lane.client("fail")
    answer = await client.send_message_async(lane.message("fail", "try"))
    assert answer.content.type == "error", answer
    assert "Failed to communicate" not in answer.content.message, answer
    task = await client.send_task_async(lane.task("fail", "try"))
    assert task.status.state == TaskState.FAILED, task


async def unknown_task(lane: Lane) -> None:
    client = await lane.client("echo")
    unknown = str(uuid.uuid4())
    gone = await asyncio.to_thread(client.get_task, unknown)
    assert (gone.id, gone.status.state) == (unknown, TaskState.FAILED), gone
    assert gone.status.message["error"].startswith("Failed to get task"), gone
    kept = await asyncio.to_thread(client.cancel_task, unknown)
    assert kept.status.message["error"].startswith("Failed to cancel task"), kept
    try:
        got = [each async for each in StreamingClient(lane.url("echo")).tasks_resubscribe(unknown)]
    except A2AConnectionError:
        return
    raise AssertionError(f"an error expected, got {got}")


async def stream_response(lane: Lane) -> None:
    client = await lane.client("countdown")
    got = [each async for each in client.stream_response(lane.message("countdown", "3 every 0.05 s"))]
    assert got[:3] == ["3\n", "2\n", "1\n"], got
    assert [each["lastChunk"] for each in got[3:]] == [True], got


async def streaming_client(lane: Lane) -> None:
    client = StreamingClient(lane.url("countdown"))
    got = [each async for each in client.stream_response(lane.message("countdown", "3 every 0.05 s"))]
    assert "".join(each["content"] for each in got) == "3\n2\n1\n", got
    assert [each.get("lastChunk", False) for each in got] == [False, False, False, True], got


async def stream_question(lane: Lane) -> None:
    client = StreamingClient(lane.url("trip"))
    got = [each async for each in client.stream_response(lane.message("trip", "Book me a trip"))]
    assert [(each["content"], each["lastChunk"]) for each in got] == [("From where?", True)], got


async def stream_failure(lane: Lane) -> None:
    client = StreamingClient(lane.url("fail"))
    (got,) = [each async for each in client.stream_response(lane.message("fail", "try"))]
    assert got["error"], got
    assert got["lastChunk"], got


async def stream_task(lane: Lane) -> None:
    for client in (StreamingClient(lane.url("countdown")), await lane.client("countdown")):
        got = [each async for each in client.stream_task(lane.task("countdown", "3 every 0.05 s"))]
        last = got[-1]
        state = last["status"] if isinstance(last["status"], str) else last["status"]["state"]
        assert state == "completed", last
        assert last["artifacts"][0]["parts"][0]["text"] == "3\n2\n1\n", last


async def send_subscribe_question(lane: Lane) -> None:
    client = StreamingClient(lane.url("trip"))
    got = [each async for each in client.tasks_send_subscribe(lane.task("trip", "Book me a trip"))]
    task = got[-1]
    assert (task.status.state, task.get_text()) == (TaskState.INPUT_REQUIRED, "From where?"), task
    task.message = lane.message("trip", "Lyon").to_dict()
    more = [each async for each in client.tasks_send_subscribe(task)]
    assert (more[-1].id, more[-1].get_text()) == (task.id, "To where?"), more


async def resubscribe(lane: Lane) -> None:
    client = StreamingClient(lane.url("countdown"), timeout=60)
    async for update in client.tasks_send_subscribe(lane.task("countdown", "5 every 0.2 s")):
        task_id = update.id
        break
    got = [each async for each in client.tasks_resubscribe(task_id)]
    assert (got[-1].id, got[-1].status.state) == (task_id, TaskState.COMPLETED), got
    assert got[-1].get_text() == "5\n4\n3\n2\n1\n", got
    ended = [each async for each in client.tasks_resubscribe(task_id)]
    assert [each.status.state for each in ended] == [TaskState.COMPLETED], ended


async def bare_message(lane: Lane) -> None:
    """The requests of `StreamingClient` to the agent's URL itself."""
    message = lane.message("echo", "hello", conversation_id=str(uuid.uuid4()))
    answer = await StreamingClient(lane.url("echo")).send_message_async(message)
    assert (said(answer), answer.role) == ("hello", MessageRole.AGENT), answer
    assert (answer.parent_message_id, answer.conversation_id) == (message.message_id, message.conversation_id)


async def conversation(lane: Lane) -> None:
    client, talk = await lane.client("echo"), Conversation()
    for text in ("one", "two"):
        talk.create_text_message(text=text, role=MessageRole.USER)
        talk = await client.send_conversation_async(talk)
    assert [said(each) for each in talk.messages] == ["one", "one", "two", "two"], talk
    assert [each.role.value for each in talk.messages] == ["user", "agent", "user", "agent"], talk


SCENARIOS = (
    card, ask, send_message, other_format, function_call, task_send_and_get, session, question, question_as_message,
    cancel, failure, unknown_task, message_or_task, data,
    stream_response, streaming_client, stream_question, stream_failure, stream_task,
    send_subscribe_question, resubscribe, bare_message, conversation,
)  # fmt: skip


def scenarios(base_url: str) -> list[Scenario]:
    """Every scenario in every lane."""
    lanes = [Lane(base_url, name) for name in ("agents", "root")]
    return [(f"{lane.name}/{one.__name__}", functools.partial(one, lane)) for lane in lanes for one in SCENARIOS]


if __name__ == "__main__":
    sys.exit(asyncio.run(run(selected(scenarios(sys.argv[1].rstrip("/")), sys.argv[2:]))))
