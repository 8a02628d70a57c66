"""An agent without faults, in memory: A2A 1.0 and 0.3 over JSON-RPC, and 1.0 over HTTP+JSON. Faults are planted in it.

It is written from the specification, and shares no code with the server or the client.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dragoman.client import ApiKey, Interface, find_card
from dragoman.client.http import HttpClient
from dragoman.client.retries import Retries
from dragoman.doctor.subject import CallerIdentity, SubjectCard
from dragoman.net.egress import HttpReply
from dragoman.net.errors import Compressed, TimedOut
from dragoman.net.target import Target
from dragoman.net.tls import MACHINE_TLS

URL = "http://127.0.0.1:9"
WELL_KNOWN = "/.well-known/agent-card.json"
NOW = "2026-01-31T12:00:00.000Z"

NOT_FOUND, NOT_CANCELABLE, NO_PUSH, UNSUPPORTED, NO_VERSION = -32001, -32002, -32003, -32004, -32009
NO_METHOD, NO_PARAMS, NO_JSON = -32601, -32602, -32700

METHODS_03 = {
    "message/send": "SendMessage",
    "message/stream": "SendStreamingMessage",
    "tasks/get": "GetTask",
    "tasks/cancel": "CancelTask",
    "tasks/resubscribe": "SubscribeToTask",
    "tasks/pushNotificationConfig/get": "GetTaskPushNotificationConfig",
    "tasks/pushNotificationConfig/set": "CreateTaskPushNotificationConfig",
    "agent/getAuthenticatedExtendedCard": "GetExtendedAgentCard",
}
STATES_03 = {
    "TASK_STATE_COMPLETED": "completed",
    "TASK_STATE_WORKING": "working",
    "TASK_STATE_CANCELED": "canceled",
    "ROLE_AGENT": "agent",
    "ROLE_USER": "user",
}
ENDED = ("TASK_STATE_COMPLETED", "TASK_STATE_CANCELED", "TASK_STATE_FAILED")


class Refusal(Exception):
    """A JSON-RPC error."""

    def __init__(self, code: int, message: str = "No") -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass
class Reply:
    """An answer. A stream has `events`, each a document; `open`: it is not closed after them."""

    document: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    raw: bytes | None = None
    events: list[Any] | None = None
    open: bool = False
    after_s: float = 0.0

    @property
    def body(self) -> bytes:
        if self.raw is not None:
            return self.raw
        if self.events is not None:
            return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in self.events)
        return json.dumps(self.document).encode()


Plant = Callable[["Agent"], None]


class Agent:
    """The agent. A fault changes `card`, a field, or the answers on their way out (`results`, `replies`)."""

    def __init__(self, version: str = "1.0", binding: str = "JSONRPC") -> None:
        self.version, self.binding = version, binding
        self.card = card(version, binding)
        self.tasks: dict[str, dict[str, Any]] = {}
        self.results: list[Callable[[str, Any], Any]] = []
        """Change a result, or an event of a stream, by the name of its operation."""
        self.replies: list[Callable[[str, Reply], Reply]] = []
        """Change a whole answer, by the name of its operation; `card` is one."""
        self.methods: dict[str, Callable[[dict[str, Any]], Any]] = {
            "SendMessage": self._send,
            "SendStreamingMessage": self._stream,
            "GetTask": self._get,
            "ListTasks": self._list,
            "CancelTask": self._cancel,
            "SubscribeToTask": self._subscribe,
            "GetTaskPushNotificationConfig": lambda given: self._task(given.get("taskId", given["id"])),
            "CreateTaskPushNotificationConfig": self._create_webhook,
            "GetExtendedAgentCard": lambda given: self.card,
        }
        self.asked: list[str] = []
        self.takes_local_webhooks = False
        self.calls_webhooks = True
        self.called = False
        self._ids = count(1)

    # -- operations ----------------------------------------------------------------------------------------------------

    def begin(self, given: dict[str, Any], state: str) -> dict[str, Any]:
        """Make a task for a message."""
        message = given["message"]
        if message.get("taskId"):
            self._task(message["taskId"])
            raise Refusal(UNSUPPORTED)
        number = next(self._ids)
        context = message.get("contextId") or f"context-{number}"
        said = {**message, "role": "ROLE_USER", "taskId": f"task-{number}", "contextId": context}
        task = {
            "id": f"task-{number}",
            "contextId": context,
            "status": {"state": state, "timestamp": NOW},
            "history": [said],
        }
        if state == "TASK_STATE_COMPLETED":
            task["artifacts"] = [artifact()]
        self.tasks[task["id"]] = task
        return task

    def _send(self, given: dict[str, Any]) -> Any:
        wish = given.get("configuration", {})
        now = wish.get("returnImmediately", wish.get("blocking") is False)
        task = self.begin(given, "TASK_STATE_WORKING" if now else "TASK_STATE_COMPLETED")
        hooked = "taskPushNotificationConfig" in wish or "pushNotificationConfig" in wish
        self.called = self.called or (self.calls_webhooks and hooked)
        return {"task": task}

    def _stream(self, given: dict[str, Any]) -> list[Any]:
        task = self.begin(given, "TASK_STATE_COMPLETED")
        names = {"taskId": task["id"], "contextId": task["contextId"]}
        first = {**task, "status": {"state": "TASK_STATE_WORKING", "timestamp": NOW}, "artifacts": []}
        return [
            {"task": first},
            {"artifactUpdate": {**names, "artifact": artifact(), "lastChunk": True}},
            {"statusUpdate": {**names, "status": task["status"]}},
        ]

    def _task(self, task_id: str) -> dict[str, Any]:
        if task_id not in self.tasks:
            raise Refusal(NOT_FOUND)
        return self.tasks[task_id]

    def _get(self, given: dict[str, Any]) -> Any:
        if "id" not in given:
            raise Refusal(NO_PARAMS)
        task = self._task(given["id"])
        none = given.get("historyLength") in (0, "0")
        return {name: value for name, value in task.items() if name != "history" or not none}

    def _list(self, given: dict[str, Any]) -> Any:
        found = [each for each in self.tasks.values() if each["contextId"] == given.get("contextId", each["contextId"])]
        bare = [{name: value for name, value in each.items() if name != "artifacts"} for each in found]
        return self.page(given, bare)

    def page(self, given: dict[str, Any], tasks: list[Any]) -> dict[str, Any]:
        """Return the page of these tasks that is asked for."""
        size, begin = int(given.get("pageSize", 50)), int(given.get("pageToken") or 0)
        end = begin + size
        following = str(end) if end < len(tasks) else ""
        return {"tasks": tasks[begin:end], "nextPageToken": following, "pageSize": size, "totalSize": len(tasks)}

    def _cancel(self, given: dict[str, Any]) -> Any:
        task = self._task(given["id"])
        if task["status"]["state"] in ENDED:
            raise Refusal(NOT_CANCELABLE)
        task["status"] = {"state": "TASK_STATE_CANCELED", "timestamp": NOW}
        return task

    def _subscribe(self, given: dict[str, Any]) -> Any:
        task = self._task(given["id"])
        if task["status"]["state"] in ENDED:
            raise Refusal(UNSUPPORTED)
        return [{"task": task}]

    def _create_webhook(self, given: dict[str, Any]) -> Any:
        url = given.get("url") or given.get("pushNotificationConfig", {}).get("url", "")
        if "127.0.0.1" in url and not self.takes_local_webhooks:
            raise Refusal(NO_PARAMS)
        return given

    # -- bindings ------------------------------------------------------------------------------------------------------

    async def answer(self, verb: str, url: str, headers: Mapping[str, str], body: bytes) -> tuple[str, Reply]:
        """Return the answer to a request, and the name of what was asked."""
        parts = urlsplit(url)
        if parts.path.endswith(WELL_KNOWN):
            name, reply = "card", Reply(deepcopy(self.card), headers=CARD_HEADERS.copy())
        elif verb == "OPTIONS":
            name, reply = "preflight", Reply({"detail": "Not Found"}, status=404)
        elif not parts.path.startswith("/a2a"):
            name, reply = "nothing", Reply(raw=b"Not Found", status=404, headers={"content-type": "text/plain"})
        elif self.binding == "JSONRPC":
            name, reply = self._answer_rpc(body, headers)
        else:
            name, reply = self._answer_rest(verb, parts.path.removeprefix("/a2a"), parts.query, body, headers)
        for change in self.replies:
            reply = change(name, reply)
        self.asked.append(name)
        return name, reply

    def _answer_rpc(self, body: bytes, headers: Mapping[str, str]) -> tuple[str, Reply]:
        try:
            asked = json.loads(body)
        except ValueError:
            return "broken", Reply(envelope(None, Refusal(NO_JSON)))
        called, name = asked["method"], METHODS_03.get(asked["method"], asked["method"])
        if headers.get("A2A-Version") == "99.0" and self.version == "1.0":
            return "version", Reply(envelope(asked["id"], Refusal(NO_VERSION)))
        known = called in METHODS_03 if self.version == "0.3" else called in self.methods
        try:
            result = self._call(name, asked["params"]) if known else self._refuse(NO_METHOD)
        except Refusal as refusal:
            return name, Reply(envelope(asked["id"], refusal))
        if isinstance(result, list):
            return name, stream([envelope(asked["id"], each) for each in result])
        return name, Reply(envelope(asked["id"], result))

    def _answer_rest(
        self, verb: str, path: str, query: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[str, Reply]:
        given = json.loads(body) if body else {key: values[0] for key, values in parse_qs(query).items()}
        for pattern, of, name in ROUTES:
            if (match := re.fullmatch(pattern, path)) and of == verb:
                if headers.get("A2A-Version") == "99.0":
                    return "version", rest_error(400, "No such version", "VERSION_NOT_SUPPORTED")
                try:
                    result = self._call(name, {**given, **match.groupdict()})
                except Refusal as refusal:
                    return name, rest_error(*REST_ERRORS[refusal.code])
                return name, stream(result) if isinstance(result, list) else Reply(result)
        return "nothing", Reply({"detail": "Not Found"}, status=404)

    def _refuse(self, code: int) -> Any:
        raise Refusal(code)

    def _call(self, name: str, given: dict[str, Any]) -> Any:
        result = deepcopy(self.methods[name](given))
        if self.version == "0.3":
            result = [old(each) for each in result] if isinstance(result, list) else old(result)
        if isinstance(result, list):
            changed = [self._changed(name, each) for each in result]
            return [each for each in changed if each is not None]
        return self._changed(name, result)

    def _changed(self, name: str, result: Any) -> Any:
        for change in self.results:
            result = change(name, result)
        return result


def envelope(call_id: Any, result: Any) -> dict[str, Any]:
    if isinstance(result, Refusal):
        return {"jsonrpc": "2.0", "id": call_id, "error": {"code": result.code, "message": result.message}}
    return {"jsonrpc": "2.0", "id": call_id, "result": result}


def stream(events: list[Any]) -> Reply:
    return Reply(events=events, headers={"content-type": "text/event-stream"})


def rest_error(status: int, message: str, reason: str) -> Reply:
    detail = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "a2a-protocol.org"}
    error = {"code": status, "status": "NO", "message": message, "details": [detail]}
    return Reply({"error": error}, status=status)


REST_ERRORS = {
    NOT_FOUND: (404, "No such task", "TASK_NOT_FOUND"),
    NOT_CANCELABLE: (409, "It has ended", "TASK_NOT_CANCELABLE"),
    UNSUPPORTED: (400, "It has ended", "UNSUPPORTED_OPERATION"),
    NO_PARAMS: (400, "No such address", "INVALID_ARGUMENT"),
    NO_PUSH: (400, "No webhooks", "PUSH_NOTIFICATION_NOT_SUPPORTED"),
}
ROUTES = (
    ("/message:send", "POST", "SendMessage"),
    ("/message:stream", "POST", "SendStreamingMessage"),
    ("/tasks", "GET", "ListTasks"),
    ("/tasks/(?P<taskId>[^/]+)/pushNotificationConfigs/(?P<id>[^/]+)", "GET", "GetTaskPushNotificationConfig"),
    ("/tasks/(?P<taskId>[^/]+)/pushNotificationConfigs", "POST", "CreateTaskPushNotificationConfig"),
    ("/tasks/(?P<id>[^/]+):cancel", "POST", "CancelTask"),
    ("/tasks/(?P<id>[^/]+):subscribe", "GET", "SubscribeToTask"),
    ("/tasks/(?P<id>[^/:]+)", "GET", "GetTask"),
    ("/extendedAgentCard", "GET", "GetExtendedAgentCard"),
)
CARD_HEADERS = {"content-type": "application/json", "cache-control": "max-age=60", "etag": '"1"'}


def artifact() -> dict[str, Any]:
    return {"artifactId": "a", "parts": [{"text": "Hello"}]}


def old(value: Any) -> Any:
    """Write a value of 1.0 in the way of 0.3."""
    if not isinstance(value, dict):
        return [old(each) for each in value] if isinstance(value, list) else STATES_03.get(value, value)
    for name, kind in (("statusUpdate", "status-update"), ("artifactUpdate", "artifact-update"), ("task", "task")):
        if value.keys() == {name}:
            inner = {"kind": kind, **old_fields(value[name])}
            if kind == "status-update":
                inner["final"] = inner["status"]["state"] == "completed"
            return inner
    return {"kind": "task", **old_fields(value)} if "status" in value and "id" in value else old_fields(value)


def old_fields(value: dict[str, Any]) -> dict[str, Any]:
    found = {name: old(each) for name, each in value.items()}
    if "text" in found:
        found["kind"] = "text"
    if "messageId" in found:
        found["kind"] = "message"
    return found


def card(version: str, binding: str) -> dict[str, Any]:
    common: dict[str, Any] = {
        "name": "Echo",
        "description": "Gives back",
        "version": "1",
        "capabilities": {"streaming": True, "pushNotifications": True, "extendedAgentCard": False},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": "echo", "name": "Echo", "description": "Gives back", "tags": ["test"]}],
    }
    if version == "0.3":
        common["capabilities"] = {"streaming": True, "pushNotifications": True}
        return {**common, "url": f"{URL}/a2a", "protocolVersion": "0.3.0", "preferredTransport": "JSONRPC"}
    interface = {"url": f"{URL}/a2a", "protocolBinding": binding, "protocolVersion": "1.0"}
    return {**common, "supportedInterfaces": [interface]}


# -- how the doctor reaches it -----------------------------------------------------------------------------------------


class Wire:
    """An Egress whose other side is the agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def request(
        self,
        method: str,
        url: str | Target,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> HttpReply:
        to = url if isinstance(url, str) else url.url
        _, reply = await self._agent.answer(method, to, headers or {}, body or b"")
        if reply.after_s >= timeout_s:
            await asyncio.sleep(timeout_s)
            raise TimedOut(to, timeout_s)
        await asyncio.sleep(reply.after_s)
        if reply.headers.get("content-encoding"):
            raise Compressed(to)
        return HttpReply(reply.status, reply.headers, reply.body)

    async def open(
        self,
        method: str,
        url: str | Target,
        *,
        head_timeout_s: float,
        idle_timeout_s: float,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> "Arriving":
        to = url if isinstance(url, str) else url.url
        _, reply = await self._agent.answer(method, to, headers or {}, body or b"")
        return Arriving(reply)


class Arriving:
    """A Flow."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._came: bytes | None = None
        self._waited = False
        self.over = False
        self.status, self.headers, self.ok = reply.status, reply.headers, 200 <= reply.status < 300

    def take(self) -> bytes | None:
        came, self._came = self._came, None
        return came

    async def more(self) -> None:
        if self._waited and self._reply.open:
            await asyncio.sleep(3600)
        elif self._waited:
            self._came = b""
        else:
            await asyncio.sleep(self._reply.after_s)
            self._came = self._reply.body or None
        self._waited = True

    async def body(self) -> bytes:
        await asyncio.sleep(self._reply.after_s)
        return self._reply.body

    def release(self) -> None:
        pass


class AgentSubject:
    """The agent as the doctor is given it. `key` is shown, if there is one."""

    def __init__(self, agent: Agent, key: str = "") -> None:
        self.agent, self.origin = URL, URL
        self.egress: Any = Wire(agent)
        self.tls = MACHINE_TLS
        self.headers: Mapping[str, str] = {}
        self.trusted: tuple[str, ...] = ()
        self.log = None
        self._key = key

    async def find_card(self) -> SubjectCard:
        egress: HttpClient = self.egress
        found = await find_card(self.agent, egress=egress, retries=Retries(attempts=1))
        return SubjectCard(found=found, place=found.url)

    async def identify(self, card: SubjectCard, schemes: Mapping[str, Any]) -> CallerIdentity:
        return CallerIdentity(credentials=ApiKey(self._key)) if self._key else CallerIdentity()

    def identify_other(self, schemes: Mapping[str, Any]) -> CallerIdentity:
        return CallerIdentity()

    async def describe_signature(self, card: SubjectCard) -> str:
        return "absent"

    def prefer(self, card: SubjectCard) -> Interface | None:
        return None


class AgentWebhook:
    """A webhook that this agent calls, if it calls webhooks."""

    url = "http://192.0.2.1:9/hook"

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def wait(self, within_s: float) -> bool:
        return self._agent.called


__all__ = ["Agent", "AgentSubject", "AgentWebhook", "Plant", "Refusal", "Reply", "replace"]
