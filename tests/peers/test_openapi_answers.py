"""Real answers and real calls to webhooks, held against the description: it must have each of them, to the last member.

The validator (`jsonschema`) runs in an environment of its own. The schemas are closed, so that a member which the
description does not name fails as well.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import aiohttp
import pytest

from dragoman import Agent, Context
from tests.kit.agents import hired
from tests.kit.places import LOOPBACK, V1, server
from tests.kit.workers import WorkerDoor
from tests.peers.test_openapi import BIN, close
from tests.processes import ENDS_WITH_US
from tests.push.receiver import Receiver, receiving

SECRET = "whsec_" + base64.b64encode(b"a secret of some bytes").decode()

READER = """
import json, sys
from jsonschema import Draft202012Validator

document, seen = json.load(sys.stdin)
told = "etag retry-after www-authenticate x-dragoman-task-id x-dragoman-context-id x-should-retry".split()
components = {"components": document["components"]}  # where references lead
methods = [one for item in document["paths"].values() for name, one in item.items() if name != "servers"]
operations = {one["operationId"]: one for one in methods}
calls = {name: item["post"] for name, item in document["webhooks"].items()}

def check(what, schema, value):
    for error in Draft202012Validator({**schema, **components}).iter_errors(value):
        print(f"{what}: {error.json_path}: {error.message[:300]}")

def events(schema):
    forms = schema.get("oneOf", [schema])
    return {"anyOf": [form["properties"]["data"]["contentSchema"] for form in forms]}

for one in seen:
    what = f"{one['name']} {one.get('status', '')}"
    operation = operations[one["name"]] if "status" in one else calls[one["name"]]
    if "status" not in one:
        content = operation["requestBody"]["content"]
        parameters = {each["name"].lower(): each for each in operation["parameters"]}
        for name, each in parameters.items():
            if name in one["headers"]:
                check(f"{what} {name}", each["schema"], one["headers"][name])
            elif each["required"]:
                print(f"{what}: {name} is missing")
    else:
        answer = operation["responses"].get(one["status"])
        if answer is None:
            print(f"{what}: no such status in {sorted(operation['responses'])}")
            continue
        content = answer.get("content", {})
        for name, value in one["headers"].items():
            said = {key.lower(): header for key, header in answer.get("headers", {}).items()}.get(name)
            if said is None and name in told:
                print(f"{what}: the header {name} is not described")
            elif said is not None and said["schema"]["type"] == "integer":
                check(f"{what} {name}", said["schema"], int(value))
    if not one["type"]:
        if content:
            print(f"{what}: has no body")
        continue
    if one["type"] not in content:
        print(f"{what}: no {one['type']} in {sorted(content)}")
        continue
    schema = content[one["type"]]["schema"]
    for value in one["values"]:
        check(what, events(schema) if one["type"] == "text/event-stream" else schema, value)
