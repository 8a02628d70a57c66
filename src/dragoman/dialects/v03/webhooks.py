"""Decodes webhook configurations of 0.3 and its relatives, alone and within a send.

Invariant: a configuration may be wrapped or bare, under any of its names; one that is present is never ignored.
"""

from msgspec.structs import replace

from dragoman.dialects import push
from dragoman.dialects.json_fields import Violations, refuse
from dragoman.dialects.v03.fields import Fields
from dragoman.model.errors import InvalidParams
from dragoman.model.operations import CreatePushConfig, DeletePushConfig, GetPushConfig, PushConfig

WRAPPERS = (
    "pushNotificationConfig",
    "push_notification_config",
    "taskPushNotificationConfig",
    "task_push_notification_config",
)
"""Names of a wrapped configuration: that of 0.3, that of 1.0, and both in the proto's spelling."""

INLINE = (*WRAPPERS, "pushNotification", "push_notification")
"""The names within `configuration`, where 0.3's protobuf JSON uses the last."""


def push_config(fields: Fields, task_id: str, secret_min: int = push.SECRET_MIN) -> PushConfig:
    """Decode a PushNotificationConfig. The first of several authentication schemes counts: 1.0 has only one."""
    authentication = fields.object("authentication") or Fields({}, fields.at("authentication"))
    schemes = authentication.texts("schemes")
    config = PushConfig(
        url=fields.required_text("url"),
        id=fields.text("id") or "",
        task_id=task_id,
        token=fields.text("token") or None,
        scheme=(schemes[0] if schemes else authentication.text("scheme")) or None,
        credentials=authentication.text("credentials") or None,
        secret=fields.text("secret"),
    )
    return checked(config, fields, secret_min=secret_min)


def checked(
    config: PushConfig, fields: Fields, authentication: str = "authentication", *, secret_min: int
) -> PushConfig:
    """Return the configuration with the events in `fields`. Raises InvalidParams if a value in it cannot be sent."""
    violations: Violations = []
    push.check(config, fields.at(""), violations, authentication=authentication, secret_min=secret_min)
    events = push.events(fields.texts("events"), fields.at("events"), violations)
    refuse(violations)
    return replace(config, events=events)


def inline(*where: Fields | None) -> PushConfig | None:
    """Return the configuration that comes with a message, from the first place that has one."""
    for fields in where:
        given = None if fields is None else fields.object(*INLINE)
        if given is not None:
            return push_config(unwrapped(given), "")
    return None


def unwrapped(fields: Fields) -> Fields:
    """Return the wrapped configuration, or `fields` themselves if it is bare."""
    given = None if fields.has("url") else fields.object(*WRAPPERS, "config")
    return fields if given is None else _with_secret(given, fields)


def create(fields: Fields) -> CreatePushConfig:
    """Decode `set`: the configuration is wrapped, or bare beside the task's id."""
    given = fields.object(*WRAPPERS, "config")
    task_id = fields.required_text("taskId", "task_id", "id")
    if given is None and not fields.has("url"):
        raise InvalidParams(fields.at("pushNotificationConfig"), "is required")
    if given is None:
        given = fields if fields.has("taskId", "task_id") else without(fields, "id")
    else:
        given = _with_secret(given, fields)
    return CreatePushConfig(config=push_config(given, task_id))


def _with_secret(given: Fields, around: Fields) -> Fields:
    """Return a configuration with the secret that is beside it, if it has none of its own."""
    if given.has("secret") or not around.has("secret"):
        return given
    return Fields({**given.members, "secret": around.find("secret")}, given.path)


def without(fields: Fields, *names: str) -> Fields:
    """Return the fields except the named ones."""
    return Fields({name: value for name, value in fields.members.items() if name not in names}, fields.path)


def get(fields: Fields) -> GetPushConfig:
    """Decode `get`; the configuration's id is optional."""
    task, config = _ids(fields)
    return GetPushConfig(task_id=task, id=config)


def delete(fields: Fields) -> DeletePushConfig:
    """Decode `delete`; the configuration's id is required."""
    operation = delete_any(fields)
    if not operation.id:
        raise InvalidParams(fields.at("pushNotificationConfigId"), "is required")
    return operation


def delete_any(fields: Fields) -> DeletePushConfig:
    """Decode `delete` where a task has only one configuration; its id is optional."""
    task, config = _ids(fields)
    return DeletePushConfig(task_id=task, id=config)


def _ids(fields: Fields) -> tuple[str, str]:
    """Return the ids of task and configuration: `id` + `pushNotificationConfigId` in 0.3, `taskId` + `id` elsewhere."""
    config = fields.text("pushNotificationConfigId", "push_notification_config_id")
    task = fields.text("taskId", "task_id")
    if task and config is None:
        return task, fields.text("id") or ""
    return task or fields.required_text("id"), config or ""
