"""The floor: a bare uvicorn app that decodes and encodes the same JSON with msgspec, and does nothing else.

No routing, no task, no store: what is left is what the HTTP server and the JSON cost. Nothing above it can be faster.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import uvicorn

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]

TASK_ID = "0198f3a0-0000-7000-8000-000000000001"
CONTEXT_ID = "0198f3a0-0000-7000-8000-000000000002"
JSON = [(b"content-type", b"application/json")]
SSE = [(b"content-type", b"text/event-stream")]


class Wire(msgspec.Struct, rename="camel", omit_defaults=True):
    """The base of all shapes here: camelCase, without fields that were not set."""


class Part(Wire):
    text: str | None = None
    raw: str | None = None


class Message(Wire):
    message_id: str
    role: str
    parts: list[Part]
    context_id: str | None = None
    task_id: str | None = None


class Params(Wire):
    message: Message | None = None
    id: str | None = None


class Request(Wire):
    method: str
    params: Params
    jsonrpc: str = "2.0"
    id: int | str | None = None


class Status(Wire):
    state: str
    timestamp: str = "2026-01-01T00:00:00.000Z"


class Artifact(Wire):
    artifact_id: str
    parts: list[Part]


class Task(Wire):
    id: str
    context_id: str
    status: Status
    artifacts: list[Artifact]
    history: list[Message]


class ArtifactUpdate(Wire):
    task_id: str
    context_id: str
    artifact: Artifact
    append: bool


class Result(Wire):
    task: Task | None = None
    artifact_update: ArtifactUpdate | None = None


class Answer(msgspec.Struct):
    result: Result | Task
    id: int | str | None
    jsonrpc: str = "2.0"


def build() -> App:
    decode = msgspec.json.Decoder(Request).decode
    encode = msgspec.json.Encoder().encode
    asked = Message("m", "ROLE_USER", [Part("What is the weather in Lyon tomorrow?")], CONTEXT_ID, TASK_ID)

    def task_of(message: Message, state: str) -> Task:
        return Task(TASK_ID, CONTEXT_ID, Status(state), [Artifact("result", message.parts)], [message])

    async def stream(request: Request, message: Message, send: Send) -> None:
        """One event, one send, one turn of the loop."""
        await send({"type": "http.response.start", "status": 200, "headers": SSE})
        count, _pace = (message.parts[0].text or "").split()
        for i in range(int(count)):
            update = ArtifactUpdate(TASK_ID, CONTEXT_ID, Artifact("result", [Part(f"chunk {i:06d} ")]), i > 0)
            frame = b"id: %d\ndata: %b\n\n" % (i + 1, encode(Answer(Result(artifact_update=update), request.id)))
            await send({"type": "http.response.body", "body": frame, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def hold(request: Request, message: Message, receive: Receive, send: Send) -> None:
        """Two events, then silence until the client leaves."""
        frame = b"data: %b\n\n" % encode(Answer(Result(task_of(message, "TASK_STATE_WORKING")), request.id))
        await send({"type": "http.response.start", "status": 200, "headers": SSE})
        await send({"type": "http.response.body", "body": frame + frame, "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass

    async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        body, more = b"", True
        while more:
            part = await receive()
            body, more = body + part.get("body", b""), part.get("more_body", False)
        if scope["method"] != "POST":
            await send({"type": "http.response.start", "status": 200, "headers": JSON})
            await send({"type": "http.response.body", "body": b"{}"})
            return
        request = decode(body)
        message = request.params.message or asked
        if request.method == "SendStreamingMessage":
            if scope["path"].endswith("/idle"):
                await hold(request, message, receive, send)
            else:
                await stream(request, message, send)
            return
        task = task_of(message, "TASK_STATE_COMPLETED")
        answer = encode(Answer(Result(task) if request.params.message else task, request.id))
        length = (b"content-length", str(len(answer)).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [*JSON, length]})
        await send({"type": "http.response.body", "body": answer})

    return app


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--port", type=int, required=True)
    port = options.parse_args().port
    uvicorn.run(
        build(),
        host="127.0.0.1",
        port=port,
        http="httptools",
        loop="uvloop",
        lifespan="off",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,
    )


if __name__ == "__main__":
    main()
