"""Authentication as configured, and the rule that a server without it must not listen to the world.

Invariant: a configuration that would let strangers in is refused at start, with what to do instead.
"""

import logging
import shlex
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec.structs import asdict

from dragoman.auth.authenticator import Authenticator
from dragoman.auth.issuers import IssuerEgress
from dragoman.auth.keys import id_of
from dragoman.bindings.callers import OwnHosts
from dragoman.bindings.parent import Parent
from dragoman.config import Config, TeamLimits, loopback
from dragoman.dialects.registry import load_profile
from dragoman.model.ids import Clock
from dragoman.model.principal import KeyLimits, Sharing, Team
from dragoman.server.errors import StartError
from dragoman.store.api import Store
from dragoman.store.keyring import key_state
from dragoman.store.path import hide_password

if TYPE_CHECKING:  # tokens need a library that takes longer to import than a server may take to start
    from dragoman.auth.certificates import Certificates
    from dragoman.auth.tokens import TokenTeam, TokenVerifier

log = logging.getLogger(__name__)

MEMORY = "memory:"

KEYS_NAMED = 10
"""Most keys that a warning names."""


async def make_authenticator(
    config: Config,
    known: Collection[str],
    store: Store,
    issuers: IssuerEgress,
    token: str,
    parent: Parent | None = None,
) -> Authenticator:
    """Make the authenticator for agents that are `known`, and warn if strangers can use them.

    The bearer of the `token` is an operator. The application `parent` may know callers who send none of these
    credentials; then every caller must be known. Raises StartError for contradictory settings, and for a port open to
    the world. Raises StoreError if the store cannot tell whether it has keys.
    """
    own = agent_keys(config, known)
    check_teams(config, known)
    tokens = _make_tokens(config, store.clock, issuers)
    certificates = _make_certificates(config)
    profile_asks = config.profile is not None and load_profile(config.profile).asks_always
    asks = config.authentication == "required" or profile_asks
    named = parent is not None and parent.authenticates
    authenticator = Authenticator(
        store.keys,
        store.clock,
        shared=config.api_key,
        agent_keys=own,
        tokens=tokens,
        certificates=certificates,
        always=asks or named,
        operator_token=token,
        admin_works=config.admin_runs_workers,
        teams=teams_of(config).values(),
    )
    if asks and config.store == MEMORY and not (config.api_key or own or tokens or certificates or named):
        asked = f"profile {config.profile}" if profile_asks else "authentication = 'required'"
        raise StartError(
            f"{asked} asks every caller for a key, and a store in memory has none: set api_key"
            f"{_own_variable(config) if profile_asks else ''}, jwt_issuer, or a store that is a file"
        )
    # The authenticator treats a failing store as one with keys. That must not open the port, so the error is raised.
    await store.keys.any()
    await authenticator.refresh()
    if parent is None:  # a mounted server looks at each caller: see `hosts_of`
        check_exposed(config, known, authenticator.required, own)
    warn_if_open(config, authenticator, known)
    await warn_of_admin_workers(config, store)
    return authenticator


def _make_tokens(config: Config, clock: Clock, issuers: IssuerEgress) -> "TokenVerifier | None":
    """The verifier of JWTs; None without an issuer. Raises StartError for contradictory settings."""
    if config.jwt_issuer is None:
        if config.jwt_audience or config.jwt_jwks_url:
            given = "jwt_audience" if config.jwt_audience else "jwt_jwks_url"
            raise StartError(f"{given} is set and jwt_issuer is not: name the issuer, or no token is accepted")
        return None
    if config.jwt_audience is None:
        raise StartError(
            "jwt_issuer is set and jwt_audience is not: name the audience that tokens for this server have"
        )
    from dragoman.auth.tokens import Jwks, TokenVerifier

    jwks = Jwks(config.jwt_issuer, config.jwt_jwks_url, config.jwt_algorithms, issuers, clock)
    return TokenVerifier(
        jwks,
        audience=config.jwt_audience,
        algorithms=config.jwt_algorithms,
        leeway_s=config.jwt_leeway_s,
        clock=clock,
        teams=token_teams(config),
    )


def token_teams(config: Config) -> "tuple[TokenTeam, ...]":
    """The teams that claims of tokens name."""
    from dragoman.auth.tokens import TokenTeam

    teams = teams_of(config)
    return tuple(
        TokenTeam(entry.claim, entry.value, teams[entry.id])
        for entry in config.teams
        if entry.claim is not None and entry.value is not None
    )


def teams_of(config: Config) -> dict[str, Team]:
    """The teams of the configuration, by their ids."""
    return {
        entry.id: Team(
            id=entry.id,
            agents=None if entry.agents is None else frozenset(entry.agents),
            limits=None if entry.limits == TeamLimits() else KeyLimits(**asdict(entry.limits)),
            shared=Sharing(entry.shared),
        )
        for entry in config.teams
    }


def check_teams(config: Config, known: Collection[str]) -> None:
    """Warn of agents of teams that are not served. Raises StartError for a claim that no token can have."""
    for entry in config.teams:
        if entry.claim is not None and config.jwt_issuer is None and config.oidc_issuer is None:
            raise StartError(
                f"team {entry.id} has a claim, and jwt_issuer is not set, so that no token has it: name the issuer, or "
                "leave claim and value out and make keys (dragoman keys create NAME --team)"
            )
        if unknown := [agent for agent in entry.agents or () if agent not in known]:
            log.warning(
                "team %s may use %s, which this server does not have: its members reach it only once a server has it",
                entry.id,
                ", ".join(unknown),
            )


