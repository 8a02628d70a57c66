"""The console as configured: the sessions of operators, how they sign in, and the agents elsewhere that they may try.

Invariant: without the console none of it exists. Settings of a sign-in that could let strangers in are refused at the
start.
"""

from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec import Struct

from dragoman.auth.authenticator import Authenticator
from dragoman.auth.issuers import IssuerEgress
from dragoman.auth.sessions import OperatorSessions
from dragoman.bindings.calls import Reception
from dragoman.bindings.console import CALLBACK, Console, InstalledPages, ProviderDoor
from dragoman.bindings.remote import RemoteAgents, RemoteWays
from dragoman.config import Config, loopback, read_secret
from dragoman.engine.admin.access import AccessNotes
from dragoman.engine.handlers.audit import Trail
from dragoman.server.callers import token_teams
from dragoman.server.errors import StartError
from dragoman.store.api import Store

if TYPE_CHECKING:  # tokens need a library that takes longer to import than a server may take to start
    from dragoman.auth.oidc import Provider, ProviderSignIn

NEEDED = (*("oidc_client_id", "oidc_client_secret", "oidc_client_secret_file", "oidc_role_claim", "oidc_role_value"),)
"""Settings that mean nothing without `oidc_issuer`."""


class ConsoleParts(Struct, frozen=True):
    """The parts of the console that outlive a reload. `provider` is None if nobody signs in by an OpenID provider."""

    operators: OperatorSessions
    remote: RemoteAgents
    provider: ProviderDoor | None = None

    def make_pages(self, reception: Reception, public_url: str | None) -> Console:
        """Make the console of an application."""
        callers, bounds = reception.callers, reception.limits
        return Console(_load_pages(), self.operators, callers, bounds, public_url, self.provider)

    def stop(self) -> None:
        """End the open exchanges with agents elsewhere, because the server stops."""
        self.remote.stop()

    async def close(self) -> None:
        """Close every connection to agents elsewhere."""
        await self.remote.close()


@cache
def _load_pages() -> InstalledPages:
    """The console's files: the same whatever is reloaded."""
    return InstalledPages()


def make_console(
    config: Config, store: Store, trail: Trail, authenticator: Authenticator, issuers: IssuerEgress
) -> ConsoleParts | None:
    """Make the console; None if the configuration asks for none. Raises StartError for contradictory settings."""
    provider = read_provider(config)
    if not config.console or not config.tasks or config.profile is not None:
        return None
    public = urlsplit(config.public_url).hostname if config.public_url else None
    alone = loopback(config.host) and (public is None or loopback(public)) and not config.trusted_proxies
    # A host where an agent may be added may be tried before that.
    ways = RemoteWays((*config.console_allowed_hosts, *config.agents_api_allow_hosts), authenticator, local=alone)
    notes = AccessNotes(trail, store.clock)
    named = None if provider is None else provider.digest
    operators = OperatorSessions(store.shared, store.keys, store.clock, authenticator, named)
    door = None
    if provider is not None:
        door = ProviderDoor(_make_sign_in(config, provider, store, issuers), operators, notes, config.public_url)
    return ConsoleParts(operators, RemoteAgents(ways, notes, config.keepalive_s), door)


def read_provider(config: Config) -> "Provider | None":
    """The provider that the settings name, None if they name none. Raises StartError, which names the setting."""
    issuer = config.oidc_issuer
    if issuer is None:
        for name in NEEDED:
            if getattr(config, name) is not None:
                raise StartError(f"{name} is set and oidc_issuer is not: name the provider, or leave {name} out")
        return None
    from dragoman.auth.oidc import Provider

    if not config.console or not config.tasks or config.profile is not None:
        raise StartError("oidc_issuer is set and there is no console to sign in to: leave oidc_issuer out")
    values: dict[str, str] = {}
    for name, fix in (
        ("public_url", "the provider sends browsers back to a URL that is registered there: set it"),
        ("oidc_client_id", "set the id under which the console is registered at the provider"),
        ("oidc_role_claim", "name the claim that says who is an operator, or everybody at the provider would be one"),
        ("oidc_role_value", "name the value that the claim has for operators"),
    ):
        if (given := getattr(config, name)) is None:
            raise StartError(f"oidc_issuer is set and {name} is not: {fix}")
        values[name] = given
    for name, url in (("oidc_issuer", issuer), ("public_url", values["public_url"])):
        if not url.startswith("https:") and not loopback(urlsplit(url).hostname or ""):
            raise StartError(f"{name} = {url!r} is without TLS, so that sign-ins could be stolen: use https://")
    if "openid" not in config.oidc_scope.split():
        raise StartError("oidc_scope does not have openid, without which there is no ID token: add it")
    return Provider(
        issuer=issuer,
        client_id=values["oidc_client_id"],
        client_secret=_read_secret(config),
        redirect_url=values["public_url"] + CALLBACK,
        scope=config.oidc_scope,
        claim=values["oidc_role_claim"],
        value=values["oidc_role_value"],
        session_ms=int(config.oidc_session_s * 1000) or None,
        teams=token_teams(config),
    )


def _read_secret(config: Config) -> str | None:
    path = config.oidc_client_secret_file
    if path is None:
        return config.oidc_client_secret
    if config.oidc_client_secret is not None:
        raise StartError("oidc_client_secret and oidc_client_secret_file are both set: leave one of them out")
    try:
        return read_secret(path)
    except ValueError as error:
        raise StartError(f"oidc_client_secret_file {path!r} {error}") from error


def _make_sign_in(config: Config, provider: "Provider", store: Store, issuers: IssuerEgress) -> "ProviderSignIn":
    from dragoman.auth.oidc import ProviderSignIn
    from dragoman.auth.tokens import Jwks

    algorithms, clock = config.jwt_algorithms, store.clock
    jwks = Jwks(provider.issuer, None, algorithms, issuers, clock)
    return ProviderSignIn(provider, jwks, algorithms, issuers, store.shared, clock, config.jwt_leeway_s)
