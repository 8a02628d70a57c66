"""The client of FastA2A 2.1.1 against a server: `python fasta2a_client.py BASE_URL [WORD …]`.

Its lanes are `/agents/{id}` and `/`. It sends, streams and asks for tasks; it cannot cancel. It gives up on an answer
after five seconds, so it asks for a task until the task has ended.
"""

import asyncio
import base64
import functools
import sys
import uuid
from typing import Any

from fasta2a.client import A2AClient
from fasta2a.schema import Message, Part, Task
from report import Scenario, run, selected

ENDED = ("completed", "failed", "canceled", "rejected")
WAITING = ("input-required", "auth-required")


class Lane:
    """One way to the server: below `/agents/{id}`, or at `/`, where a skill names the agent."""

    def __init__(self, base_url: str, name: str) -> None:
        self.base_url, self.name = base_url, name

    def client(self, agent: str) -> tuple[A2AClient, dict[str, Any]]:
        """A client from the agent's card, and the metadata of its messages."""
        at = f"{self.base_url}/agents/{agent}" if self.name == "agents" else self.base_url
        skill = {
            "countdown": "countdown",
            "trip": "book",
            "papers": "files",
            "fail": "fail",
            "login": "login",
            "guide": "guide",
        }
        client = A2AClient(at, fetch_card=True)
        assert client.agent_card is not None
        assert all(each["input_modes"] and each["output_modes"] for each in client.agent_card["skills"])
        return client, {"skill": skill[agent]} if self.name == "root" and agent in skill else {}


def said(*parts: Part, **more: Any) -> Message:
    """A message of the caller."""
    return Message(role="user", parts=list(parts), message_id=str(uuid.uuid4()), **more)


def words(held: Any) -> str:
    """All text in the parts of a message, or of the artifacts of a task."""
    parts = held["parts"] if "parts" in held else [part for each in held.get("artifacts", []) for part in each["parts"]]
    return "".join(part.get("text", "") for part in parts)


async def settled(client: A2AClient, task_id: str) -> Task:
    """The task once it has ended or waits for its caller."""
    while True:
        answer = await client.get_task(task_id)
        task = answer.get("result")
        assert task is not None, answer
        if task["status"]["state"] in (*ENDED, *WAITING):
            return task
        await asyncio.sleep(0.05)


async def sent(client: A2AClient, message: Message, metadata: dict[str, Any], **configuration: Any) -> Task:
    """The task of a message, as the answer shows it."""
    chosen = {"accepted_output_modes": [], **configuration} if configuration else None
    answer = await client.send_message(message, metadata=metadata or None, configuration=chosen)
    assert "result" in answer, answer
    assert "task" in answer["result"], answer
    return answer["result"]["task"]


