"""Which task manager the environment asks for.

Invariant: what `TASK_STORE_TYPE` may be is said in `config.task_store` only.
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
