"""How webhooks are registered in each dialect, over each of its bindings, and what they are told."""

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from tests.spec.proto import V1
from tests.systems.conftest import Json, Site, Told

V = {"a2a_version": "1.0"}

numbers = itertools.count(1)


class Hooked(Struct, frozen=True, kw_only=True):
    """How webhooks are registered in a dialect, over one of its bindings, and what they are told.

    `send` and `register` give path and body from a text and a configuration, from a task's id and a configuration.
    `told` says in a word what a call is about.
    """

    name: str
    send: Callable[[str, Json | None], tuple[str, Json]]
    register: Callable[[str, Json], tuple[str, Json]]
    get: Callable[[str, str], tuple[str, str, Json | None]]
    list: Callable[[str], tuple[str, str, Json | None]] | None
    delete: Callable[[str, str], tuple[str, str, Json | None]] | None
    told: Callable[[Json], str]
    story: tuple[str, ...]
    waiting: str = "task working"
    """The calls to a webhook that is registered while the agent works."""
    ended: str = "task completed"
    content_type: str = "application/json"
    headers: Mapping[str, str] = {}

    async def made(self, served: Site, text: str, config: Json | None = None) -> Told:
        """Send, with a webhook."""
        path, body = self.send(text, config)
        return await served.post(path, body, **self.headers)

    async def task(self, served: Site, text: str, config: Json | None = None) -> str:
        """The id of the task."""
        return task_id_of(await self.made(served, text, config))

    async def registered(self, served: Site, task_id: str, config: Json) -> Told:
        """Register afterwards."""
        path, body = self.register(task_id, config)
        return await served.post(path, body, **self.headers)


def task_id_of(told: Told) -> str:
    assert told.status == 200, told
    body = told.body
    assert "error" not in body, body
    result = body.get("result", body)
    return str(result.get("task", result)["id"])


