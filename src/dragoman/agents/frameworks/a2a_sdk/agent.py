"""ExecutorAgent: an executor of the official SDK as an agent of this server.

Invariant: the executor is one object for all tasks, as on the SDK's own server, and is called once at a time for each.
"""

from collections.abc import AsyncIterator
from typing import Any

from msgspec.structs import replace

from dragoman.agents.frameworks.a2a_sdk.executor_run import DroppedEvents, ExecutorRun, call_cancel
from dragoman.agents.frameworks.a2a_sdk.sdk import Sdk
from dragoman.engine.api import CheckResult, DirectMode, Run, Runner, Traits
from dragoman.model.card import Profile
from dragoman.model.task import Record
from dragoman.telemetry.job_group import JobGroup

DIRECT_WAIT_S = 30.0
"""How long an executor may work on a message before its first event; then there is a task even without one."""


class ExecutorAgent(Runner):
    """An executor behind a card.

    The first event decides between a message and a task. A run that a crash interrupted is not repeated.
    """

    def __init__(self, executor: Any, sdk: Sdk, profile: Profile) -> None:
        self.profile = profile
        self.traits = Traits(direct="auto", direct_wait_s=DIRECT_WAIT_S, leasable=True)
        self._executor = executor
        self._sdk = sdk
        self._group: JobGroup | None = None

    def answer_directly(self, direct: DirectMode, wait_s: float) -> None:
        """Set `direct` and `direct_wait_s` anew."""
        self.traits = replace(self.traits, direct=direct, direct_wait_s=wait_s)

    async def run(self, run: Run) -> None:
        """Do the task with the executor."""
        await ExecutorRun(self._executor, self._sdk, run).carry_out()

    def stopped(self, record: Record) -> None:
        """Call the executor's `cancel` for a task that was canceled while it waited for its caller."""
        if self._group is not None:
            self._group.create_task(call_cancel(self._executor, self._sdk, record, DroppedEvents()))

    async def open(self, group: JobGroup) -> None:
        """Take the group in which `cancel` is called beside the tasks."""
        self._group = group

    async def close(self) -> None:
        """Call `cancel` no more."""
        self._group = None

    async def check(self) -> AsyncIterator[CheckResult]:
        """Report the executor's class and the skills on its card."""
        skills = ", ".join(skill.id for skill in self.profile.skills)
        yield CheckResult(True, f"it is the executor {type(self._executor).__name__}; its skills are {skills}")
