"""Keys: the keys of callers, as operators list, make, limit, replace and revoke them.

Invariant: a key itself is in one answer alone, that of the operation that made it. An operator cannot give up the key
that the operation itself was asked with, or the token of a server without authentication, unless it is told to.
"""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from msgspec import UNSET
from msgspec.structs import asdict, replace

from dragoman.admin.keys import (
    BARE_ROLES,
    NAME,
    TEAMLESS_ROLES,
    IssuedKey,
    KeyBeginnings,
    KeyLine,
    KeyLines,
    KeyQuery,
    KeyRequest,
    LimitChanges,
    RevokedKey,
    RevokeRequest,
    RotateRequest,
)
from dragoman.config import agent_id_fault
from dragoman.engine.admin.access import Operator
from dragoman.engine.admin.answers import Asked
from dragoman.engine.admin.key_beginnings import read_beginnings
from dragoman.engine.key_stops import KeyStops
from dragoman.model.errors import InvalidParams, NotFound
from dragoman.model.ids import timestamp
from dragoman.model.principal import OPERATOR_PREFIX, AccessRole, KeyLimits, reach_of
from dragoman.store.api import Store
from dragoman.store.keyring import NewKey, StoredKey, key_state

Mint = Callable[[], NewKey]
"""Makes a fresh key."""


TeamReach = Mapping[str, Collection[str] | None]
"""The teams that there are, by id: the agents that their members reach at most, None for all."""

NO_TEAMS: TeamReach = MappingProxyType({})


class KeyChanges:
    """Reads and changes the keys of a store. `mint` makes fresh ones. `teams` are those that there are.

    Every operation raises InvalidParams, NotFound if there is no such key, or StoreError.
    """

    def __init__(self, store: Store, mint: Mint, stops: KeyStops, teams: TeamReach = NO_TEAMS) -> None:
        self._store = store
        self._keys = store.keys
        self._clock = store.clock
        self._mint = mint
        self._stops = stops
        self._teams = teams

    async def list(self, asked: Asked[KeyQuery]) -> KeyLines:
        """A page of keys, oldest first."""
        operator, query = asked.operator, asked.given
        now_ms = self._clock.now_ms()
        fitting = [key for key in await self._keys.all() if self._fits(key, query, now_ms)]
        begin = 0
        if query.cursor:
            begin = next((place for place, key in enumerate(fitting, 1) if key.id == query.cursor), 0)
            if not begin:
                raise InvalidParams("cursor", "comes from a list with other filters: leave it out for the first page")
        page = fitting[begin : begin + query.limit]
        return KeyLines(
            keys=tuple(_line(key, operator, now_ms) for key in page),
            total=len(fitting),
            next_cursor=page[-1].id if begin + len(page) < len(fitting) else "",
        )

    async def show(self, asked: Asked[None]) -> KeyLine:
        """One key."""
        return _line(await self._find(asked.id), asked.operator, self._clock.now_ms())

    async def began(self, asked: Asked[None]) -> KeyBeginnings:
        """Read the beginnings of a key that go on."""
        return await read_beginnings(self._store, self._stops, await self._find(asked.id))

    async def create(self, asked: Asked[KeyRequest]) -> IssuedKey:
        """Make a key."""
        operator, wanted = asked.operator, asked.given
        if operator.team and not wanted.team:
            wanted = replace(wanted, team=operator.team)
        limits = wanted.limits.apply(None)
        _check_new(wanted, limits)
        self._check_team(wanted)
        before = await self._keys.all()
        if not before and operator.principal.startswith(OPERATOR_PREFIX) and not (_operates(wanted) or wanted.force):
            raise InvalidParams(
                "role",
                "must be operator for the first key: from then on the server makes no token of its own when it starts, "
                "and its present one begins no session; or set force",
            )
        now_ms, new = self._clock.now_ms(), self._mint()
        key = StoredKey(
            id=new.id,
            name=wanted.name,
            role=wanted.role,
            agents=None if wanted.agents is None else tuple(dict.fromkeys(wanted.agents)),
            scopes=None if wanted.scopes is None else tuple(dict.fromkeys(wanted.scopes)),
            digest=new.digest,
            made_ms=now_ms,
            expires_ms=None if wanted.expires_s is None else now_ms + wanted.expires_s * 1000,
            limits=limits,
            one_person=wanted.one_person,
            team=wanted.team,
        )
        await self._keys.add(key)
        return IssuedKey(
            secret=new.text,
            key=_line(key, operator, now_ms),
            first=not before and not operator.team,
            others=tuple(each.id for each in before if each.owner == key.owner and key_state(each, now_ms) == "active"),
        )

    async def limit(self, asked: Asked[LimitChanges]) -> KeyLine:
        """Change limits of a key."""
        operator, key_id, changes = asked.operator, asked.id, asked.given
        key = await self._find(key_id)
        if all(value is UNSET for value in asdict(changes).values()):
            raise InvalidParams("", f"name what to change: {', '.join(LimitChanges.__struct_fields__)}")
        limits = changes.apply(key.limits)
        if key.role in BARE_ROLES and limits is not None:
            why = BARE_ROLES[key.role].rate
            raise InvalidParams("role", f"is {key.role}, which goes without limits, because {why}")
        if not await self._keys.limit(key_id, limits):
            raise InvalidParams("id", f"{key_id} is revoked: make another key")
        return _line(replace(key, limits=limits), operator, self._clock.now_ms())

    async def rotate(self, asked: Asked[RotateRequest]) -> IssuedKey:
        """Make a key in the place of another, for the same caller and with the same rights."""
        operator, key_id, wanted = asked.operator, asked.id, asked.given
        key = await self._find(key_id)
        now_ms, new = self._clock.now_ms(), self._mint()
        valid_ms = None if key.expires_ms is None else key.expires_ms - key.made_ms
        if wanted.expires_s is not None:
            valid_ms = wanted.expires_s * 1000
        fresh = replace(
            key,
            id=new.id,
            digest=new.digest,
            made_ms=now_ms,
            expires_ms=None if valid_ms is None else now_ms + valid_ms,
            revoked_ms=None,
        )
        if not await self._keys.replace(key_id, fresh, now_ms, now_ms + wanted.overlap_s * 1000):
            raise InvalidParams("id", f"{key_id} is {key_state(key, now_ms)}: make another key")
        return IssuedKey(
            secret=new.text,
            key=_line(fresh, operator, now_ms),
            replaced=_line(await self._find(key_id), operator, now_ms),
        )

    async def revoke(self, asked: Asked[RevokeRequest]) -> RevokedKey:
        """End a key for good, and with `stop` what it began."""
        operator, key_id, wanted = asked.operator, asked.id, asked.given
        for name in ("tasks", "dry_run"):
            if getattr(wanted, name) and not wanted.stop:
                raise InvalidParams(name, "goes with stop: set that as well")
        key, now_ms = await self._find(key_id), self._clock.now_ms()
        if wanted.dry_run:
            began = await read_beginnings(self._store, self._stops, key)
            return RevokedKey(key=_line(key, operator, now_ms), changed=False, began=began, dry_run=True)
        if key_id == operator.key and key.revoked_ms is None and not wanted.force:
            raise InvalidParams("force", f"must be set to revoke {key_id}, which this very request was sent with")
        changed = await self._keys.revoke(key_id, now_ms)
        stopped = None
        if wanted.stop:
            stopped = await read_beginnings(self._store, self._stops, key)
            await self._stops.request(key.id, key.name, operator.principal, tasks=wanted.tasks, team=key.team)
        return RevokedKey(key=_line(await self._find(key_id), operator, now_ms), changed=changed, began=stopped)

    def _check_team(self, wanted: KeyRequest) -> None:
        """Raises InvalidParams for a key of a team that there is not, or that keys of its role do not go with."""
        if wanted.team and wanted.team not in self._teams:
            have = f"there are {', '.join(self._teams)}" if self._teams else "there are none"
            raise InvalidParams(
                "team", f"no [[teams]] in the configuration has the id {wanted.team[:100]!r}, {have}: add the table"
            )
        if wanted.team and wanted.role in TEAMLESS_ROLES:
            raise InvalidParams("team", f"is not for a key of the role {wanted.role}: {TEAMLESS_ROLES[wanted.role]}")

    def _fits(self, key: StoredKey, query: KeyQuery, now_ms: int) -> bool:
        return (
            query.name in (None, key.name)
            and query.role in (None, key.role)
            and query.team in (None, key.team)
            and query.state in (None, key_state(key, now_ms))
            and (query.agent is None or self._reaches(key, query.agent))
        )

    def _reaches(self, key: StoredKey, agent: str) -> bool:
        """Whether a caller with the key may use the agent. A key of a team that is not there any more reaches none."""
        own = reach_of(key.role, key.agents)
        within = self._teams.get(key.team, ()) if key.team else None
        return all(reach is None or agent in reach for reach in (own, within))

    async def _find(self, key_id: str) -> StoredKey:
        key = await self._keys.find(key_id)
        if key is None:
            raise NotFound(f"there is no key {key_id[:100]!r}: the list of keys shows their ids")
        return key


