"""UpstreamAgent: an agent of another server, offered behind a card of this one.

Invariant: tasks are ours, whatever happens to the upstream. A task is written before the upstream hears of it (with
`direct`: when it turns out to be one), kept when the upstream is gone, and resumed where the upstream left it.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from dragoman.agents.configured_credentials import make_no_credentials
from dragoman.agents.remote.card import is_dragoman, profile_of, untold_text
from dragoman.agents.remote.failures import FIXES, LATE
from dragoman.agents.remote.route import UpstreamRoute
from dragoman.agents.remote.task import STOP_S, UpstreamTask
from dragoman.client.credentials import CredentialsFactory
from dragoman.config import Upstream
from dragoman.engine.api import DIRECT_WAIT_S, CheckResult, DirectMode, Run, Runner, Traits
from dragoman.engine.upstream_notes import read_upstream_notes
from dragoman.model.card import Profile
from dragoman.model.errors import A2AError
from dragoman.model.task import Record, TaskStatus
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger("dragoman.upstreams")

CHECK_S = 8.0
"""How long a check may take, in seconds."""


class UpstreamAgent(Runner):
    """An agent of another server, which the table `upstream` describes.

    Until the upstream's card has been read, the card is `profile`; then it is the upstream's, changed by `adjust`.
    With `queues`, tasks are accepted while the upstream does not answer, and stay `submitted` until it has taken them;
    without, they are refused. `make_credentials` creates the credentials; if it forwards those of its callers, they are
    kept in memory only. `direct` and `direct_wait_s` are those of `Traits`.
    """

    def __init__(
        self,
        profile: Profile,
        upstream: Upstream,
        *,
        adjust: Callable[[Profile], Profile] = lambda profile: profile,
        make_credentials: CredentialsFactory = make_no_credentials,
        queues: bool = False,
        clock: Callable[[], float] = time.monotonic,
        direct: DirectMode = False,
        direct_wait_s: float = DIRECT_WAIT_S,
    ) -> None:
        self.traits = Traits(
            kind="upstream",
            forwards=upstream.forwards,
            direct=direct,
            direct_wait_s=direct_wait_s,
            restartable=True,
            later_run="resumes",
            waits=queues,
            speaks_soon=True,
            may_refuse=not queues,
        )
        self._profile = self._ours = adjust(profile)
        self.route = UpstreamRoute(profile.id, upstream, make_credentials, clock)
        self._adjust = adjust
        self._card: dict[str, Any] | None = None

    @property
    def profile(self) -> Profile:
        """The agent's description: that of the upstream's card, once it was read, with the table's fields on top."""
        card = self.route.endpoint.shown_card
        if card is not None and card is not self._card:
            self._card = card
            self._profile = self._adjust(profile_of(card, self._ours))
        return self._profile

    @profile.setter
    def profile(self, profile: Profile) -> None:
        """Show this until the upstream's card is read again."""
        self._profile = profile

    @property
    def offline(self) -> bool:
        """Whether sends are refused, because the upstream does not answer and no call may be made yet."""
        return not self.traits.waits and self.route.health.breaker.wait_s > 0

    @property
    def degraded(self) -> str | None:
        """Why it cannot be called; None if it can, as far as is known."""
        return self.route.state

    @property
    def dragoman(self) -> bool | None:
        """Whether the upstream's card is that of a Dragoman; None if no card was read."""
        card = self.route.endpoint.shown_card
        return None if card is None else is_dragoman(card)

    def refusal(self) -> A2AError:
        """The error for a send while it is offline."""
        return self.route.health.breaker.refusal(self.profile.id)

    async def open(self, group: JobGroup) -> None:
        """Read the upstream's card within a bounded time, and keep it up to date as long as `group` lasts."""
        await self.route.open(group)

    async def check(self) -> AsyncIterator[CheckResult]:
        """Check the card, how the agent would be called, and whether it answers. No message is sent."""
        try:
            async with asyncio.timeout(CHECK_S):
                fault, words = await self.route.endpoint.probe()
        except TimeoutError:
            fault, words = LATE, f"no answer within {CHECK_S:g} s"
        finally:
            await self.route.close()
        if fault:
            yield CheckResult(False, f"{fault}: {words}" if words else fault, FIXES.get(fault, ""))
            return
        if (card := self.route.endpoint.shown_card) is None:
            yield CheckResult(True, "it has no card: our card says what the configuration says")
            yield CheckResult(True, f"it is spoken to {words}")
            yield CheckResult(True, "it answers")
            return
        skills = ", ".join(skill.id for skill in self.profile.skills)
        root = ", the agent at the root of the host that `run` names" if self.route.access.at_root else ""
        yield CheckResult(
            True, f"its card was read: {self.profile.name}{root}" + (f", with the skills {skills}" if skills else "")
        )
        yield CheckResult(True, f"it is spoken to {words}")
        if self.route.access.forwards:
            yield CheckResult(True, "callers' credentials are passed on to it: whether it accepts them was not tried")
        else:
            yield CheckResult(True, "it answers, and lets this server in")
        if (modes := untold_text(card)) and "text/plain" in self.profile.input_modes:
            yield CheckResult(
                True,
                f"its card says that it takes {', '.join(modes)} only: text is sent to it nevertheless, "
                "and our card has text/plain, too",
            )

    async def ask_status(self, task_id: str) -> TaskStatus | str:
        """Ask the upstream for the status of its task. A text says, to the operator, why there is no answer.

        The call is made with the agent's own credentials, also while calls of runs are held back.
        """
        if self.traits.forwards:
            return "it is called with its callers' credentials, which are not kept"
        try:
            async with asyncio.timeout(CHECK_S):
                return await self.route.read_status(task_id)
        except TimeoutError:
            return f"no answer within {CHECK_S:g} s"

    async def close(self) -> None:
        """Close the connection, and stop watching the card."""
        await self.route.close()

    async def run(self, run: Run) -> None:
        """Have the upstream carry out the task."""
        await UpstreamTask(run, self.route, queues=self.traits.waits).carry_out()

    def stopped(self, record: Record) -> None:
        """Cancel the upstream's task, because ours was canceled while nobody ran it."""
        if task_id := read_upstream_notes(record.note or {}).task:
            self.route.run_beside(self._stop(task_id))

    async def _stop(self, task_id: str) -> None:
        try:
            async with asyncio.timeout(STOP_S):
                await self.route.cancel_task(task_id)
        except TimeoutError:
            log.info("upstream %s: its task %s was not canceled in time", self.route.name, task_id)
