"""UpstreamAgent: an agent of another server, offered behind a card of this one.

Invariant: tasks are ours, whatever happens to the upstream. A task is written before the upstream hears of it (with
`direct`: when it turns out to be one), kept when the upstream is gone, and resumed where the upstream left it.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from dragoman.agents.configured_credentials import make_no_credentials
from dragoman.agents.exchange_check import check_exchange
from dragoman.agents.remote.begun_send import begin_send
from dragoman.agents.remote.canceled_send import STOP_S
from dragoman.agents.remote.card import card_differences, profile_of, untold_text
from dragoman.agents.remote.failures import FIXES, LATE
from dragoman.agents.remote.health import Wakes
from dragoman.agents.remote.pool import UpstreamPool
from dragoman.agents.remote.route import RouteMember, UpstreamRoute
from dragoman.agents.remote.task import UpstreamTask
from dragoman.client.credentials import CredentialsFactory
from dragoman.config import AgentPool, AgentPoolMember, Upstream
from dragoman.engine.api import DIRECT_WAIT_S, CheckResult, DirectMode, Past, Run, Runner, Traits
from dragoman.engine.switches import Switches
from dragoman.engine.upstream_notes import UpstreamNotes, read_upstream_notes
from dragoman.model.card import Profile
from dragoman.model.errors import A2AError
from dragoman.model.task import Record, TaskHead, TaskStatus
from dragoman.net.egress import OPERATORS_RULES, EgressRules
from dragoman.telemetry.job_group import JobGroup

log = logging.getLogger("dragoman.upstreams")

CHECK_S = 8.0
"""How long a check of one upstream may take, in seconds."""

MEMBERS_DIFFER = "callers read one card for all members: have them offer the same, or make an agent of their own of it"


class UpstreamAgent(Runner):
    """An agent of another server, which the table `upstream` describes.

    Until the upstream's card has been read, the card is `profile`; then it is the upstream's, changed by `adjust`.
    With `queues`, tasks are accepted while the upstream does not answer, and stay `submitted` until it has taken them;
    without, they are refused. `make_credentials` creates the credentials; those of its callers, which are forwarded or
    exchanged, are kept in memory only. `direct` and `direct_wait_s` are those of `Traits`. Connections are made under
    the `rules`.

    With a `pool` of several members it has all of them for upstreams, and `upstream` is the first. Then
    `make_member_credentials` has what creates the credentials of each, in the same order.
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
        rules: EgressRules = OPERATORS_RULES,
        pool: AgentPool | None = None,
        make_member_credentials: Sequence[CredentialsFactory] = (),
        chance: Callable[[], float] = random.random,
    ) -> None:
        upstreams = (upstream,) if pool is None else tuple(each.upstream for each in pool.members if each.upstream)
        self.traits = Traits(
            kind="upstream",
            forwards=any(each.forwards for each in upstreams),
            exchanges=any(each.exchanges for each in upstreams),
            begins_noted=len(upstreams) > 1,
            direct=direct,
            direct_wait_s=direct_wait_s,
            restartable=True,
            later_run="resumes",
            waits=queues,
            speaks_soon=True,
            may_refuse=not queues,
        )
        self._profile = self._ours = adjust(profile)
        if pool is None or len(upstreams) == 1:
            makes = make_member_credentials[0] if make_member_credentials else make_credentials
            routes = [UpstreamRoute(profile.id, upstream, makes, clock, rules)]
        else:
            wakes = Wakes()
            routes = [
                UpstreamRoute(profile.id, each, makes, clock, rules, _route_member(member, pool, chance, wakes))
                for member, each, makes in zip(pool.members, upstreams, make_member_credentials, strict=True)
            ]
        self.pool = UpstreamPool(profile.id, pool or AgentPool(members=()), routes, direct=bool(direct), queues=queues)
        self._adjust = adjust
        self._card: dict[str, Any] | None = None

    @property
    def route(self) -> UpstreamRoute:
        """The route to the upstream whose card is shown."""
        return self.pool.shown

    @property
    def profile(self) -> Profile:
        """The agent's description: that of the upstream's card, once it was read, with the table's fields on top."""
        pool = self.pool  # every send asks, more than once
        card = (pool.routes[0] if pool.single else pool.shown).endpoint.shown_card
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
        """Whether sends are refused, because no upstream answers and no call may be made yet, or all are switched."""
        return self.pool.out_of_service if self.traits.waits else self.pool.offline

    @property
    def members(self) -> tuple[str, ...]:
        """The names of its upstreams; none if it has one."""
        return self.pool.members

    def heed(self, switches: Switches) -> None:
        """Give no upstream that operators have switched any new task from now on."""
        self.pool.heed(switches)

    @property
    def degraded(self) -> str | None:
        """Why it cannot be called; None if it can, as far as is known."""
        return self.pool.state

    def refusal(self) -> A2AError:
        """The error for a send while it is offline."""
        return self.pool.refusal()

    async def begin_note(self, head: TaskHead, past: Past) -> Mapping[str, str]:
        """The member of the pool that a new task goes to. Raises AgentOffline."""
        place = await self.pool.place_task(head, past)
        return {} if place is None else place.note

    async def open(self, group: JobGroup) -> None:
        """Read the upstream's card within a bounded time, and keep it up to date as long as `group` lasts."""
        await self.pool.open(group)

    async def check(self) -> AsyncIterator[CheckResult]:
        """Check each upstream: its card, how it would be called, and whether it answers. No message is sent.

        The findings of a pool name the member, and say where its card differs from that of the first.
        """
        try:
            for route in self.pool.routes:
                async for finding in self._check_route(route):
                    named = "" if route.member is None else f"{route.member.name}: "
                    yield replace(finding, what=f"{named}{finding.what}")
        finally:
            await self.pool.close()
        first, *others = self.pool.routes
        for route in others:
            assert route.member is not None  # there are several
            assert first.member is not None
            for difference in card_differences(first.endpoint.shown_card, route.endpoint.shown_card):
                yield CheckResult(
                    difference.harmless,
                    f"{route.member.name}: {difference.what} than {first.member.name}",
                    "" if difference.harmless else MEMBERS_DIFFER,
                )

    async def _check_route(self, route: UpstreamRoute) -> AsyncIterator[CheckResult]:
        exchanges: list[CheckResult] = []
        try:
            async with asyncio.timeout(CHECK_S):
                fault, words = await route.endpoint.probe()
                if (exchange := route.access.exchange) is not None:
                    exchanges = [finding async for finding in check_exchange(exchange)]
        except TimeoutError:
            fault, words = LATE, f"no answer within {CHECK_S:g} s"
        for finding in exchanges:
            yield finding
        if fault:
            yield CheckResult(False, f"{fault}: {words}" if words else fault, FIXES.get(fault, ""))
            return
        if (card := route.endpoint.shown_card) is None:
            yield CheckResult(True, "it has no card: our card says what the configuration says")
            yield CheckResult(True, f"it is spoken to {words}")
            yield CheckResult(True, "it answers")
            return
        profile = self._adjust(profile_of(card, self._ours))
        skills = ", ".join(skill.id for skill in profile.skills)
        root = ", the agent at the root of the host that `run` names" if route.access.at_root else ""
        yield CheckResult(
            True, f"its card was read: {profile.name}{root}" + (f", with the skills {skills}" if skills else "")
        )
        yield CheckResult(True, f"it is spoken to {words}")
        if route.access.upstream.exchanges:
            yield CheckResult(True, "it is called with tokens for its callers: whether it accepts them was not tried")
        elif route.access.for_callers:
            yield CheckResult(True, "callers' credentials are passed on to it: whether it accepts them was not tried")
        else:
            yield CheckResult(True, "it answers, and lets this server in")
        if (modes := untold_text(card)) and "text/plain" in profile.input_modes:
            yield CheckResult(
                True,
                f"its card says that it takes {', '.join(modes)} only: text is sent to it nevertheless, "
                "and our card has text/plain, too",
            )

    async def ask_status(self, notes: UpstreamNotes) -> TaskStatus | str:
        """Ask the upstream for the status of its task, by the notes of ours. A text says, to the operator, why not.

        The call is made with the agent's own credentials, also while calls of runs are held back.
        """
        route = self.pool.find_route(notes)
        if route is None:
            return f"the member of the pool that has the task, {notes.member}, is not in the configuration any more"
        if route.access.for_callers:
            return "it is called with its callers' credentials, which are not kept"
        try:
            async with asyncio.timeout(CHECK_S):
                return await route.read_status(notes.task)
        except TimeoutError:
            return f"no answer within {CHECK_S:g} s"

    async def close(self) -> None:
        """Close the connection, and stop watching the card."""
        await self.pool.close()

    async def run(self, run: Run) -> None:
        """Have the upstream carry out the task."""
        traits = self.traits
        begun = None if traits.headers else begin_send(run, self.pool)
        if begun is None or not await begun.pass_on():
            headers = bool(traits.headers)
            await UpstreamTask(run, self.pool, queues=traits.waits, headers=headers, begun=begun).carry_out()

    def stopped(self, record: Record) -> None:
        """Cancel the upstream's task, because ours was canceled while nobody ran it."""
        notes = read_upstream_notes(record.note or {})
        if notes.task and (route := self.pool.find_route(notes)) is not None:
            route.run_beside(_stop(route, notes.task))


async def _stop(route: UpstreamRoute, task_id: str) -> None:
    try:
        async with asyncio.timeout(STOP_S):
            await route.cancel_task(task_id)
    except TimeoutError:
        log.info("upstream %s: its task %s was not canceled in time", route.label, task_id)


def _route_member(member: AgentPoolMember, pool: AgentPool, chance: Callable[[], float], wakes: Wakes) -> RouteMember:
    return RouteMember(member.name, member.order, member.weight, member is pool.members[0], pool.probe_s, chance, wakes)
