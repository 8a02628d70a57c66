"""The shape of a system: everything about one kind of server or client that Dragoman takes part with, as one value.

Mounts are the paths under which an agent is reached, and the official versions served there.

Invariant: values, without behaviour of their own. `dialects.registry` lists the systems; nothing else names one. The
two mounts here belong to no system; every other mount is part of its system's value.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

from dragoman.dialects.api import Dialect, Tongue
from dragoman.dialects.client.card import CardView
from dragoman.model.card import AgentExtension


class Mount(Struct, frozen=True):
    """A kind of mount. `path` is its pattern: `/agents/{id}` is the mount of every agent, `/a2a` only of the default.

    `rpc` and `rest` are the official versions that it serves over JSON-RPC and over HTTP+JSON; its card lists them.
    With `fixed` its card lists them for every agent, whatever versions the agent is configured for.
    """

    path: str
    rpc: tuple[str, ...]
    rest: tuple[str, ...]
    fixed: bool = False

    @property
    def names_agents(self) -> bool:
        """Whether the path names the agent."""
        return self.path.endswith("{id}")

    @property
    def catches_all(self) -> bool:
        """Whether any path looks like one of an agent here, known or not."""
        return self.path == "/{id}"

    @property
    def stem(self) -> tuple[str, ...]:
        """The segments of the path before the agent's id."""
        return tuple(segment for segment in self.path.removesuffix("{id}").split("/") if segment)


ROOT = Mount("/", ("1.0", "0.3"), ("1.0", "0.3"))
AGENT = Mount("/agents/{id}", ("1.0", "0.3"), ("1.0", "0.3"))


class ByTask(Struct, frozen=True):
    """A request that only names a task, so the mount alone cannot tell its dialect.

    If the caller made that task through this very mount, in one of the dialects of `stored`, that dialect answers.
    `otherwise` answers in all other cases, so a missing task and another caller's task look the same to the byte.
    """

    id: str
    stored: Mapping[str, Dialect]
    otherwise: Dialect


class RequestFacts(Struct, frozen=True):
    """The input of the rules.

    `version` is `1.0`, `0.3`, empty if the caller named none, else as the caller sent it. `name` is the method or the
    route. `params` is empty over HTTP+JSON; `legacy` says that the path is below `/v1`.
    """

    mount: Mount
    version: str
    name: str
    params: bytes | memoryview = b""
    legacy: bool = False
    user_agent: str = ""

    @property
    def official(self) -> bool:
        """Whether the version is a supported one, or none."""
        return self.version in ("1.0", "0.3", "")


class Rule(Struct, frozen=True):
    """A condition, and the dialect to use if it holds."""

    when: Callable[[RequestFacts], bool]
    then: Callable[[RequestFacts], Dialect | ByTask]


class OwnPath(Struct, frozen=True, kw_only=True):
    """A path below some mounts that only one system has.

    `path` is relative to the mount; a segment such as `{id}` is an id. `methods` are the HTTP methods allowed, each
    with the name of its route. Other HTTP methods of the same path keep their meaning. `endpoint` says what is there:
    `rest` is a call by method and path, `rpc` a JSON-RPC call, `card` the mount's card. `dialect` answers; None: the
    endpoint has no dialect. `bare` is the method of a body at an `rpc` endpoint that has no envelope.
    """

    mounts: tuple[Mount, ...]
    path: str
    methods: Mapping[str, str]
    endpoint: Literal["rest", "rpc", "card"] = "rest"
    dialect: Dialect | None = None
    bare: str = ""


class CardSign(Struct, frozen=True, kw_only=True):
    """A sign by which a client recognises the card of one of the system's servers.

    `kind` names it. `url` returns the URL of the JSON-RPC endpoint that the card stands for, empty if there is none. A
    `certain` sign counts even if the card lists endpoints of the official versions.
    """

    kind: str
    when: Callable[[CardView], bool]
    url: Callable[[CardView], str]
    certain: bool = False


def no_cards(base: str) -> tuple[str, ...]:
    """Return no further places of a card."""
    return ()


class Variable(Struct, frozen=True):
    """An environment variable of a system, and the setting that it means.

    `values` maps its values, in lower case, to those of the setting; None: they are the same. `allowed` says in words
    which values there are.
    """

    setting: str
    values: Mapping[str, str] | None = None
    allowed: str = ""


def no_variables(environ: Mapping[str, str]) -> Mapping[str, Variable]:
    """Return no variables: most systems have none whose name depends on the environment."""
    return {}


class ServerProfile(Struct, frozen=True, kw_only=True):
    """How a server behaves that runs as the system (`--profile`): it has only the system's mount.

    `defaults` are settings by name. `variables` are the system's own environment variables; if two mean the same
    setting, the later one wins. `named_variables` adds those whose names depend on the environment. With `asks_always`
    every caller needs a key. `history`: its card promises `stateTransitionHistory`. `method` and `part` are those of a
    send by its clients: the method's name, and a text part without its text.
    """

    defaults: Mapping[str, str]
    variables: Mapping[str, Variable] = {}
    named_variables: Callable[[Mapping[str, str]], Mapping[str, Variable]] = no_variables
    asks_always: bool = False
    key_variable: str = ""
    history: bool = False
    method: str
    part: Mapping[str, Any]


class System(Struct, frozen=True, kw_only=True):
    """One system.

    `dialect` is its dialect over JSON-RPC; `methods` are the method names of that. `mount` is the mount that is named
    after the system, or the one that a server posing as the system has.

    `tongue` is the client's side; None: only the system's clients are known, not its servers. `signs` recognise its
    cards, and `card_urls` returns where they may be besides the usual places, for an agent's URL without a slash at its
    end.

    `rules` resolve the JSON-RPC calls at its own mount, and `unread` the dialect for answering an unreadable body
    there, by the version. `shared` are rules for calls at mounts that belong to no system; they come before the
    official ones.
    `bare` recognises a body without an envelope that was posted to such a mount, and returns its method and its
    dialect. `paths` are paths that only this system has; `health_path` are the segments of one that says that the
    server is alive. `extensions` are listed on the cards of its mount.

    `profile` None: no server poses as the system.
    """

    name: str
    dialect: Dialect
    methods: frozenset[str] = frozenset()
    tongue: Tongue | None = None
    signs: tuple[CardSign, ...] = ()
    card_urls: Callable[[str], tuple[str, ...]] = no_cards
    mount: Mount | None = None
    rules: tuple[Rule, ...] = ()
    unread: Callable[[str], Dialect] | None = None
    shared: Mapping[Mount, tuple[Rule, ...]] = {}
    paths: tuple[OwnPath, ...] = ()
    health_path: tuple[str, ...] = ()
    bare: Callable[[bytes], tuple[str, Dialect] | None] | None = None
    extensions: tuple[AgentExtension, ...] = ()
    profile: ServerProfile | None = None
