"""The credentials for a server elsewhere, as a table of the configuration describes them.

Invariant: the secret is that of the environment at the start; it is in no message and no representation.
"""

from msgspec import Struct

from dragoman.client import ApiKey, BearerToken, ClientCredentials
from dragoman.client.credentials import Credentials
from dragoman.client.token_endpoint import TokenEndpoint
from dragoman.client.token_exchange import TOKEN_TYPE, ExchangeTerms, TokenExchange
from dragoman.config import UpstreamCredentials
from dragoman.config.upstreams import TOKEN_TYPES, ExchangeEntry
from dragoman.net.egress import Egress


class ConfiguredCredentials(Struct, frozen=True):
    """Makes the credentials of the table `shown` with its `secret`."""

    shown: UpstreamCredentials
    secret: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shown!r}, …)"

    def make(self, egress: Egress) -> Credentials:
        """Make them. A token is fetched by way of `egress`."""
        shown = self.shown
        if (exchange := shown.exchanged) is not None:
            return self._make_exchange(egress, exchange)
        if shown.token_url is not None and shown.client_id is not None:
            return ClientCredentials(
                shown.token_url,
                shown.client_id,
                self.secret,
                egress=egress,
                scope=shown.scope,
                audience=shown.audience,
                method=shown.method,
            )
        return BearerToken(self.secret) if shown.header is None else ApiKey(self.secret, shown.header)

    def _make_exchange(self, egress: Egress, exchange: ExchangeEntry) -> TokenExchange:
        shown = self.shown
        assert shown.token_url is not None  # as the configuration has checked
        assert shown.client_id is not None
        actor = None
        if exchange.actor_token:
            actor = ClientCredentials(
                shown.token_url,
                shown.client_id,
                self.secret,
                egress=egress,
                audience=exchange.actor_audience,
                method=shown.method,
            )
        return TokenExchange(
            TokenEndpoint(shown.token_url, shown.client_id, self.secret, egress=egress, method=shown.method),
            ExchangeTerms(
                audience=shown.audience,
                resource=shown.resource,
                scope=None if shown.scope is None else tuple(shown.scope.split()),
                scopes={held: tuple(meant.split()) for held, meant in exchange.scopes.items()},
                audiences=frozenset(exchange.audiences),
                subject_type=_spell_type(exchange.subject_type),
                actor_type=_spell_type(exchange.actor_type),
            ),
            actor=actor,
        )


def _spell_type(name: str) -> str:
    """The URI of a type of tokens (RFC 8693 §3)."""
    return f"{TOKEN_TYPE}{name}" if name in TOKEN_TYPES else name


def make_no_credentials(egress: Egress) -> None:
    """There are none."""
