"""Authentication of callers: every request that reaches an agent is checked before its body is read.

Invariant: a caller that may not use the agent in the path learns nothing about it that its card does not say.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

from dragoman.auth.authenticator import AUTHORIZATION, KEY_HEADERS, Authenticator
from dragoman.auth.operator_token import LOGIN_HEADER
from dragoman.bindings.cors import Origins
from dragoman.bindings.parent import Parent
from dragoman.bindings.request import Request
from dragoman.engine.handlers.audit import Trail
from dragoman.model.errors import A2AError, Forbidden, Unauthorized
from dragoman.model.ids import Clock
from dragoman.model.principal import ANONYMOUS, LOCAL_OPERATOR, AccessRole, Principal, name_operator
from dragoman.store.audit import AuditEntry

HOSTS_REMEMBERED = 1000
"""How many checked values of `Host` are remembered. A flood of new values only makes them be checked again."""

HOST_BYTES_MAX = 300
"""Longest value that is remembered; a DNS name has at most 253 characters (RFC 1035)."""

LOGIN = LOGIN_HEADER.encode()

Identify = Callable[[Mapping[bytes, bytes], str | None], Awaitable[Principal]]
"""Finds the caller by the headers and the address of a request."""

SAY = "say who you are: send a key as x-api-key, or as a bearer token"

METRICS_ONLY = "a key or token of the role monitor reads /metrics only: use one of the role caller"


class OwnHosts:
    """The values of `Host` that a server without authentication accepts: names of this machine only.

    Without this check, a page open in a browser on this machine could reach the server: its own domain could resolve
    to 127.0.0.1 (DNS rebinding). With `local_only` the caller must be on this machine, too: a server that does not
    listen itself learns only from each request whether strangers reach it.
    """

    def __init__(self, own: Collection[str], *, local_only: bool = False) -> None:
        self._own = frozenset(host.lower() for host in own)
        self._local_only = local_only
        self.accepted: set[bytes] = set()
        """Values that were checked before and accepted, whoever sends them; empty if the caller counts, too."""
        self._accepted_from: set[tuple[bytes, str]] = set()
        """The same with the address of the caller."""

    @classmethod
    def of(cls, host: str, public_url: str | None) -> "OwnHosts":
        """The accepted values for a server that listens on `host`."""
        return cls([host, *([urlsplit(public_url).hostname or ""] if public_url else [])])

    def check(self, request: Request) -> None:
        """Raises Forbidden for a name that is not this server's, or for a caller on another machine."""
        host = request.headers.get(b"host", b"")
        if (host, request.peer) in self._accepted_from:
            return
        if self._local_only and _is_elsewhere(request.peer):
            raise Forbidden(
                "callers of this application are not authenticated, so it answers those on this machine only: give "
                "create_app an `authenticate` function, make a key (dragoman keys create NAME), or set "
                "allow_unauthenticated if everyone who can reach it may use every agent"
            )
        name = _without_port(host.decode("latin-1")).lower().removesuffix(".")
        if not (name in self._own or name == "localhost" or name.endswith(".localhost") or _is_address(name)):
            raise Forbidden(
                f"Host {name[:100]!r} is not a name of this server, which has no authentication: use localhost or its "
                "address, set public_url to the URL under which it is reached, or make a key (dragoman keys create)"
            )
        known: set[Any] = self._accepted_from if self._local_only else self.accepted
        if len(known) >= HOSTS_REMEMBERED:
            known.clear()
        if len(host) <= HOST_BYTES_MAX:
            known.add((host, request.peer) if self._local_only else host)


def _contradicts(request: Request) -> str:
    """The name of a header for credentials that was sent with different values; empty if there is none."""
    for name in (*KEY_HEADERS, AUTHORIZATION):
        if len({value for key, value in request.header_list if key == name}) > 1:
            return name.decode()
    return ""


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    if not colon or not (port.isdecimal() or not port):
        name = host
    return name[1:-1] if name.startswith("[") and name.endswith("]") else name


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return name == ""  # HTTP/1.0 clients send no Host
    return True


