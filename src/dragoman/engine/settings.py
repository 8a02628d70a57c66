"""The settings of the engine, as a value.

Invariant: a field has the name, the meaning and the unit of the one in `config.Config`.
"""

from msgspec import Struct


class EngineSettings(Struct, frozen=True, kw_only=True):
    """The operator's settings for the engine.

    `suspend_max_s` is how long a suspended agent stays in memory while its task waits for the caller; after that an
    answer starts the agent again with the recorded answers. `dedupe_s` is how long a repeated call is recognised.
    `retry_s` is the pause before a write that the store could not take is tried again. `max_open_tasks` and
    `max_daily_tasks` apply to each principal; 0 sets no limit. `max_page_bytes` bounds how much is read for one page of
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