"""
"""Prints what is wrong."""

pytestmark = [pytest.mark.peer, pytest.mark.slow]


def make_agent() -> Agent:
    agent = Agent("talker", description="Answers, asks, fails")

    @agent.skill
    async def talk(ctx: Context) -> str:
        """Does as it is told."""
        match ctx.text:
            case "ask":
                return f"in {await ctx.ask('Which city?')}"
            case "fail":
                raise ValueError("it did not work")
            case "draw":
                await ctx.artifact(b"png", name="a.png", media_type="image/png")
        await ctx.progress(1, 2, "half of it")
        return ctx.text

    return agent


class Witness:
    """Keeps what it sees of each operation."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.http = http
        self.seen: list[dict[str, Any]] = []

    async def see(self, name: str, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Make a request, and keep its answer as one of the operation; the value of a body, the last of a stream."""
        said = {header.replace("_", "-"): value for header, value in headers.items()}
        async with self.http.request(method, path, json=body, headers=said) as answer:
            told = await answer.read()
            kind = answer.content_type if told else ""
            values = read_events(told.decode()) if kind == "text/event-stream" else [json.loads(told)] if told else []
            self.keep(name, values, kind, answer.headers, str(answer.status))
        return values[-1] if values else None

    def keep(self, name: str, values: list[Any], kind: str, headers: Mapping[str, str], status: str = "") -> None:
        """Keep an answer; without a status it is a call to a webhook."""
        lower = {header.lower(): value for header, value in headers.items()}
        seen = {"name": name, "values": values, "type": kind, "headers": lower}
        self.seen.append({**seen, "status": status} if status else seen)


def read_events(told: str) -> list[Any]:
    data = [line.removeprefix("data: ") for line in told.splitlines() if line.startswith("data: ")]
    return [json.loads(each) for each in data if each != "[DONE]"]


async def faults(document: dict[str, Any], seen: list[dict[str, Any]]) -> str:
    """What the validator has to say."""
    process = await asyncio.create_subprocess_exec(
        *ENDS_WITH_US, BIN / "python", "-c", READER, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate(json.dumps([close(document), seen]).encode())
    assert process.returncode == 0
    return told.decode()


@asynccontextmanager
async def witnessing(**settings: Any) -> AsyncIterator[Witness]:
    async with server(make_agent(), hired("far"), **settings) as http:
        yield Witness(http)


async def document_of(http: aiohttp.ClientSession) -> dict[str, Any]:
    async with http.get("/openapi.json") as answer:
        return dict(await answer.json())


def said_in_1(text: str, message_id: str, **more: Any) -> dict[str, Any]:
    return {"message": {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}]}, **more}


def said_in_03(text: str, message_id: str, **more: Any) -> dict[str, Any]:
    file = {"file": {"fileWithBytes": "eA==", "mimeType": "text/plain", "name": "x.txt"}}
    content = [{"text": text}, *([file, {"data": {"data": {"a": 1}}}] if text == "all" else [])]
    return {"message": {"messageId": message_id, "role": "ROLE_USER", "content": content}, **more}


async def use_chat(witness: Witness) -> None:
    path = "/v1/chat/completions"

    def said(text: str, **more: Any) -> dict[str, Any]:
        return {"model": "talker", "messages": [{"role": "user", "content": text}], **more}

    await witness.see("createChatCompletion", "POST", path, said("hello"))
    await witness.see("createChatCompletion", "POST", path, said("ask"))
    await witness.see("createChatCompletion", "POST", path, said("fail"))
    told = {"stream": True, "stream_options": {"include_usage": True}}
    await witness.see("createChatCompletion", "POST", path, said("hello", **told))
    await witness.see("createChatCompletion", "POST", path, said("fail", stream=True))
    await witness.see("createChatCompletion", "POST", path, said("hello", n=2))
    await witness.see("createChatCompletion", "POST", path, {**said("hello"), "model": "nobody"})
    await witness.see("listModels", "GET", "/v1/models")
    await witness.see("getModel", "GET", "/v1/models/talker")
    await witness.see("getModel", "GET", "/v1/models/nobody")


async def use_responses(witness: Witness) -> None:
    async def respond(text: Any, **more: Any) -> Any:
        return await witness.see("createResponse", "POST", "/v1/responses", {"input": text, **more})

    about = {"instructions": "Be short.", "metadata": {"a": "b"}, "user": "u", "safety_identifier": "s"}
    image = {"type": "input_image", "image_url": "data:image/png;base64,eA==", "detail": "low"}
    file = {"type": "input_file", "file_data": "data:text/plain;base64,eA==", "filename": "x.txt"}
    link = {"type": "input_file", "file_url": "https://example.com/x.pdf"}
    parts = [{"type": "input_text", "text": "hello"}, image, file, link]
    said = {"type": "message", "role": "assistant", "content": "before"}
    first = await respond([said, {"type": "message", "role": "user", "content": parts}], **about)
    asked = await respond("ask", previous_response_id=first["id"])
    await respond("Rome", previous_response_id=asked["id"], stream=True)
    await respond("fail")
    await respond("fail", stream=True)
    await respond("draw", stream=True)
    drawn = await respond("draw")
    assert drawn["output"][0]["type"] == "image_generation_call"
    await respond("hello", tools=[{"type": "web_search"}])
    waits = await respond("ask", background=True)
    for one in (first, waits, {"id": "resp_no_1"}):
        path = f"/v1/responses/{one['id']}"
        await witness.see("getResponse", "GET", path)
        await witness.see("listResponseInputItems", "GET", f"{path}/input_items")
        await witness.see("cancelResponse", "POST", f"{path}/cancel")
    await witness.see("getResponse", "GET", f"/v1/responses/{first['id']}?stream=true&starting_after=2")
    conversation = await witness.see("createConversation", "POST", "/v1/conversations", {})
    path = f"/v1/conversations/{conversation['id']}"
    await respond("draw", conversation=conversation["id"])
    await respond("ask", conversation={"id": conversation["id"]}, background=True)
    await witness.see("getConversation", "GET", path)
    await witness.see("listConversationItems", "GET", f"{path}/items?order=asc")
    await witness.see("listConversationItems", "GET", f"{path}/items?limit=0")
    await witness.see("deleteConversation", "DELETE", path)
    await witness.see("deleteResponse", "DELETE", f"/v1/responses/{drawn['id']}")
    await witness.see("deleteResponse", "DELETE", f"/v1/responses/{drawn['id']}")
    await witness.see("getConversation", "GET", "/v1/conversations/no")


async def use_03(witness: Witness) -> None:
    sent = await witness.see(
        "SendMessageV03", "POST", "/v1/message:send", said_in_03("all", "a1", configuration={"blocking": True})
    )
    asked = await witness.see("SendMessageV03", "POST", "/v1/message:send", said_in_03("ask", "a2"))
    task_id = asked["task"]["id"]
    await witness.see("SendStreamingMessageV03", "POST", "/v1/message:stream", said_in_03("all", "a3"))
    await witness.see("SendStreamingMessageV03", "POST", "/v1/message:stream", said_in_03("ask", "a4"))
    await witness.see("SendMessageV03", "POST", "/v1/message:send", {"message": {}})
    await witness.see("ListTasksV03", "GET", "/v1/tasks?includeArtifacts=true&historyLength=1")
    await witness.see("ListTasksV03", "GET", "/v1/tasks?pageSize=0")
    await witness.see("GetTaskV03", "GET", f"/v1/tasks/{sent['task']['id']}")
    await witness.see("GetTaskV03", "GET", "/v1/tasks/nothing")
    await witness.see("SubscribeToTaskV03", "GET", "/v1/tasks/nothing:subscribe")
    hook = {
        "pushNotificationConfig": {
            "url": "http://127.0.0.1:9/x",
            "id": "h",
            "token": "t",
            "authentication": {"schemes": ["Basic"], "credentials": "c"},
        }
    }
    hooks = f"/v1/tasks/{task_id}/pushNotificationConfigs"
    await witness.see("CreateTaskPushNotificationConfigV03", "POST", hooks, hook)
    await witness.see("ListTaskPushNotificationConfigsV03", "GET", hooks)
    await witness.see("GetTaskPushNotificationConfigV03", "GET", f"{hooks}/h")
    await witness.see("DeleteTaskPushNotificationConfigV03", "DELETE", f"{hooks}/h")
    await witness.see("CancelTaskV03", "POST", f"/v1/tasks/{task_id}:cancel", {})
    await witness.see("CancelTaskV03", "POST", f"/v1/tasks/{task_id}:cancel", {})
    await witness.see("GetExtendedAgentCardV03", "GET", "/v1/card")


async def use_workers(witness: Witness) -> None:
    worker = WorkerDoor([witness.http])

    async def act(action: str, **said: Any) -> Any:
        name = "worker" + "".join(word.title() for word in action.split("-"))
        return await witness.see(name, "POST", f"/workers/far/{action}", said)

    await act("lease", worker="w")
    await worker.send("one")
    taken = await act("lease", worker="w", wait_s=5, history=5)
    said = {"lease": taken["lease"]}
    await act("heartbeat", **said)
    await act("update", **said, message="half", progress={"current": 1, "total": 2}, number=1)
    await act("artifact", **said, artifact={"parts": [{"text": "one"}, {"data": {"a": 1}}]}, number=2)
    await act("step", **said, number=1, name="charge")
    await act("step-result", **said, number=1, name="charge", result={"receipt": 1})
    await act("step", **said, number=1, name="charge")
    await act("memory", **said, number=2, verb="set", key="city", value="Lyon")
    await act("memory", **said, number=3, verb="get", key="city")
    await act("memory", **said, number=4, verb="list")
    await act("sleep", **said, number=5, seconds=1, keep=True)
    await act("delegate", **said, delegation=1, agent="talker", message="hi", wait_s=10)
    await act("ask", **said, question=1, message="Which city?")
    await act("history", **said)
    await act("references", **said)
    await act("complete", **said, artifacts=[{"parts": [{"text": "done"}]}])
    await act("heartbeat", lease="1.x")
    await worker.send("two")
    taken = await act("lease", worker="w", wait_s=5)
    await act("release", lease=taken["lease"])
    taken = await act("lease", worker="w", wait_s=5)
    await act("fail", lease=taken["lease"], message="no", reason="tired")
    await worker.send("three")
    taken = await act("lease", worker="w", wait_s=5)
    await act("update", lease=taken["lease"], state="rejected", message="no")
    await act("update", lease=3)


async def use_webhooks(witness: Witness, receiver: Receiver) -> None:
    own = {"token": "t", "secret": SECRET}
    hook = {"url": f"{receiver.url}/v1", **own}
    body = said_in_1("hello", "b1", configuration={"taskPushNotificationConfig": hook})
    await witness.see("SendMessage", "POST", "/message:send", body, **V1)
    hook = {"url": f"{receiver.url}/v03", **own}
    body = said_in_03("all", "b2", configuration={"blocking": True, "pushNotification": hook})
    await witness.see("SendMessageV03", "POST", "/v1/message:send", body)
    async with asyncio.timeout(60):
        while sum(b"ompleted" in call or b"COMPLETED" in call for call in receiver.bodies) < 2:
            await receiver.came(len(receiver.asked) + 1)
    for call in receiver.asked:
        name = "taskChanged" if call.path == "/v1" else "taskChangedV03"
        witness.keep(name, [call.json], call.headers["content-type"], call.headers)


async def test_every_answer_and_every_call_is_as_described() -> None:
    async with AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(receiving())
        witness = await stack.enter_async_context(witnessing(**LOOPBACK))
        await use_chat(witness)
        await use_responses(witness)
        await use_03(witness)
        await use_workers(witness)
        await use_webhooks(witness, receiver)
        await witness.see("getCatalog", "GET", "/.well-known/ai-catalog.json")
        document = await document_of(witness.http)
    assert {"webhook-signature", "x-dragoman-seq"} <= witness.seen[-2]["headers"].keys()
    assert await faults(document, witness.seen) == ""
    del document["components"]["schemas"]["ChatUsage"]["properties"]["total_tokens"]
    del document["components"]["schemas"]["TextEvent"]["properties"]["delta"]
    document["components"]["schemas"]["TaggedTask"]["required"].append("nothing")
    told = await faults(document, witness.seen)
    assert "createChatCompletion" in told
    assert "createResponse" in told
    assert "taskChangedV03" in told


async def test_a_refusal_says_when_to_come_back_as_described() -> None:
    async with witnessing(max_requests_per_s=1, api_key="k" * 32) as witness:
        document = await document_of(witness.http)
        for at in range(12):
            await witness.see(
                "SendMessage", "POST", "/message:send", said_in_1("x", f"c{at}"), **V1, x_api_key="k" * 32
            )
            await witness.see(
                "SendMessageV03", "POST", "/v1/message:send", said_in_03("x", f"d{at}"), x_api_key="k" * 32
            )
        await asyncio.sleep(1)  # until the next request may come
        await witness.see("GetExtendedAgentCardV03", "GET", "/v1/card", x_api_key="k" * 32)
        assert witness.seen[-1]["status"] == "200"
        await witness.see("ListTasks", "GET", "/tasks", **V1)
        await witness.see("listModels", "GET", "/v1/models")
    refused = {one["name"] for one in witness.seen if one["status"] == "429" and "retry-after" in one["headers"]}
    assert refused == {"SendMessage", "SendMessageV03"}
    assert await faults(document, witness.seen) == ""