async def streamed(client: A2AClient, message: Message, metadata: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of a stream."""
    found = []
    async for frame in client.stream_message(message, metadata=metadata or None):
        assert "result" in frame, frame
        found.append(frame["result"])
    return found


async def send_and_get(lane: Lane) -> None:
    client, metadata = lane.client("echo")
    task = await sent(client, said({"text": "héllo 🌍"}), metadata)
    done = await settled(client, task["id"])
    assert (done["id"], done["context_id"]) == (task["id"], task["context_id"])
    assert (done["status"]["state"], words(done)) == ("completed", "héllo 🌍")
    assert [words(each) for each in done["history"]] == ["héllo 🌍"], done


async def blocking(lane: Lane) -> None:
    client, metadata = lane.client("echo")
    done = await sent(client, said({"text": "hello"}), metadata, blocking=True, history_length=0)
    assert (done["status"]["state"], words(done)) == ("completed", "hello")
    assert "history" not in done, done


async def answered_at_once(lane: Lane) -> None:
    """The answer does not wait for the agent, as FastA2A's own server does not."""
    client, metadata = lane.client("countdown")
    task = await sent(client, said({"text": "2 every 0.3 s"}), metadata)
    assert task["status"]["state"] in ("submitted", "working"), task
    assert words(await settled(client, task["id"])) == "2\n1\n"


async def message_or_task(lane: Lane) -> None:
    """An agent that decides by its work: the answer is a message, or a task if it reports what it does."""
    client, metadata = lane.client("guide")
    waits = {"accepted_output_modes": [], "blocking": True}
    answer = await client.send_message(said({"text": "Rome"}), metadata=metadata or None, configuration=waits)
    assert answer["result"].keys() == {"message"}, answer
    assert words(answer["result"]["message"]) == "About Rome"
    assert [frame.keys() for frame in await streamed(client, said({"text": "Rome"}), metadata)] == [{"message"}]
    done = await sent(client, said({"text": "plan Rome"}), metadata, blocking=True)
    assert (done["status"]["state"], words(await settled(client, done["id"]))) == ("completed", "About plan Rome")
    at_once = await sent(client, said({"text": "Rome"}), metadata)  # who does not wait gets a task to ask for
    assert words(await settled(client, at_once["id"])) == "About Rome"


async def context(lane: Lane) -> None:
    client, metadata = lane.client("echo")
    first = await sent(client, said({"text": "one"}), metadata)
    second = await sent(client, said({"text": "two"}, context_id=first["context_id"]), metadata)
    assert second["id"] != first["id"]
    assert second["context_id"] == first["context_id"]


async def stream(lane: Lane) -> None:
    client, metadata = lane.client("countdown")
    got = await streamed(client, said({"text": "3 every 0.05 s"}), metadata)
    assert got[0]["task"]["status"]["state"] in ("submitted", "working"), got[0]
    chunks = [each["artifact_update"] for each in got if "artifact_update" in each]
    assert "".join(words({"parts": each["artifact"]["parts"]}) for each in chunks) == "3\n2\n1\n", got
    assert [each["append"] for each in chunks][:2] == [False, True], chunks
    assert got[-1]["status_update"]["status"]["state"] == "completed", got[-1]


async def question(lane: Lane) -> None:
    client, metadata = lane.client("trip")
    task = await settled(client, (await sent(client, said({"text": "Book me a trip"}), metadata))["id"])
    for asked, answer in (("From where?", "Lyon"), ("To where?", "Oslo")):
        assert task["status"]["state"] == "input-required", task
        assert words(task["status"]["message"]) == asked, task
        again = said({"text": answer}, task_id=task["id"], context_id=task["context_id"])
        assert (await sent(client, again, {}, blocking=True))["id"] == task["id"]
        task = await settled(client, task["id"])
    assert (task["status"]["state"], words(task)) == ("completed", "Booked: from Lyon to Oslo")


async def question_ends_stream(lane: Lane) -> None:
    client, metadata = lane.client("trip")
    got = await streamed(client, said({"text": "Book me a trip"}), metadata)
    update = got[-1]["status_update"]
    assert (update["status"]["state"], words(update["status"]["message"])) == ("input-required", "From where?"), got
    more = said({"text": "Lyon"}, task_id=update["task_id"], context_id=update["context_id"])
    assert (await streamed(client, more, {}))[-1]["status_update"]["status"]["state"] == "input-required"


async def files_and_data(lane: Lane) -> None:
    client, metadata = lane.client("papers")
    content = bytes(range(256))
    given = Part(raw=base64.b64encode(content).decode(), filename="all.bin", media_type="application/octet-stream")
    done = await settled(client, (await sent(client, said({"text": "keep"}, given), metadata))["id"])
    file, facts = done["artifacts"][0]["parts"]
    assert (base64.b64decode(file["raw"]), file["filename"]) == (content, "all.bin"), file
    assert facts["data"]["size"] == 256, facts


async def failure(lane: Lane) -> None:
    client, metadata = lane.client("fail")
    done = await settled(client, (await sent(client, said({"text": "try"}), metadata))["id"])
    assert done["status"]["state"] == "failed", done


async def unknown_task(lane: Lane) -> None:
    client, _ = lane.client("echo")
    answer = await client.get_task(str(uuid.uuid4()))
    assert (answer["error"]["code"], answer["error"]["message"]) == (-32001, "Task not found"), answer
    refused = await client.send_message(said({"text": "to whom?"}, task_id=str(uuid.uuid4())))
    assert refused["error"]["code"] == -32001, refused


async def invalid_params(lane: Lane) -> None:
    client, _ = lane.client("echo")
    answer = await client.send_message(said({"raw": "not base64!"}))
    assert answer["error"]["code"] == -32602, answer


SCENARIOS = (
    send_and_get, blocking, answered_at_once, message_or_task,
    context, stream, question, question_ends_stream, files_and_data, failure,
    unknown_task, invalid_params,
)  # fmt: skip


def scenarios(base_url: str) -> list[Scenario]:
    """Every scenario in every lane."""
    lanes = [Lane(base_url, name) for name in ("agents", "root")]
    return [(f"{lane.name}/{one.__name__}", functools.partial(one, lane)) for lane in lanes for one in SCENARIOS]


if __name__ == "__main__":
    sys.exit(asyncio.run(run(selected(scenarios(sys.argv[1].rstrip("/")), sys.argv[2:]))))
