"""`TASK_STORE_TYPE`, the variable that tells KAOS where to keep tasks.

Invariant: no other module reads it, so that the server with KAOS's profile and `dragoman.kaos` agree on its meaning.
"""

from collections.abc import Mapping

from dragoman.config.errors import ConfigError

TASK_STORE_TYPE = "TASK_STORE_TYPE"

LOCAL = "local"
"""Tasks are kept in memory: the store `memory:`. KAOS's default."""

NULL = "null"
"""No tasks: a card shows no A2A capabilities."""


def task_store_type(environ: Mapping[str, str]) -> str:
    """`local` or `null`; unset or empty is `local`. Raises ConfigError if it is anything else."""
    given = environ.get(TASK_STORE_TYPE, "").strip()
    kind = given.lower() or LOCAL
    if kind not in (LOCAL, NULL):
        allowed = "must be local (tasks in memory) or null (no tasks); for tasks that last, set store = sqlite:///path"
        raise ConfigError("environment", TASK_STORE_TYPE, given, allowed)
    return kind
