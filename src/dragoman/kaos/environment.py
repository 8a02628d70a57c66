"""Chooses the task manager that the environment asks for.

Invariant: only `config.task_store` knows the values of `TASK_STORE_TYPE`.
"""

import os
from collections.abc import Mapping

from dragoman.config.task_store import NULL, task_store_type
from dragoman.kaos.local import LocalTaskManager
from dragoman.kaos.manager import NullTaskManager, TaskManager
from dragoman.kaos.process import ProcessFn


def task_manager_from_env(process_fn: ProcessFn, environ: Mapping[str, str] | None = None) -> TaskManager:
    """The manager that `TASK_STORE_TYPE` names: `local` (or unset) keeps tasks in memory, `null` keeps none.

    `environ` None is the environment of the process. Raises ConfigError if the variable is anything else.
    """
    if task_store_type(os.environ if environ is None else environ) == NULL:
        return NullTaskManager()
    return LocalTaskManager(process_fn)
