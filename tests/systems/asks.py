"""Every request that names a task, in every dialect, over every binding."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from tests.systems.conftest import HOOK, Json, Site, Told
from tests.systems.speakers import Speaker
from tests.systems.test_foreign import EVERYWHERE

CONFIG = "c-1"
"""The id of the webhook that each of Anna's tasks has."""

V = {"a2a_version": "1.0"}


class Ask(Struct, frozen=True, kw_only=True):
    """A request about a task: `{id}` stands for it, in the path and anywhere in the body."""

    name: str
    verb: str = "POST"
    path: str
    body: Any = None
    headers: Mapping[str, str] = {}
    found: bool = True
    """Whether the owner is told something else than who is not."""

    async def of(self, served: Site, task_id: str) -> Told:
        """The answer."""
        headers = {name: text.replace("{id}", task_id) for name, text in self.headers.items()}
        return await served.ask(self.verb, self.path.replace("{id}", task_id), filled(self.body, task_id), **headers)


def filled(body: Any, task_id: str) -> Any:
    """The body with the id in it."""
    if isinstance(body, str):
        return body.replace("{id}", task_id)
    if isinstance(body, dict):
        return {name: filled(value, task_id) for name, value in body.items()}
    return [filled(value, task_id) for value in body] if isinstance(body, list) else body


def rpc(name: str, path: str, method: str, params: Json, headers: Mapping[str, str] = {}, **more: Any) -> Ask:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return Ask(name=f"{name} {path} {method}", path=path, body=body, headers=headers, **more)


STREAMS = {"SendMessage": "SendStreamingMessage", "message/send": "message/stream"}


def of_speaker(speaker: Speaker) -> list[Ask]:
    """The requests of a system's client about a task."""
    asks = [
        rpc(speaker.name, speaker.at("desk"), method, {speaker.key: "{id}"}, speaker.headers)
        for method in speaker.methods[1:]
        if method is not None
    ]
    said, send = speaker.said("more", task_id="{id}"), speaker.methods[0]
    asks.append(rpc(speaker.name, speaker.at("desk"), send, said, speaker.headers))
    if speaker.methods[3] is not None:
        asks.append(rpc(speaker.name, speaker.at("desk"), STREAMS[send], said, speaker.headers))
    return asks


def push_of_1(path: str, headers: Mapping[str, str] = V) -> list[Ask]:
    named = {"taskId": "{id}", "id": CONFIG}
    return [
        rpc("push 1.0", path, f"{verb}TaskPushNotificationConfig{'s' if verb == 'List' else ''}", params, headers)
        for verb, params in (
            ("Create", {"taskId": "{id}", "url": HOOK}),
            ("Get", named),
            ("List", {"taskId": "{id}"}),
            ("Delete", named),
        )
    ]


def push_of_03(path: str, names: str, verbs: str = "set get list delete", **headers: str) -> list[Ask]:
    """With both ways of naming task and configuration."""
    config = {"url": HOOK, "id": "c-2"}
    asks = []
    for verb in verbs.split():
        told = {"pushNotificationConfig": config} if verb in ("set", "Set") else {}
        method = names.replace("*", f"{verb}{'PushNotificationConfig' if names == '*' else ''}")
        if verb == "List":
            method += "s"
        which = {} if verb in ("list", "List") else {"id": CONFIG}
        asks.append(rpc("push by taskId", path, method, {"taskId": "{id}", **which, **told}, headers))
        if verb not in ("set", "Set"):
            named = {"id": "{id}", "pushNotificationConfigId": CONFIG}
            asks.append(rpc("push by id", path, method, named, headers))
    return asks


SLASH = "tasks/pushNotificationConfig/*"
SHORT = "tasks/pushNotification/*"
PUSH = [
    *(ask for path in ("/", "/agents/desk", "/desk", "/a2a") for ask in push_of_1(path)),
    *(ask for path in ("/", "/agents/desk", "/a2a", "/desk") for ask in push_of_03(path, SLASH)),
    *push_of_03("/desk", "*", "Set Get List Delete", **V),
    *push_of_03("/desk", SHORT, **V),
    *(ask for names in (SLASH, SHORT) for ask in push_of_03("/api/v1/a2a/desk", names, "set get")),
    rpc(
        *("Evo AI takes away", "/api/v1/a2a/desk", "tasks/pushNotificationConfig/set"),
        {"taskId": "{id}", "pushNotificationConfig": None},
    ),
]