def _check_new(wanted: KeyRequest, limits: KeyLimits | None) -> None:
    """Raises InvalidParams for a key that cannot be made."""
    if not NAME.fullmatch(wanted.name):
        raise InvalidParams("name", "must be 1 to 64 letters, digits or . _ @ + - and begin with a letter or a digit")
    for place, agent in enumerate(wanted.agents or ()):
        if fault := agent_id_fault(agent):
            raise InvalidParams(f"agents[{place}]", fault)
    if wanted.agents == () or wanted.scopes == ():
        raise InvalidParams("agents" if wanted.agents == () else "scopes", "must name at least one, or be null for all")
    bare = BARE_ROLES.get(wanted.role)
    if wanted.one_person and wanted.role is AccessRole.MONITOR:
        raise InvalidParams("one_person", f"is not for a {wanted.role}: it reaches no agent, leave it out")
    if bare is not None:
        if wanted.agents or wanted.scopes:
            raise InvalidParams("role", f"{wanted.role} goes without agents and scopes, because {bare.reach}")
        if limits is not None:
            raise InvalidParams("role", f"{wanted.role} goes without limits, because {bare.rate}")


def _operates(wanted: KeyRequest) -> bool:
    """Whether it would be a key of an operator of the whole server."""
    return wanted.role is AccessRole.OPERATOR and not wanted.team


def _line(key: StoredKey, operator: Operator, now_ms: int) -> KeyLine:
    return KeyLine(
        id=key.id,
        name=key.name,
        role=key.role,
        agents=key.agents,
        scopes=key.scopes,
        limits=key.limits,
        made=timestamp(key.made_ms),
        expires=None if key.expires_ms is None else timestamp(key.expires_ms),
        revoked=None if key.revoked_ms is None else timestamp(key.revoked_ms),
        state=key_state(key, now_ms),
        in_use=bool(operator.key) and key.id == operator.key,
        one_person=key.one_person,
        team=key.team or UNSET,
    )