def _make_certificates(config: Config) -> "Certificates | None":
    """The reader of client certificates; None if no proxy passes any on. Raises StartError."""
    if config.client_cert_header is None:
        return None
    if not config.trusted_proxies:
        raise StartError("client_cert_header is set and trusted_proxies is not: name the addresses of your proxies")
    from dragoman.auth.certificates import Certificates

    return Certificates(config.client_cert_header, config.trusted_proxies)


def _own_variable(config: Config) -> str:
    """The profile's own variable for the setting api_key, in brackets; empty if it has none."""
    variables = load_profile(config.profile).variables if config.profile is not None else {}
    names = [name for name, variable in variables.items() if variable.setting == "api_key"]
    return f" ({names[-1]})" if names else ""


def agent_keys(config: Config, known: Collection[str]) -> dict[str, str]:
    """The agents' own keys, by agent id."""
    return {entry.id: entry.api_key for entry in config.agents if entry.api_key and entry.id in known}


def warn_if_open(config: Config, authenticator: Authenticator, agents: Iterable[str]) -> None:
    """Warn if strangers can use agents, through a proxy (whose calls come from loopback) or through a web page.

    Also warn if all callers are to share a key that is somebody's own.
    """
    if config.api_key is not None and id_of(config.api_key) is not None:
        log.warning(
            "api_key (DRAGOMAN_API_KEY) is a key that `dragoman keys create` made: whoever sends it is the caller "
            "`shared` here, and no operator; an operator's key belongs in DRAGOMAN_OPERATOR_KEY, which the commands of "
            "`dragoman admin` read"
        )
    host = urlsplit(config.public_url).hostname if config.public_url else None
    if host is not None and not loopback(host) and not authenticator.required:
        log.warning(
            "public_url is %s and callers are not authenticated: make a key (dragoman keys create NAME), or make sure "
            "that the proxy authenticates them",
            config.public_url,
        )
    unasked = [agent for agent in agents if not authenticator.required_for(agent)]
    if config.tls_client_ca is not None and unasked:
        log.warning(
            "clients with a certificate of tls_client_ca are not told apart: they share their tasks with %s; to tell "
            "them apart, make keys (dragoman keys create NAME)",
            ", ".join(unasked),
        )
    if "*" in config.cors_origins and unasked:
        log.warning(
            "cors_origins is * and callers of %s are not authenticated: any web page in a browser that can reach this "
            "server can use them and read their answers; name the origins, or make a key (dragoman keys create NAME)",
            ", ".join(unasked),
        )


async def warn_of_admin_workers(config: Config, store: Store) -> None:
    """Warn of the shared key and of older keys of the role `admin` while they run workers. Raises StoreError.

    Tokens of that role are warned of when the first one is sent: see `Authenticator`.
    """
    if not config.admin_runs_workers:
        return
    now_ms = store.clock.now_ms()
    keys = [
        f"{key.id} ({key.name})"
        for key in await store.keys.all()
        if key.works_as_admin and key_state(key, now_ms) == "active"
    ]
    named = [*(["the shared api_key"] if config.api_key is not None else []), *keys[:KEYS_NAMED]]
    if len(keys) > KEYS_NAMED:
        named.append(f"{len(keys) - KEYS_NAMED} more")
    if named:
        log.warning(
            "with the role admin, %s may run workers, which lease and complete the tasks of all callers: give workers "
            "keys of the role agent and Prometheus one of the role monitor, then set admin_runs_workers = false",
            ", ".join(named),
        )


def check_exposed(config: Config, agents: Iterable[str], required: bool, own: Collection[str]) -> None:
    """Raises StartError if strangers could reach the port and use an agent without authentication.

    Clients whose certificate is asked for are no strangers.
    """
    if required or loopback(config.host) or config.allow_unauthenticated or config.tls_client_ca is not None:
        return
    open_to_all = [agent for agent in agents if agent not in own]
    if open_to_all:
        store = "" if config.store == Config().store else f" --store {shlex.quote(hide_password(config.store))}"
        make = "" if config.store == MEMORY else f"make a key first (dragoman keys create NAME{store}), "
        raise StartError(
            f"host = {config.host!r} can be reached from other machines, and callers of "
            f"{', '.join(sorted(open_to_all))} are not authenticated: {make}set api_key or jwt_issuer, listen on "
            "127.0.0.1, ask clients for certificates (tls_client_ca), or set allow_unauthenticated if everyone who "
            "can reach the port may use every agent"
        )


def hosts_of(config: Config, parent: Parent | None = None) -> OwnHosts | None:
    """The accepted `Host` names of a server without authentication; None: any, because the port is open to all.

    The port of a server that is mounted in an application is the application's, so that strangers may reach it.
    """
    if parent is not None:
        if config.allow_unauthenticated:
            return None
        public = urlsplit(config.public_url).hostname if config.public_url else None
        return OwnHosts([public] if public else [], local_only=True)
    return OwnHosts.of(config.host, config.public_url) if loopback(config.host) else None
