"""`run = [ … ]` and `[[agents.pool]]`: several upstreams, or several endpoints of a model, behind one card.

    run = "a2a:https://a"                      one member: a pool of one
    run = ["a2a:https://a", "a2a:https://b"]   members that differ in their URLs alone
    [[agents.pool]]                            members with keys of their own, which go before those of the agent

Invariant: the members of a pool are of one kind, and no two have the same name. The name of a member does not depend on
the other members nor on their order, so that tasks find their upstream again after the file has changed; only a URL
that stands there twice is numbered.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import asdict, replace

from dragoman.config.errors import ConfigError, check_keys, convert_table
from dragoman.config.models import OPENAI, Model, model_entry
from dragoman.config.prices import Price, Prices, read_price
from dragoman.config.upstreams import A2A, Seconds, Upstream, UpstreamCredentials, upstream_entry

MEMBERS_MAX = 100
"""Most members of one pool."""

MEMBER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
"""The name of a member, which has the form of an agent's id: both stand in paths of the admin API."""

NAME_CHARS = 64
_DIGEST_CHARS = 8

Strategy = Literal["failover", "round_robin", "least_busy", "weighted"]
"""How the member for a new conversation is chosen among those of the lowest `order` that can be called."""

Affinity = Literal["strict", "prefer"]
"""Whether a conversation stays with its upstream in any case, or a new task of it may go elsewhere."""

PROBE_S = 30.0


class AgentPoolMember(msgspec.Struct, frozen=True, kw_only=True):
    """An upstream of a pool. One of `upstream` and `model` holds the keys of the agent with its own on top.

    Members of a lower `order` are called first. `weight` is its share among those of one order. `price` is the price of
    what is used of it, None if that of the agent or its model holds.
    """

    name: str
    order: int
    weight: int = 1
    price: Price | None = None
    upstream: Upstream | None = None
    model: Model | None = None

    @property
    def url(self) -> str:
        """Its URL, as the file has it."""
        return self._keys.url

    @property
    def credentials(self) -> UpstreamCredentials | None:
        """The credentials for it."""
        return self._keys.credentials

    @property
    def _keys(self) -> Upstream | Model:
        keys = self.upstream or self.model
        assert keys is not None  # `read_pool` sets one of them
        return keys


class _PoolKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of an agent's table about its pool: see `AgentPool`."""

    strategy: Strategy = "failover"
    affinity: Affinity = "strict"
    shared_dedupe: bool = False
    probe_s: Seconds = PROBE_S
    move_models: bool = True


class AgentPool(_PoolKeys, frozen=True, kw_only=True):
    """The members behind one card, in the order of the file, and how one of them is chosen.

    With `shared_dedupe` all members recognise a message that any of them has. The card of each is read every `probe_s`.
    With `move_models` a call of a model may move to the next endpoint. `written`: the file has a list or tables, and
    not one URL.
    """

    members: tuple[AgentPoolMember, ...]
    written: bool = False


class _PoolKind(msgspec.Struct, frozen=True):
    """A kind of agent that may have several members: its keys for the pool, and those that a member may have."""

    field: Literal["upstream", "model"]
    read: Callable[[str, str, Mapping[str, Any]], Any]
    pool_keys: tuple[str, ...]
    own_keys: tuple[str, ...]


_KINDS: Mapping[str, _PoolKind] = {
    A2A: _PoolKind(
        "upstream",
        upstream_entry,
        ("strategy", "affinity", "shared_dedupe", "probe_s"),
        ("credentials", "card", "card_keys", "dialect", "binding", "grpc_tls", "origins", "dedupes", "double_base64"),
    ),
    OPENAI: _PoolKind("model", model_entry, ("strategy", "move_models", "probe_s"), ("credentials", "model")),
}

POOL_KEYS = tuple(dict.fromkeys(key for kind in _KINDS.values() for key in kind.pool_keys))
"""The keys of an agent's table about its pool, beside `pool` itself."""


def pool_keys(prefix: str) -> tuple[str, ...]:
    """The keys that an agent's table may have about the pool, by the prefix of its `run`."""
    return ("pool", *_KINDS[prefix].pool_keys)


