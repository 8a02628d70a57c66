"""A model for the tests of frameworks: a local server that speaks chat completions, and says what the test wrote down.

Invariant: standard library only, so that it runs in every environment; nothing listens after the block.
"""

import json
import threading
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "test-model"

SYSTEM = ("system", "developer")

WAIT_S = 60.0
"""How long a held answer waits to be let go."""


@dataclass(frozen=True)
class Call:
    """A call of a tool that the model asks for."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str = "call-1"

    @property
    def json_arguments(self) -> str:
        """The arguments as models write them."""
        return json.dumps(dict(self.arguments))


@dataclass(frozen=True)
class Answer:
    """The model's answer to one request: text, word by word, then calls of tools.

    `status` other than 200 is an error instead. With `held` the answer stops after its first word until it is set.
    """

    text: str = ""
    calls: Sequence[Call] = ()
    refusal: str | None = None
    input_tokens: int = 7
    output_tokens: int = 3
    status: int = 200
    held: threading.Event | None = None

    @property
    def words(self) -> list[str]:
        """The text in the pieces it is streamed in."""
        return [word for word in self.text.replace(" ", " \0").split("\0") if word]


@dataclass
class Completions:
    """The server as the test sees it: `url` ends in /v1; `requests` are the bodies in the order they came.

    `left` is set when a caller left in the middle of a stream.
    """

    url: str
    answers: list[Answer]
    requests: list[dict[str, Any]] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def said(self, number: int = -1) -> list[str]:
        """The texts of the conversation in a request: each message's by itself, without the system's."""
        return [_text(message) for message in self.requests[number]["messages"] if message["role"] not in SYSTEM]

    def images(self, number: int = -1) -> list[bytes]:
        """The images of a request."""
        contents = [message["content"] for message in self.requests[number]["messages"]]
        parts = [part for content in contents if isinstance(content, list) for part in content]
        return [image_of(part["image_url"]["url"]) for part in parts if part["type"] == "image_url"]

    def next(self, request: dict[str, Any]) -> Answer:
        """The answer to a request: those of the test in turn; an error 500 when there is none left."""
        with self.lock:
            self.requests.append(request)
            return self.answers.pop(0) if self.answers else Answer("no answer is left", status=500)


@contextmanager
def completions(*answers: Answer | str) -> Iterator[Completions]:
    """The server, for the block."""
    script = [Answer(answer) if isinstance(answer, str) else answer for answer in answers]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Spoken)
    server.daemon_threads = True
    state = Completions(f"http://127.0.0.1:{server.server_address[1]}/v1", script)
    server.state = state  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


class Spoken(BaseHTTPRequestHandler):
    """POST …/chat/completions, whole or streamed, and GET …/models."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """The tests say what they need to say."""

    def do_GET(self) -> None:
        """The list of models."""
        self._json(
            200, {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "test"}]}
        )

    def do_POST(self) -> None:
        """One completion."""
        state: Completions = self.server.state  # type: ignore[attr-defined]
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        answer = state.next(body)
        if answer.status != 200:
            self._json(answer.status, {"error": {"message": answer.text, "type": "test", "code": str(answer.status)}})
        elif body.get("stream"):
            try:
                self._stream(answer, body)
            except (BrokenPipeError, ConnectionResetError):
                state.left.set()
                self.close_connection = True
        else:
            self._json(200, self._whole(answer, body))

    def _whole(self, answer: Answer, body: Mapping[str, Any]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": answer.refusal}
        if answer.calls:
            message["tool_calls"] = [_call(call) for call in answer.calls]
        choice = {"index": 0, "message": message, "finish_reason": _reason(answer), "logprobs": None}
        return _envelope(body, "chat.completion") | {"choices": [choice], "usage": _usage(answer)}

    def _stream(self, answer: Answer, body: Mapping[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._delta(body, {"role": "assistant", "content": ""})
        if answer.refusal is not None:
            self._delta(body, {"refusal": answer.refusal})
        for number, word in enumerate(answer.words):
            if number == 1 and answer.held is not None:
                self._hold(answer.held, body)
            self._delta(body, {"content": word})
        for index, call in enumerate(answer.calls):
            made = _call(call)
            arguments, made["function"]["arguments"] = made["function"]["arguments"], ""
            self._delta(body, {"tool_calls": [{"index": index} | made]})
            half = len(arguments) // 2
            for piece in (arguments[:half], arguments[half:]):
                self._delta(body, {"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        self._delta(body, {}, _reason(answer))
        if (body.get("stream_options") or {}).get("include_usage"):
            self._event(_envelope(body, "chat.completion.chunk") | {"choices": [], "usage": _usage(answer)})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _hold(self, held: threading.Event, body: Mapping[str, Any]) -> None:
        """Wait, and meanwhile notice when the caller has left: an empty delta every moment says so."""
        waited = 0.0
        while waited < WAIT_S and not held.wait(0.05):
            waited += 0.05
            self._delta(body, {})

    def _delta(self, body: Mapping[str, Any], delta: Mapping[str, Any], reason: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        self._event(_envelope(body, "chat.completion.chunk") | {"choices": [choice]})

    def _event(self, event: Mapping[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
        self.wfile.flush()

    def _json(self, status: int, value: object) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part["type"] == "text")
    return content or ""


def image_of(url: str) -> bytes:
    return b64decode(url.removeprefix("data:image/png;base64,"), validate=True)


def _envelope(body: Mapping[str, Any], kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1_700_000_000, "model": body.get("model", MODEL)}


def _call(call: Call) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.json_arguments},
    }


def _reason(answer: Answer) -> str:
    return "tool_calls" if answer.calls else "stop"


def _usage(answer: Answer) -> dict[str, int]:
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
    }
