"""UpstreamPool: the upstreams behind one card, and which of them has a conversation.

`selection` and `agents.member_order` decide; this knows the members, how they are, and what the log says.

Invariant: a task's member is in its log before the task's message is sent to it, and a conversation's is that of its
last task, so that all replicas agree, also after a restart. Memory only saves reads: it holds what was in the log, and
of conversations that no log has, the member that answered. First tasks of one conversation that begin at once on two
replicas may have different members. The next task reads in the log which of them counts.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Sequence
from hashlib import blake2b

from msgspec import Struct

from dragoman.agents.member_order import MemberOrder
from dragoman.agents.remote.route import CONTEXTS_MAX, UpstreamRoute, is_new
from dragoman.agents.remote.selection import may_leave
from dragoman.config import AgentPool
from dragoman.engine.api import Past
from dragoman.engine.switches import ALL_SWITCHED, Switches
from dragoman.engine.upstream_notes import CONVERSATION_AWAY, UpstreamNotes, read_upstream_notes
from dragoman.model.errors import A2AError, AgentOffline
from dragoman.model.task import TaskHead
from dragoman.telemetry.job_group import JobGroup


class TaskPlacement(Struct, frozen=True):
    """Where a task goes: the route, and the member to which its conversation is `bound`, empty if to none.

    `context` is the upstream's own id of the conversation, empty if it has none that is noted.
    """

    route: UpstreamRoute
    bound: str = ""
    context: str = ""

    @property
    def note(self) -> dict[str, str]:
        """The notes for it."""
        assert self.route.member is not None
        noted = {"member": self.route.member.name}
        if self.bound:
            noted["bound"] = self.bound
        if self.context:
            noted["context"] = self.context
        return noted


class UpstreamPool:
    """The pool of the agent `name`: a route for each member of `pool`, in the same order.

    With `direct` its answers may be messages, which no log has: then a conversation has the same member each time as
    long as all members can be called. With `queues` a conversation waits for a member that cannot be called.
    """

    __slots__ = (
        "_begun",
        "_by_name",
        "_held",
        "_order",
        "_pool",
        "_queues",
        "_ranked",
        "_switches",
        "direct",
        "name",
        "routes",
        "shared_dedupe",
        "single",
    )

    def __init__(
        self, name: str, pool: AgentPool, routes: Sequence[UpstreamRoute], *, direct: bool, queues: bool
    ) -> None:
        self.name = name
        self.routes = tuple(routes)
        self.single = len(self.routes) == 1
        self.direct = direct
        self.shared_dedupe = pool.shared_dedupe
        """Whether all members recognise a message that any of them has."""
        self._queues = queues
        self._pool = pool
        self._ranked = sorted(self.routes, key=_order_of)
        self._by_name: dict[str, UpstreamRoute] = {}
        """The routes of several members by the names that tasks have noted; tasks from before have noted none."""
        for route in self.routes:
            if (member := route.member) is not None:
                self._by_name |= {member.name: route, **({"": route} if member.first else {})}
        self._order = MemberOrder(pool.strategy, pool.members)
        self._switches = Switches()
        self._held: OrderedDict[tuple[str, str], str] = OrderedDict()
        """The members of conversations that stay there."""
        self._begun: OrderedDict[tuple[str, str], str] = OrderedDict()
        """The members of conversations that no log had when they began: tasks that begin beside the first may have read
        the log before it was noted there."""

    def heed(self, switches: Switches) -> None:
        """Give no member that an operator has switched any new task from now on."""
        self._switches = switches

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the members, in order; none if there is one."""
        return () if self.single else tuple(route.member.name for route in self.routes if route.member is not None)

    @property
    def offline(self) -> bool:
        """Whether no member may be called yet, or operators have switched all."""
        if self.single:  # every send asks
            breaker = self.routes[0].health.breaker
            return breaker.opened > 0 and breaker.wait_s > 0
        return all(map(self._held_back, self.routes))

    @property
    def out_of_service(self) -> bool:
        """Whether operators have switched all members."""
        return not any(map(self._takes_tasks, self.routes))

    @property
    def state(self) -> str | None:
        """Why not all members can be called, in words for any caller; None if they can, as far as is known."""
        if self.single:
            return self.routes[0].state
        faults = [why for route in self.routes if (why := route.fault) is not None]
        if not faults:
            return None
        return f"{len(faults)} of its {len(self.routes)} upstreams: {faults[0]}"

    def refusal(self) -> A2AError:
        """The error for a send while it is offline: of the member that may be called first."""
        if self.out_of_service:
            return AgentOffline(self.name, ALL_SWITCHED)
        first = min(filter(self._takes_tasks, self.routes), key=lambda route: route.health.breaker.wait_s)
        return first.health.refusal(self.name)

    async def open(self, group: JobGroup) -> None:
        """Read all cards within a bounded time, and keep them up to date from now on."""
        await asyncio.gather(*(route.open(group) for route in self.routes))

    async def close(self) -> None:
        """Stop watching the cards, and close all connections."""
        await asyncio.gather(*(route.close() for route in self.routes))

    def find_route(self, notes: UpstreamNotes) -> UpstreamRoute | None:
        """The route to the member that has, or had, a task with these notes; None if it is in the pool no more."""
        return self.routes[0] if self.single else self._by_name.get(notes.member)

    @property
    def shown(self) -> UpstreamRoute:
        """The route to the member whose card is shown: the first in order that can be reached."""
        if self.single:
            return self.routes[0]
        faulty: UpstreamRoute | None = None
        for route in self._ranked:  # without lists, since every request asks
            if route.endpoint.shown_card is not None:
                if not route.faulty:
                    return route
                faulty = faulty or route
        return faulty or self._ranked[0]

    # -- for a task ----------------------------------------------------------------------------------------------------

    async def place_task(self, head: TaskHead, past: Past) -> TaskPlacement | None:
        """Choose the member for a new task. None: no member can be called at present.

        Raises AgentOffline if its conversation stays with a member that cannot be called.
        """
        if is_new(head):
            route = self.choose_route(head, "", ())
            return None if route is None else TaskPlacement(route)
        found = await self._find_bound(head, past)
        bound = None if found is None else self.find_route(found)
        if found is not None and bound is not None and bound.member is not None:
            waits = self._queues and self._pool.affinity == "strict"
            if not self._held_back(bound) or (waits and self._takes_tasks(bound)):
                return TaskPlacement(bound, bound.member.name, found.context)
        named = "" if found is None else found.member
        if found is not None and not may_leave(named or self.name, self._pool.affinity):
            raise AgentOffline(self.name, CONVERSATION_AWAY)
        route = self._choose_first(head) if found is None else self.choose_route(head, "", ())
        return None if route is None else TaskPlacement(route, named)

    def _choose_first(self, head: TaskHead) -> UpstreamRoute | None:
        """Choose the member for a task whose conversation is in no log: that of a task of it which begins now, too."""
        begun = self._begun.get((head.owner, head.context_id), "")
        same = self.find_route(UpstreamNotes(member=begun)) if begun else None
        if same is None or self._held_back(same) or (same.faulty and not all(route.faulty for route in self.routes)):
            same = self.choose_route(head, "", ())
        if same is not None:
            _keep_member(self._begun, head, same)
        return same

    def choose_route(self, head: TaskHead, bound: str, tried: Collection[str]) -> UpstreamRoute | None:
        """Choose a member for a message that none has, beside those that were `tried`; None if none is left.

        The conversation is `bound` to a member, unless that is empty.
        """
        if bound:
            held = self.find_route(UpstreamNotes(member=bound))
            if held is not None and bound not in tried and not self._held_back(held):
                return held
            if not may_leave(bound, self._pool.affinity):
                return None
        routes, free = self.routes, self._find_free(tried)
        well = [place for place in free if not routes[place].faulty]
        order = self._order.choose_order(well or free, self._busy)
        if not order:
            return None
        return routes[self._choose_by_context(head, order) if self.direct else order[0]]

    def _choose_by_context(self, head: TaskHead, order: Sequence[int]) -> int:
        """Choose a place by the conversation, among those of the tier that is asked first."""
        lowest = _order_of(self.routes[order[0]])
        tier = sorted(place for place in order if _order_of(self.routes[place]) == lowest)
        if self._pool.strategy == "failover":
            return tier[0]
        digest = blake2b(f"{head.owner}\0{head.context_id}".encode(), digest_size=4).digest()
        return tier[int.from_bytes(digest, "big") % len(tier)]

    def holds(self, bound: str) -> bool:
        """Whether a conversation stays with the member to which it is `bound`, if there is one, in any case."""
        return bool(bound) and not may_leave(bound, self._pool.affinity)

    def has_other(self, bound: str, tried: Collection[str]) -> bool:
        """Whether a message that none has could go to another member than those that were `tried`."""
        free = self._find_free(tried)
        if not (bound and free and self.holds(bound)):
            return bool(free)
        held = self._by_name.get(bound)
        return any(self.routes[place] is held for place in free)

    def hold(self, head: TaskHead, route: UpstreamRoute) -> None:
        """Record that a member has taken a message of the task's conversation."""
        if self.direct:
            _keep_member(self._held, head, route)
        elif (head.owner, head.context_id) in self._begun:
            _keep_member(self._begun, head, route)

    async def _find_bound(self, head: TaskHead, past: Past) -> UpstreamNotes | None:
        """The notes of the last task of the conversation that had a member; None if there is none."""
        if (name := self._held.get((head.owner, head.context_id))) is not None:
            return UpstreamNotes(member=name)
        notes = read_upstream_notes(await past.note(head))
        if not (notes.member or notes.task):
            return None
        if (route := self.find_route(notes)) is not None:
            if (head.owner, head.context_id) in self._begun:  # for a task whose read of the log began before this one
                _keep_member(self._begun, head, route)
            if self._pool.affinity == "strict":
                _keep_member(self._held, head, route)
        return notes

    def _busy(self, place: int) -> int:
        return self.routes[place].busy

    def _find_free(self, tried: Collection[str]) -> list[int]:
        """The places of the members that may be called now, beside those that were tried."""
        free, switched = list[int](), self._switches.all()
        for place, route in enumerate(self.routes):
            member, breaker = route.member, route.health.breaker
            if member is None or member.name in tried or (breaker.opened and breaker.wait_s > 0):
                continue
            if not switched or self._takes_tasks(route):
                free.append(place)
        return free

    def _held_back(self, route: UpstreamRoute) -> bool:
        breaker = route.health.breaker
        return (breaker.opened > 0 and breaker.wait_s > 0) or not self._takes_tasks(route)

    def _takes_tasks(self, route: UpstreamRoute) -> bool:
        """Whether a member is in service, as operators have it."""
        member = route.member
        return member is None or not self._switches.all() or self._switches.takes_tasks(self.name, member.name)


def _keep_member(members: OrderedDict[tuple[str, str], str], head: TaskHead, route: UpstreamRoute) -> None:
    """Note the member for the task's conversation, and forget the oldest ones."""
    if route.member is not None:
        members[head.owner, head.context_id] = route.member.name
        while len(members) > CONTEXTS_MAX:
            members.popitem(last=False)


def _order_of(route: UpstreamRoute) -> int:
    return 0 if route.member is None else route.member.order
