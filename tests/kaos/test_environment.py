"""NullTaskManager, and which manager the environment asks for."""

import re

import pytest

from dragoman.config.errors import ConfigError
from dragoman.kaos import LocalTaskManager, NullTaskManager, TaskManager, task_manager_from_env


async def echo(text: str) -> str:
    return text


async def test_a_null_manager_answers_with_a_stub_that_is_completed() -> None:
    async with NullTaskManager() as manager:
        task = await manager.send_message("hi", metadata={"a": 1})
        assert isinstance(manager, TaskManager)
        assert re.fullmatch(r"null_task_[0-9a-f]{8}", task.id)
        assert (task.session_id, task.status.state, task.history) == ("null-session", "completed", ())
        assert (await manager.send_message("hi", "s1")).session_id == "s1"
        assert (await manager.send_message("hi", context_id="s2")).session_id == "s2"


async def test_a_null_manager_keeps_nothing() -> None:
    manager = NullTaskManager()
    task = await manager.send_message("hi")
    assert await manager.get_task(task.id) is None
    assert await manager.cancel_task(task.id) is None
    assert await manager.wait_for_completion(task.id) is None
    await manager.shutdown()


@pytest.mark.parametrize("value", [None, "", "local", " Local "])
def test_local_is_the_default(value: str | None) -> None:
    environ = {} if value is None else {"TASK_STORE_TYPE": value}
    assert isinstance(task_manager_from_env(echo, environ), LocalTaskManager)


def test_null_is_null() -> None:
    assert isinstance(task_manager_from_env(echo, {"TASK_STORE_TYPE": "null"}), NullTaskManager)


def test_without_an_environment_that_of_the_process_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASK_STORE_TYPE", "NULL")
    assert isinstance(task_manager_from_env(echo), NullTaskManager)


def test_another_store_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(ConfigError, match=r"TASK_STORE_TYPE = 'redis': must be local .* or null"):
        task_manager_from_env(echo, {"TASK_STORE_TYPE": "redis"})