def _is_elsewhere(peer: str) -> bool:
    """Whether the caller is on another machine. One without an address has come through a socket of this machine."""
    try:
        return not ip_address(peer).is_loopback
    except ValueError:
        return False


class CallerRefusals:
    """Notes refused callers in the audit trail, by the path: no body has been read yet.

    An agent that is none of `agents` is not named, because a stranger would choose what is stored, and how much.
    """

    def __init__(self, trail: Trail, clock: Clock, agents: Collection[str]) -> None:
        self._trail = trail
        self._clock = clock
        self._agents = agents

    def note(self, request: Request, error: A2AError, agent: str) -> None:
        """Note that a request for `agent` was refused."""
        route = request.route
        entry = AuditEntry(
            at_ms=self._clock.now_ms(),
            principal=request.principal.id,
            action=route.methods.get(request.method) or route.endpoint,
            agent=agent if agent in self._agents else "",
            allowed=False,
            reason=type(error).__name__,
            peer=request.peer,
            key=request.principal.key,
        )
        self._trail.note(entry)


class Callers:
    """Identifies callers and decides which agents they may use.

    `hosts` None: any `Host` is accepted. `origins` None: only web pages of the server's own origin may call.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        hosts: OwnHosts | None = None,
        refusals: CallerRefusals | None = None,
        agents: Collection[str] = (),
        origins: Origins | None = None,
        parent: Parent | None = None,
    ) -> None:
        """Every refusal is noted in `refusals`. `agents` are all agents that the server has.

        `parent` is the application that says who its callers are. Whom it does not know may send credentials of ours.
        """
        self._authenticator = authenticator
        self._hosts = hosts
        self._refusals = refusals
        self._agents = frozenset(agents)
        self._origins = Origins() if origins is None else origins
        self._parent = parent

    @property
    def required(self) -> bool:
        """Whether every caller must authenticate: see `Authenticator.required`."""
        return self._authenticator.required

    def known(self, request: Request) -> Principal | None:
        """The caller, if it can be identified without waiting; None: `identify` has to decide."""
        if self._parent is not None:
            return None
        principal = self._authenticator.known(request.headers, request.proxy or request.peer or None)
        if principal is ANONYMOUS:
            if self._hosts is None or request.headers.get(b"host", b"") in self._hosts.accepted:
                return principal
            return None
        if len(request.headers) < len(request.header_list) and _contradicts(request):
            return None
        return principal

    async def identify(self, request: Request) -> Principal:
        """The caller. Raises Unauthorized, or Forbidden for a Host that is not ours."""
        return await self._check(request, self._authenticator.identify)

    async def recognise(self, request: Request) -> Principal:
        """The caller of something public: `ANONYMOUS` without credentials. Raises what `identify` raises."""
        return await self._check(request, self._authenticator.recognise, public=True)

    async def _check(self, request: Request, identify: Identify, *, public: bool = False) -> Principal:
        try:
            if self._parent is not None:
                named = await self._parent.identify(request, public=public)
                if named is not None:
                    return named
            await self._authenticator.refresh()
            self.check_host(request)
            principal = await identify(request.headers, request.proxy or request.peer or None)
            if principal is not ANONYMOUS and (name := _contradicts(request)):
                raise Unauthorized(f"{name} was sent twice, with different values: send one")
            return principal
        except (Unauthorized, Forbidden) as error:
            self._note(request, error, request.route.agent)
            raise

    def admit(self, request: Request, agent: str) -> None:
        """Check that the caller may use the agent.

        Raises Unauthorized if the agent requires authentication and the caller is anonymous, Forbidden if the caller
        is known and may not use the agent.
        """
        principal = request.principal
        error: A2AError
        if principal is ANONYMOUS:
            if agent not in self._authenticator.keyed_agents:  # all others are open to who was let in without a name
                return
            error = Unauthorized(SAY, missing=True)
        elif principal.reaches(agent):
            return
        elif principal.role is AccessRole.MONITOR:
            error = Forbidden(METRICS_ONLY)
        else:
            error = Forbidden(f"this key or token is not for agent {agent[:100]!r}")
        self._note(request, error, agent)
        raise error

    def admits(self, request: Request, agent: str) -> bool:
        """Whether the caller may use the agent. A refusal is not reported."""
        principal = request.principal
        return agent not in self._authenticator.keyed_agents if principal is ANONYMOUS else principal.reaches(agent)

    def admit_page(self, request: Request) -> None:
        """Raises Forbidden if the request comes from a web page that may not call."""
        try:
            self._origins.check(request)
        except Forbidden as error:
            self._note(request, error, request.route.agent)
            raise

    def admit_any(self, request: Request) -> None:
        """Check that the caller may ask for agents without naming one.

        Raises Unauthorized if every agent requires authentication and the caller is anonymous, Forbidden for a monitor.
        """
        error: A2AError
        if request.principal is ANONYMOUS and self._asks_all:
            error = Unauthorized(SAY, missing=True)
        elif request.principal.role is AccessRole.MONITOR:
            error = Forbidden(METRICS_ONLY)
        else:
            return
        self._note(request, error, "")
        raise error

    def admit_worker(self, request: Request) -> None:
        """Raises Forbidden unless the caller may do the tasks of the agent in the path."""
        agent = request.route.agent
        if not request.principal.works_for(agent):
            error = Forbidden(f"this key or token may not work for {agent}: use one with the role agent")
            self._note(request, error, agent)
            raise error

    def check_host(self, request: Request) -> None:
        """Raises Forbidden for a name that is not this server's, if the server has no authentication."""
        if self._hosts is not None and not self._authenticator.required:
            self._hosts.check(request)

    def admit_operator(self, request: Request) -> None:
        """Check that the caller is an operator: on a server without authentication else, by the server's own token.

        The token names nobody, so the caller may add a login. A command on the store notes the same name by itself.
        Raises Unauthorized or Forbidden.
        """
        principal = request.principal
        if principal is ANONYMOUS and (found := self._authenticator.operator(request.headers)) is not None:
            principal = found
        try:
            self.check_host(request)
            if principal is ANONYMOUS:
                raise Unauthorized("only operators: send an operator's key, or this server's token", missing=True)
            if not principal.operates:
                raise Forbidden(
                    "only a key of the role operator, without limits, may do this "
                    "(dragoman keys create NAME --role operator)"
                )
        except (Unauthorized, Forbidden) as error:
            self._note(request, error, "")
            raise
        if principal.id == LOCAL_OPERATOR and (login := request.headers.get(LOGIN)):
            principal = replace(principal, id=name_operator(unquote(login.decode("latin-1"))))
        request.principal = principal

    def admit_scraper(self, request: Request) -> None:
        """Check that the caller may see the metrics, if every caller must authenticate.

        Raises Unauthorized or Forbidden.
        """
        if not self._asks_all:
            return
        error: A2AError
        if request.principal is ANONYMOUS:
            error = Unauthorized(SAY, missing=True)
        elif not request.principal.scrapes:
            error = Forbidden(
                "only a key of the role monitor, admin or operator may see this "
                "(dragoman keys create NAME --role monitor)"
            )
        else:
            return
        self._note(request, error, "")
        raise error

    def _note(self, request: Request, error: A2AError, agent: str) -> None:
        if self._refusals is not None:
            self._refusals.note(request, error, agent)

    @property
    def _asks_all(self) -> bool:
        """Whether every caller must authenticate, globally or because each agent has its own key."""
        required_for = self._authenticator.required_for
        return self._authenticator.required or (bool(self._agents) and all(map(required_for, self._agents)))
