"""Chooses the task manager that the environment asks for.

Invariant: `TASK_STORE_TYPE` means the same here and for a server with KAOS's profile.
"""

import os
from collections.abc import Mapping

from dragoman.config.load import translate
from dragoman.dialects.kaos import TASK_STORE_TYPE
from dragoman.kaos.local import LocalTaskManager
from dragoman.kaos.manager import NullTaskManager, TaskManager
from dragoman.kaos.process import ProcessFn


def task_manager_from_env(process_fn: ProcessFn, environ: Mapping[str, str] | None = None) -> TaskManager:
    """The manager that `TASK_STORE_TYPE` names: `local` (or unset) keeps tasks in memory, `null` keeps none.

    `environ` None is the environment of the process. Raises ConfigError if the variable is anything else.
    """
    given = (os.environ if environ is None else environ).get("TASK_STORE_TYPE", "").strip() or "local"
    keeps = translate("TASK_STORE_TYPE", TASK_STORE_TYPE, given)
    return LocalTaskManager(process_fn) if keeps == "true" else NullTaskManager()
