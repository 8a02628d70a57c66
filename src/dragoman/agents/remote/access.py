"""UpstreamAccess: the way to an agent of another server: its address, the connections there, and who asks.

Invariant: no error raised here quotes a connection's exception. That text is logged, and callers read our own words.
"""

from contextlib import AsyncExitStack
from typing import Any

from dragoman.agents.remote import check as upstream_check
from dragoman.agents.remote.card import CardKeys
from dragoman.agents.remote.check import EndpointFault
from dragoman.agents.remote.credentials import CallCredentials
from dragoman.agents.remote.failures import NOT_LET_IN, in_words
from dragoman.client import CardCache, Connection, Retries, Timeouts, connect
from dragoman.client.credentials import Authorized, CredentialsFactory
from dragoman.client.discovery import Discovery, places
from dragoman.client.http import HttpClient
from dragoman.client.retries import Retrier
from dragoman.client.token_exchange import TokenExchange
from dragoman.client.transport import CallTerms
from dragoman.config import Upstream
from dragoman.net.egress import OPERATORS_RULES, Egress, EgressRules
from dragoman.net.target import is_grpc

CONNECTIONS_MAX = 4000
"""Most connections to one upstream at once: each followed task holds one."""


class UpstreamAccess:
    """The way to the agent of the table `upstream`. Belongs to the loop that opens it.

    `keys` are those by which its card must be signed; None if it need not be. `for_callers`: it is called with the
    credentials of its callers, or with tokens for which theirs are exchanged; then `exchange` is not None once it is
    open. Connections are made under the `rules`.
    """

    def __init__(
        self,
        upstream: Upstream,
        make_credentials: CredentialsFactory,
        keys: CardKeys | None,
        rules: EgressRules = OPERATORS_RULES,
    ) -> None:
        self.upstream = upstream
        self.timeouts = Timeouts(
            connect_s=upstream.connect_timeout_s,
            answer_s=upstream.answer_s,
            idle_s=upstream.idle_s,
            mend_s=upstream.wait_s,
        )
        self.for_callers = upstream.forwards or upstream.exchanges
        self.exchange: TokenExchange | None = None
        self.keys = keys
        self.retrier = Retrier(
            Retries(attempts=6, first_s=0.05, patience_s=upstream.retry_wait_s, dedupes=upstream.dedupes)
        )
        self.credentials = CallCredentials(None, forwards=upstream.forwards)
        self._make_credentials = make_credentials
        self._rules = rules
        self._cache = CardCache()
        self._egress: Egress | None = None
        self._opened = AsyncExitStack()

    @property
    def place(self) -> str:
        """The base URL, for the operator."""
        return places(self.upstream.url).base

    @property
    def at_root(self) -> bool:
        """Whether its URL names a host and no agent of it, so that it is the agent at the root of the host."""
        return places(self.upstream.url, self.upstream.card).names_host

    @property
    def over_http(self) -> bool:
        """Whether its URL is one over HTTP, where chat completions may be."""
        return not is_grpc(self.upstream.url)

    def open(self) -> None:
        """Let calls out. Does nothing if they are let out already."""
        if self._egress is None:
            self._egress = self._rules.make_egress(
                connect_timeout_s=self.timeouts.connect_s, connections_max=CONNECTIONS_MAX
            )
            own = self._make_credentials(self._egress)
            self.exchange = own if isinstance(own, TokenExchange) else None
            self.credentials = CallCredentials(own, forwards=self.upstream.forwards)

    async def close(self) -> None:
        """Close all connections."""
        await self._opened.aclose()
        if self._egress is not None:
            await self._egress.close()
        self._egress = None

    @property
    def egress(self) -> Egress:
        """The way out, once it is open."""
        assert self._egress is not None
        return self._egress

    @property
    def http(self) -> HttpClient:
        """The way out, with our credentials."""
        return Authorized(self.egress, self.credentials)

    async def connect(self) -> Connection:
        """Connect as the card or the address says. Raises NoAnswer, PeerError, CardNotVerified or NoKeys."""
        upstream = self.upstream
        return await self._opened.enter_async_context(
            connect(
                upstream.url,
                credentials=self.credentials,
                keys=None if self.keys is None else await self.keys.read(self.egress),
                path=upstream.card,
                binding=upstream.binding,
                grpc_tls=upstream.grpc_tls,
                dialect=upstream.dialect,
                timeouts=self.timeouts,
                retries=self.retrier,
                egress=self.egress,
                origins=upstream.origins,
                double_base64=upstream.double_base64,
                cache=self._cache,
            )
        )

    async def find_card(self, *, anew: bool) -> dict[str, Any]:
        """Read the card, whether or not it names an interface. Raises NoAnswer or PeerError."""
        upstream = self.upstream
        terms = CallTerms(timeouts=self.timeouts, retrier=self.retrier, credentials=self.credentials)
        discovery = Discovery(self.http, places(upstream.url, upstream.card), self._cache, terms)
        return (await discovery.find(anew=anew)).card

    async def ask_for_chat(self) -> EndpointFault | None:
        """Why it does not speak chat completions; None if it does, as far as is known."""
        fault = await upstream_check.ask_for_chat(self.http, self.place, timeout_s=self.timeouts.card_s)
        return None if self.for_callers and fault is not None and fault.kind == NOT_LET_IN else fault

    def describe(self, error: Exception) -> str:
        """An error's text, without secrets that were sent to the upstream."""
        return self.credentials.masking.text(in_words(error))