def rpc(method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def waits(text: str) -> bool:
    """Whether the agent is going to stand at a gate, so that a blocking call would too."""
    return text.startswith(("wait", "held"))


def said(text: str, tag: str | None, **more: Any) -> Json:
    part = {"text": text} if tag is None else {tag: "text", "text": text}
    return {"role": "user", "parts": [part], "messageId": f"m-{next(numbers)}", **more}


# -- 1.0 ---------------------------------------------------------------------------------------------------------------


def told_1(body: Json) -> str:
    V1.check("StreamResponse", body)
    ((kind, value),) = body.items()
    if kind == "artifactUpdate":
        assert value["lastChunk"] is True
        assert not value.get("append")
        return "artifact"
    return f"{kind} {value['status']['state'].removeprefix('TASK_STATE_').lower()}"


def send_1(text: str, config: Json | None) -> Json:
    configuration: Json = {"returnImmediately": waits(text)}
    if config is not None:
        configuration["taskPushNotificationConfig"] = config
    return {"message": said(text, None) | {"role": "ROLE_USER"}, "configuration": configuration}


STORY_1 = ("task submitted", "statusUpdate working", "artifact", "statusUpdate completed")
AT = "/agents/desk"
NEW_RPC = Hooked(
    name="1.0",
    send=lambda text, config: (AT, rpc("SendMessage", send_1(text, config))),
    register=lambda task, config: (AT, rpc("CreateTaskPushNotificationConfig", {"taskId": task, **config})),
    get=lambda task, config: ("POST", AT, rpc("GetTaskPushNotificationConfig", {"taskId": task, "id": config})),
    list=lambda task: ("POST", AT, rpc("ListTaskPushNotificationConfigs", {"taskId": task})),
    delete=lambda task, config: ("POST", AT, rpc("DeleteTaskPushNotificationConfig", {"taskId": task, "id": config})),
    told=told_1,
    story=STORY_1,
    content_type="application/a2a+json",
    headers=V,
)


def below(at: str) -> dict[str, Any]:
    """The paths of configurations over HTTP+JSON."""
    return {
        "get": lambda task, config: ("GET", f"{at}/tasks/{task}/pushNotificationConfigs/{config}", None),
        "list": lambda task: ("GET", f"{at}/tasks/{task}/pushNotificationConfigs", None),
        "delete": lambda task, config: ("DELETE", f"{at}/tasks/{task}/pushNotificationConfigs/{config}", None),
    }


NEW_REST = Hooked(
    name="1.0 REST",
    send=lambda text, config: (f"{AT}/message:send", send_1(text, config)),
    register=lambda task, config: (f"{AT}/tasks/{task}/pushNotificationConfigs", config),
    **below(AT),
    told=told_1,
    story=STORY_1,
    content_type="application/a2a+json",
    headers=V,
)

# -- 0.3 and its relatives ---------------------------------------------------------------------------------------------


def told_task(body: Json) -> str:
    """The whole task."""
    assert body["kind"] == "task"
    return f"task {body['status']['state']}"


def send_03(text: str, tag: str | None, config: Json | None, *, name: str = "pushNotificationConfig") -> Json:
    configuration: Json = {"blocking": not waits(text)}
    if config is not None:
        configuration[name] = config
    return {"message": said(text, tag), "configuration": configuration}


def slash(at: str, *, key: str = "taskId", which: str = "pushNotificationConfigId") -> dict[str, Any]:
    """The methods of 0.3."""
    method = "tasks/pushNotificationConfig/"
    return {
        "register": lambda task, config: (
            at,
            rpc(f"{method}set", {"taskId": task, "pushNotificationConfig": config}),
        ),
        "get": lambda task, config: ("POST", at, rpc(f"{method}get", {key: task, which: config})),
        "list": lambda task: ("POST", at, rpc(f"{method}list", {key: task})),
        "delete": lambda task, config: ("POST", at, rpc(f"{method}delete", {key: task, which: config})),
    }


WHOLE = ("task submitted", "task working", "task completed")
OLD_RPC = Hooked(
    name="0.3",
    send=lambda text, config: (AT, rpc("message/send", send_03(text, "kind", config))),
    **slash(AT, key="id"),
    told=told_task,
    story=WHOLE,
)


def send_03_rest(text: str, config: Json | None) -> Json:
    message = {"messageId": f"m-{next(numbers)}", "role": "ROLE_USER", "content": [{"text": text}]}
    configuration: Json = {"blocking": not waits(text)}
    if config is not None:
        configuration["pushNotification"] = config
    return {"message": message, "configuration": configuration}


def register_03_rest(task: str, config: Json) -> tuple[str, Json]:
    name = f"tasks/{task}/pushNotificationConfigs/{config.get('id', task)}"
    return f"{AT}/v1/tasks/{task}/pushNotificationConfigs", {"name": name, "pushNotificationConfig": config}


OLD_REST = Hooked(
    name="0.3 REST",
    send=lambda text, config: (f"{AT}/v1/message:send", send_03_rest(text, config)),
    register=register_03_rest,
    **below(f"{AT}/v1"),
    told=told_task,
    story=WHOLE,
)


def told_beeos(body: Json) -> str:
    if body["type"] == "task_artifact":
        assert list(body)[:4] == ["type", "task_id", "context_id", "artifact"]
        return "artifact"
    assert list(body)[:5] == ["type", "task_id", "context_id", "status", "final"]
    assert (body["kind"], body["taskId"]) == ("status-update", body["task_id"])
    assert body["final"] is (body["status"]["state"] in ("completed", "failed", "canceled"))
    return f"status {body['status']['state']}"


def named_beeos(verb: str, params: Json) -> Json:
    return rpc(f"{verb}PushNotificationConfig{'s' if verb == 'List' else ''}", params)


BEEOS = Hooked(
    name="BeeOS",
    send=lambda text, config: ("/desk", rpc("SendMessage", send_03(text, "kind", config))),
    register=lambda task, config: ("/desk", named_beeos("Set", {"taskId": task, "pushNotificationConfig": config})),
    get=lambda task, config: ("POST", "/desk", named_beeos("Get", {"id": task, "pushNotificationConfigId": config})),
    list=lambda task: ("POST", "/desk", named_beeos("List", {"id": task})),
    delete=lambda task, config: (
        *("POST", "/desk"),
        named_beeos("Delete", {"id": task, "pushNotificationConfigId": config}),
    ),
    told=told_beeos,
    story=("status submitted", "status working", "artifact", "status completed"),
    waiting="status working",
    ended="status completed",
)


def told_evoai(body: Json) -> str:
    assert list(body)[:2] == ["id", "status"]
    assert next(iter(body["status"])) == "state"
    return f"task {body['status']['state']}"


def send_evoai(text: str, config: Json | None) -> Json:
    params: Json = {"message": said(text, "type"), "configuration": {"blocking": not waits(text)}}
    return params if config is None else {**params, "pushNotificationConfig": config}


EVO = "/api/v1/a2a/desk"
EVOAI = Hooked(
    name="Evo AI",
    send=lambda text, config: (EVO, rpc("message/send", send_evoai(text, config))),
    register=slash(EVO)["register"],
    get=lambda task, config: ("POST", EVO, rpc("tasks/pushNotificationConfig/get", {"taskId": task})),
    list=None,
    delete=None,
    told=told_evoai,
    story=WHOLE,
)


def told_protoagent(body: Json) -> str:
    assert list(body)[:4] == ["kind", "taskId", "contextId", "status"]
    assert body["kind"] == "status-update"
    assert body["final"] is True
    if body["status"]["state"] == "completed":
        assert (body["artifact"]["append"], body["artifact"]["lastChunk"]) == (False, True)
    return f"status {body['status']['state']}"


PROTOAGENT = Hooked(
    name="protoAgent",
    send=lambda text, config: ("/a2a", rpc("message/send", send_03(text, None, config))),
    **slash("/a2a"),
    told=told_protoagent,
    story=("status completed",),
    waiting="",
    ended="status completed",
)
PROTO_REST = Hooked(
    name="protoAgent REST",
    send=lambda text, config: (
        "/a2a",
        rpc("message/send", send_03(text, None, config, name="taskPushNotificationConfig")),
    ),
    register=lambda task, config: (f"/a2a/tasks/{task}/pushNotificationConfig", config),
    get=PROTOAGENT.get,
    list=lambda task: ("GET", f"/a2a/tasks/{task}/pushNotificationConfig", None),
    delete=PROTOAGENT.delete,
    told=told_protoagent,
    story=("status completed",),
    waiting="",
    ended="status completed",
)

ALL = (NEW_RPC, NEW_REST, OLD_RPC, OLD_REST, BEEOS, EVOAI, PROTOAGENT, PROTO_REST)
