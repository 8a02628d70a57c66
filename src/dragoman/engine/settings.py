"""The settings of the engine, as a value.

Invariant: what `config.Config` has by the same name is the same, in the same unit.
"""

from msgspec import Struct


class EngineSettings(Struct, frozen=True, kw_only=True):
    """What the operator may set of the engine.

    `suspend_max_s`: how long a suspended agent stays in memory while its task waits for the caller; after that the
    answer runs it again with the recorded answers. `dedupe_s`: for how long a repeated call is the same call.
    `retry_s`: how long the engine waits before it writes again what the store could not take. `max_open_tasks` and
    `max_daily_tasks` are those of one principal; 0: no limit. `max_page_bytes` bounds what is read for one page of
    ListTasks.
    """

    blocking_timeout_s: float = 300.0
    cancel_grace_s: float = 5.0
    keepalive_s: float = 15.0
    suspend_max_s: float = 3600.0
    dedupe_s: float = 600.0
    retry_s: float = 0.5
    max_open_tasks: int = 0
    max_daily_tasks: int = 0
    max_page_bytes: int = 4 * 1024 * 1024