def rest_of_1(at: str) -> list[Ask]:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "more"}], "taskId": "{id}"}
    asked: list[tuple[str, str, Any]] = [
        ("GET", "/tasks/{id}", None),
        ("GET", "/tasks/{id}?historyLength=0", None),
        ("HEAD", "/tasks/{id}", None),
        ("POST", "/tasks/{id}:cancel", {}),
        ("GET", "/tasks/{id}:subscribe", None),
        ("POST", "/tasks/{id}:subscribe", None),
        ("POST", "/message:send", {"message": message}),
        ("POST", "/message:stream", {"message": message}),
        ("POST", "/tasks/{id}/pushNotificationConfigs", {"url": HOOK}),
        ("GET", "/tasks/{id}/pushNotificationConfigs", None),
        ("GET", f"/tasks/{{id}}/pushNotificationConfigs/{CONFIG}", None),
        ("DELETE", f"/tasks/{{id}}/pushNotificationConfigs/{CONFIG}", None),
    ]
    return [Ask(name="REST 1.0", verb=verb, path=at + path, body=body, headers=V) for verb, path, body in asked]


def rest_of_03(at: str) -> list[Ask]:
    message = {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "more"}], "taskId": "{id}"}
    config = {"name": f"tasks/{{id}}/pushNotificationConfigs/{CONFIG}", "pushNotificationConfig": {"url": HOOK}}
    asked: list[tuple[str, str, Any]] = [
        ("GET", "/tasks/{id}", None),
        ("POST", "/tasks/{id}:cancel", {}),
        ("GET", "/tasks/{id}:subscribe", None),
        ("POST", "/tasks/{id}:subscribe", None),
        ("POST", "/message:send", {"message": message}),
        ("POST", "/message:stream", {"message": message}),
        ("POST", "/tasks/{id}/pushNotificationConfigs", config),
        ("GET", "/tasks/{id}/pushNotificationConfigs", None),
        ("GET", f"/tasks/{{id}}/pushNotificationConfigs/{CONFIG}", None),
        ("DELETE", f"/tasks/{{id}}/pushNotificationConfigs/{CONFIG}", None),
    ]
    return [Ask(name="REST 0.3", verb=verb, path=f"{at}/v1{path}", body=body) for verb, path, body in asked]


CHAT = {"model": "desk", "messages": [{"role": "user", "content": "more"}]}

ASKS = [
    *(ask for speaker in EVERYWHERE for ask in of_speaker(speaker)),
    *PUSH,
    *(ask for at in ("", "/agents/desk", "/desk") for ask in rest_of_1(at)),
    *(ask for at in ("", "/agents/desk") for ask in rest_of_03(at)),
    *(
        Ask(name=f"BeeOS {query}", verb="GET", path=f"/desk/stream?task_id={{id}}{query}")
        for query in ("", "&since=0", "&since=2", "&since=999")
    ),
    Ask(name="BeeOS since x", verb="GET", path="/desk/stream?task_id={id}&since=x", found=False),
    *(
        Ask(name=f"subscribe {query}", verb="GET", path=f"/tasks/{{id}}:subscribe?{query}", headers=V)
        for query in ("since=0", "since=999", "fromSeq=1")
    ),
    Ask(
        name="Last-Event-ID", verb="GET", path="/agents/desk/tasks/{id}:subscribe", headers={**V, "last_event_id": "1"}
    ),
    Ask(name="protoAgent", verb="GET", path="/a2a/tasks/{id}"),
    Ask(name="protoAgent bare", path="/a2a/tasks/{id}/pushNotificationConfig", body={"url": HOOK}),
    Ask(
        name="protoAgent wrapped",
        path="/a2a/tasks/{id}/pushNotificationConfig",
        body={"pushNotificationConfig": {"url": HOOK}},
    ),
    Ask(name="protoAgent", verb="GET", path="/a2a/tasks/{id}/pushNotificationConfig"),
    Ask(name="chat", path="/v1/chat/completions", body=CHAT, headers={"x_dragoman_task_id": "{id}"}),
    Ask(
        *(),
        name="chat stream",
        path="/v1/chat/completions",
        body={**CHAT, "stream": True},
        headers={"x_dragoman_task_id": "{id}"},
    ),
    Ask(name="chat of another model", path="/v1/chat/completions", body={**CHAT, "model": "other"}, headers={
        "x_dragoman_task_id": "{id}"}, found=False),
    # A worker's report by somebody who is no worker.
    *(rpc("BeeOS", "/desk", method, {"id": "{id}", "status": {"state": "working"}, "artifacts": []})
      for method in ("CompleteTask", "UpdateStatus", "tasks/complete", "tasks/updateStatus")),
]  # fmt: skip


def named(ask: Ask) -> str:
    return f"{ask.name} {ask.verb} {ask.path}"
