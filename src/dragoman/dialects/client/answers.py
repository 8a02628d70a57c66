"""Reads the answers of unary operations leniently: sends, tasks, lists, webhook configurations.

Pure functions over decoded JSON, for every dialect. Invariant: a reader returns a value or raises Unfit.
"""

import re
from typing import Any
from urllib.parse import unquote

from dragoman.dialects.api import Answer
from dragoman.dialects.client import objects
from dragoman.dialects.client.card import decode_card
from dragoman.dialects.client.objects import ReadPart
from dragoman.dialects.client.scalars import Json, Unfit, items_in, members, text_in, texts_in
from dragoman.model.message import Message
from dragoman.model.operations import (
    CancelTask,
    CreatePushConfig,
    DeletePushConfig,
    GetExtendedCard,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    ListTasks,
    Operation,
    PushConfig,
    SendMessage,
)
from dragoman.model.task import Task
from dragoman.model.updates import TaskList

_NAME = re.compile(r"tasks/([^/]+)/pushNotificationConfigs/([^/]+)")
"""A configuration's name in 0.3's protobuf JSON."""

_WRAPPERS = (
    "pushNotificationConfig",
    "push_notification_config",
    "taskPushNotificationConfig",
    "task_push_notification_config",
    "config",
)


def answer(operation: Operation, value: object, read_part: ReadPart = objects.part) -> Answer:
    """Read the answer to an operation."""
    match operation:
        case SendMessage():
            return sent(value, read_part)
        case GetTask() | CancelTask():
            return task(value, read_part)
        case ListTasks():
            return task_list(value, read_part)
        case CreatePushConfig():
            return push_config(value, operation.config.task_id)
        case GetPushConfig():
            return None if value in (None, {}) else push_config(value, operation.task_id)
        case ListPushConfigs():
            return push_configs(value, operation.task_id)
        case DeletePushConfig():
            return None
        case GetExtendedCard():
            return decode_card(value)
        case _:
            raise Unfit("no answer to an operation that this dialect lacks")


def sent(value: object, read_part: ReadPart = objects.part) -> Task | Message:
    """Read the answer to a send: a task or a message, wrapped or flat."""
    told = objects.update(value, read_part)
    if isinstance(told, Task | Message):
        return told
    raise Unfit("a task or a message")


def task(value: object, read_part: ReadPart = objects.part) -> Task:
    """Read a task, wrapped or flat."""
    told = objects.update(value, read_part)
    if isinstance(told, Task):
        return told
    raise Unfit("a task")


def task_list(value: object, read_part: ReadPart = objects.part) -> TaskList:
    """Read a page of tasks: an object with `tasks`, or a bare list."""
    if isinstance(value, list):
        value = {"tasks": value}
    given = members(value, "a list of tasks")
    if not isinstance(given.get("tasks"), list) and "totalSize" not in given and given:
        raise Unfit("an object with a list of tasks")
    return TaskList(
        tasks=tuple([objects.task(each, read_part) for each in items_in(given, "tasks")]),
        next_page_token=text_in(given, "nextPageToken", "next_page_token") or "",
        total_size=_count(given, "totalSize", "total_size", "total", "count"),
    )


def push_config(value: object, task_id: str = "") -> PushConfig:
    """Read a webhook configuration, flat (1.0) or wrapped beside the id of its task (0.3)."""
    given = members(value, "a push notification configuration with a url")
    inner = next((given[name] for name in _WRAPPERS if isinstance(given.get(name), dict)), given)
    named = _NAME.fullmatch(text_in(given, "name") or "")
    url = text_in(inner, "url")
    if url is None:
        raise Unfit("a push notification configuration with a url")
    found = inner.get("authentication")
    authentication: Json = found if isinstance(found, dict) else {}
    schemes = texts_in(authentication, "schemes")
    task = text_in(given, "taskId", "task_id") or (unquote(named[1]) if named else None)
    return PushConfig(
        url=url,
        id=text_in(inner, "id") or (unquote(named[2]) if named else ""),
        task_id=task or text_in(inner, "taskId", "task_id") or task_id,
        token=text_in(inner, "token"),
        scheme=text_in(authentication, "scheme") or next(iter(schemes), None),
        credentials=text_in(authentication, "credentials"),
        secret=text_in(inner, "secret"),
        events=texts_in(inner, "events"),
    )


def push_configs(value: object, task_id: str = "") -> tuple[PushConfig, ...]:
    """Read the webhook configurations of a task: a list, or an object that holds one; no value means none."""
    if isinstance(value, dict):
        value = next((value[name] for name in _LISTS if isinstance(value.get(name), list)), value or None)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise Unfit("a list of push notification configurations")
    return tuple([push_config(each, task_id) for each in value])


_LISTS = ("configs", "pushNotificationConfigs", "push_notification_configs")


def _count(given: Json, *names: str) -> int | None:
    found: list[Any] = [given.get(name) for name in names]
    return next((each for each in found if isinstance(each, int) and not isinstance(each, bool) and each >= 0), None)