class _MemberKeys(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    name: str = ""
    weight: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    order: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None = None


MEMBER_KEYS = (
    *_MemberKeys.__struct_fields__,
    "price",
    *dict.fromkeys(key for kind in _KINDS.values() for key in kind.own_keys),
)
"""The keys of a member's table, of any kind."""

_ALLOWED = {
    "strategy": "must be failover, round_robin, least_busy or weighted",
    "affinity": "must be strict or prefer",
    "shared_dedupe": "must be true or false",
    "probe_s": "must be a number of seconds from 0.1 to 86400",
    "move_models": "must be true or false",
    "url": "must be the URL of a member",
    "name": "must be 1 to 64 letters, digits, '.', '_' or '-', and begin with a letter or digit",
    "weight": "must be a whole number from 1 to 1000000",
    "order": "must be a whole number from 0 to 1000000",
}


class _Given(msgspec.Struct, frozen=True):
    """A member as the file has it: its `run`, the key of that, the path and the keys of its table."""

    run: str
    key: str
    path: str
    keys: Mapping[str, Any] = {}


def describe_run(source: str, path: str, table: Mapping[str, Any]) -> str | None:
    """The `run` of an agent's table as one text: those of all members, one after the other. None if it has none.

    Raises ConfigError for members of different kinds, and for a table that names none.
    """
    if (given := _members_given(source, path, table)) is None:
        run = table.get("run")
        return run if isinstance(run, str) else None
    prefix = _prefix_of(given[0].run)
    if prefix is None:
        allowed = f"must be {A2A} or {OPENAI} and a URL: other agents have no pools"
        raise ConfigError(source, given[0].key, None, allowed, shows_value=False)
    for member in given:
        if _prefix_of(member.run) != prefix:
            raise ConfigError(source, member.key, None, f"must be {prefix}…, as the first member is", shows_value=False)
    return ", ".join(member.run for member in given)


def read_pool(source: str, path: str, table: Mapping[str, Any]) -> AgentPool | None:
    """Read the members of an agent's table, and the keys about all of them; None if it is of no kind that has any.

    Raises ConfigError, with the key of the agent's table or of the member's where the fault is.
    """
    given = _members_given(source, path, table)
    if given is None:
        run = table.get("run")
        if not isinstance(run, str) or _prefix_of(run) is None:
            return None
        for key in POOL_KEYS:
            if key in table:
                allowed = "is for pools: write run = [ … ] or [[agents.pool]], or leave it out"
                raise ConfigError(source, f"{path}.{key}", table[key], allowed)
        return _read_members(source, path, table, (_Given(run, f"{path}.run", path),), AgentPool(members=()))
    prefix = _prefix_of(given[0].run)
    assert prefix is not None  # `describe_run` has refused others
    kind = _KINDS[prefix]
    for key in POOL_KEYS:
        if key in table and key not in kind.pool_keys:
            others = " or ".join(each for each, other in _KINDS.items() if key in other.pool_keys)
            raise ConfigError(source, f"{path}.{key}", table[key], f"is for pools of {others} only: leave it out")
    about = {key: table[key] for key in kind.pool_keys if key in table}
    keys = convert_table(source, path, about, _PoolKeys, _ALLOWED, shows_value=True)
    pool = AgentPool(members=(), written=True, **asdict(keys))
    return _read_members(source, path, table, given, pool)


def _members_given(source: str, path: str, table: Mapping[str, Any]) -> tuple[_Given, ...] | None:
    """The members of a table; None if its `run` is one URL, or no pool at all."""
    run, tables = table.get("run"), table.get("pool")
    if tables is None and not isinstance(run, list):
        return None
    if tables is None:
        assert isinstance(run, list)
        if not run or not all(isinstance(each, str) for each in run):
            raise ConfigError(source, f"{path}.run", run, 'must be a list like ["a2a:https://a", "a2a:https://b"]')
        given = tuple(_Given(each.strip(), f"{path}.run[{at}]", path) for at, each in enumerate(run))
        for at, each in enumerate(given):
            if any(each.run == earlier.run for earlier in given[:at]):
                raise ConfigError(source, each.key, None, "is listed twice: leave one out", shows_value=False)
    else:
        if not isinstance(tables, list) or not tables or not all(isinstance(each, dict) for each in tables):
            raise ConfigError(source, f"{path}.pool", None, "must be tables: write [[agents.pool]]", shows_value=False)
        if run is not None and run not in _KINDS:
            allowed = f"must be left out beside [[agents.pool]], or be {A2A} or {OPENAI} alone"
            raise ConfigError(source, f"{path}.run", None, allowed, shows_value=False)
        given = tuple(_table_given(source, f"{path}.pool[{at}]", each, run or "") for at, each in enumerate(tables))
    if len(given) > MEMBERS_MAX:
        raise ConfigError(source, path, None, f"must have at most {MEMBERS_MAX} members", shows_value=False)
    return given


def _table_given(source: str, path: str, table: Mapping[str, Any], prefix: str) -> _Given:
    url = table.get("url")
    if not isinstance(url, str) or not url.strip():
        raise ConfigError(source, f"{path}.url", None, "must be the URL of a member", shows_value=False)
    url = url.strip()
    return _Given(url if url.startswith(prefix) else prefix + url, f"{path}.url", path, table)


def _read_members(
    source: str, path: str, table: Mapping[str, Any], given: Sequence[_Given], pool: AgentPool
) -> AgentPool:
    prefix = _prefix_of(given[0].run)
    assert prefix is not None
    kind = _KINDS[prefix]
    shared = {key: value for key, value in table.items() if key not in ("run", "pool", *POOL_KEYS)}
    members: list[AgentPoolMember] = []
    for at, each in enumerate(given):
        member = _read_member(source, path, each, at, kind, shared, pool)
        if any(other.name == member.name for other in members):
            if "name" in each.keys:
                allowed = "is the name of an earlier member: names must differ"
                raise ConfigError(source, f"{each.path}.name", member.name, allowed)
            member = replace(member, name=_number_name(member.name, {other.name for other in members}))
        members.append(member)
    return replace(pool, members=tuple(members))


def _read_member(
    source: str, path: str, given: _Given, at: int, kind: _PoolKind, shared: Mapping[str, Any], pool: AgentPool
) -> AgentPoolMember:
    known = (*_MemberKeys.__struct_fields__, "price", *kind.own_keys)
    check_keys(source, given.keys, known, f"{given.path}.")
    own = {key: value for key, value in given.keys.items() if key in kind.own_keys}
    try:
        read = kind.read(source, given.path, {**shared, **own, "run": given.run})
    except ConfigError as error:  # it names a key of the member, which may be the agent's
        name = error.key.removeprefix(f"{given.path}.")
        first = re.split(r"[.\[]", name)[0]
        key = given.key if first == "run" else error.key if first in own else f"{path}.{name}"
        raise ConfigError(source, key, error.value, error.allowed, shows_value=error.shows_value) from error
    basic = {key: value for key, value in given.keys.items() if key in _MemberKeys.__struct_fields__}
    keys = convert_table(source, given.path, {"url": given.run, **basic}, _MemberKeys, _ALLOWED, shows_value=True)
    if "name" in given.keys and not MEMBER_NAME.fullmatch(keys.name):
        raise ConfigError(source, f"{given.path}.name", keys.name, _ALLOWED["name"])
    if "weight" in given.keys and pool.strategy != "weighted":
        allowed = 'is for strategy = "weighted" only: set that, too, or leave it out'
        raise ConfigError(source, f"{given.path}.weight", keys.weight, allowed)
    price = given.keys.get("price")
    return AgentPoolMember(
        name=keys.name or derive_name(read.url),
        order=(at if pool.strategy == "failover" else 0) if keys.order is None else keys.order,
        weight=keys.weight,
        price=None if price is None else read_price(source, f"{given.path}.price", price),
        **{kind.field: read},
    )


def add_member_prices(source: str, prices: Prices, pools: Mapping[str, AgentPool | None]) -> Prices:
    """The prices with those of the members of pools, by the ids of agents. An agent with one member has its price.

    Raises ConfigError if there are any, and the file names no currency.
    """
    found: dict[str, Price] = {}
    for agent, pool in pools.items():
        members = () if pool is None else pool.members
        for member in members:
            if member.price is not None:
                found[f"{agent}/{member.name}" if len(members) > 1 else agent] = member.price
    if found and not prices.currency:
        allowed = (
            f"must be set, as {next(iter(found))} has a price: write [prices] with the code of a currency, like EUR"
        )
        raise ConfigError(source, "prices.currency", None, allowed, shows_value=False)
    return replace(prices, agents={**prices.agents, **found}) if found else prices


def derive_name(url: str) -> str:
    """The name of a member by its URL: host, port and path. A long one is cut, and ends with a digest of the whole."""
    parts = urlsplit(url)
    whole = "-".join(filter(None, (parts.hostname or "", "" if parts.port is None else str(parts.port), parts.path)))
    plain = re.sub(r"[^A-Za-z0-9._]+", "-", whole).strip("-._") or "member"
    if len(plain) <= NAME_CHARS:
        return plain
    digest = blake2b(url.encode(), digest_size=_DIGEST_CHARS // 2).hexdigest()
    return f"{plain[: NAME_CHARS - _DIGEST_CHARS - 1].rstrip('-._')}-{digest}"


def _number_name(name: str, taken: set[str]) -> str:
    """The name with the first number under which it is free."""
    numbered = (f"{name[: NAME_CHARS - 4]}-{number}" for number in range(2, MEMBERS_MAX + 2))
    return next(each for each in numbered if each not in taken)


def _prefix_of(run: str) -> str | None:
    return next((prefix for prefix in _KINDS if run.startswith(prefix)), None)
