"""The endpoint of a model: its address, this server's credentials for it, and whether calls get through.

Invariant: the key appears in request headers and nowhere else, and in no finding of a check. At most `connections`
streams are open at once, and each is closed by its reader. No request of a check costs a token.
"""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from dragoman.agents.breaker import Breaker, State
from dragoman.agents.configured_credentials import ConfiguredCredentials
from dragoman.agents.exchange_check import check_exchange
from dragoman.agents.masking import NO_MASKING, Masking
from dragoman.client.credentials import Authorized, Credentials
from dragoman.client.errors import NoToken
from dragoman.client.http import HttpClient
from dragoman.client.token_exchange import TokenExchange, present_subject
from dragoman.config import Model
from dragoman.engine.api import CheckResult
from dragoman.net.egress import OPERATORS_RULES, Egress, EgressRules, Flow, HttpReply, checked
from dragoman.net.errors import EgressError, TimedOut
from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.models")

CONNECTIONS_MAX = 4000
"""The most answers in progress at one endpoint: each holds a connection."""

LOOK_S = 4.0
"""How long a check waits for each of its two answers."""

COMPLETIONS = "/chat/completions"

NOTHING_PASSED: Mapping[str, str] = MappingProxyType({})

NAMED_MAX = 8
"""The most model names listed as alternatives."""


class ModelEndpoint:
    """The endpoint of the table `model`, whose `key` is the secret of its credentials: the key that the endpoint is
    given, or the client secret for which an issuer gives tokens. Connections are made under the `rules`.

    Belongs to the event loop in which it is opened.
    """

    def __init__(self, model: Model, key: str, rules: EgressRules = OPERATORS_RULES) -> None:
        self.breaker = Breaker(model.failures, model.pause_s)
        self.key = key
        self._model = model
        self._issuer: ConfiguredCredentials | None = None
        """Makes the tokens with which it is called; None if it is called with the key, or with nothing."""
        if model.credentials is not None and model.credentials.token_url is not None:
            self._issuer = ConfiguredCredentials(model.credentials, key)
        self._rules = rules
        self._to = completions_url(model.url)
        self._egress: Egress | None = None
        self._tokens: Credentials | None = None

    def request_completion(
        self, body: bytes, traceparent: str | None, passed: Mapping[str, str] = NOTHING_PASSED
    ) -> AbstractAsyncContextManager[Flow]:
        """Request a completion, with the caller's headers that are `passed` on. Raises EgressError or NoToken."""
        headers = {
            **passed,
            **self._headers,
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
        }
        if traceparent:
            headers["traceparent"] = traceparent
        return self._client.stream(
            "POST",
            self._to,
            head_timeout_s=self._model.answer_s,
            idle_timeout_s=self._model.idle_s,
            headers=headers,
            body=body,
        )

    def record_failure(self, name: str) -> None:
        """Record that the agent `name` got no answer, because the endpoint is away or unwell."""
        pause_s = self.breaker.record_failure()
        if pause_s is not None:
            log.warning(
                "model %s: %s does not answer: the next call is made in %g s",
                name,
                self.place,
                pause_s,
                extra=about(name, agent=name, breaker="open"),
            )

    def record_success(self, name: str) -> None:
        """Record that the agent `name` got an answer."""
        held_back = self.breaker.state is not State.CLOSED
        self.breaker.record_success()
        if held_back:
            log.info("model %s: %s answers again", name, self.place, extra=about(name, agent=name, breaker="closed"))

    @property
    def exchange(self) -> TokenExchange | None:
        """How callers' tokens are exchanged for those of the endpoint; None if they are not."""
        tokens = self._own_tokens
        return tokens if isinstance(tokens, TokenExchange) else None

    @property
    def masking(self) -> Masking:
        """Removes what the endpoint is shown in the present caller's name from what it says."""
        exchange = self.exchange
        return NO_MASKING if exchange is None else Masking(exchange.shown_for(present_subject.get()))

    async def models(self) -> HttpReply:
        """Fetch the list of models, over a separate connection: the agent need not be open.

        Raises EgressError or NoToken.
        """
        return await self._get(models_url(self._model.url))

    async def probe(self) -> HttpReply:
        """Send GET to the URL of completions, which requests no completion.

        This call, too, has a separate connection. Raises EgressError or NoToken.
        """
        return await self._get(self._to)

    async def _get(self, url: str) -> HttpReply:
        egress = self._rules.make_egress()
        try:
            tokens = None if self._issuer is None else self._issuer.make(egress)
            client: HttpClient = egress if tokens is None else Authorized(egress, tokens)
            return await client.request("GET", url, timeout_s=LOOK_S, headers=self._headers)
        finally:
            await egress.close()

    @property
    def place(self) -> str:
        """The URL without what may be secret in it."""
        parts = urlsplit(self._model.url)
        return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))

    @property
    def hint(self) -> str:
        """Advice for the operator when something other than a model answers there."""
        place = self.place
        if "/v1" in place:
            return f"is the URL in `run` right? Completions are asked for at {checked(self._to)}"
        return f"is the URL in `run` right? Most end in /v1: try openai:{place.rstrip('/')}/v1"

    async def close(self) -> None:
        """Close every connection."""
        egress, self._egress, self._tokens = self._egress, None, None
        if egress is not None:
            await egress.close()

    @property
    def _out(self) -> Egress:
        if self._egress is None:
            self._egress = self._rules.make_egress(connections_max=CONNECTIONS_MAX)
        return self._egress

    @property
    def _own_tokens(self) -> Credentials | None:
        if self._tokens is None and self._issuer is not None:
            self._tokens = self._issuer.make(self._out)
        return self._tokens

    @property
    def _client(self) -> HttpClient:
        tokens = self._own_tokens
        return self._out if tokens is None else Authorized(self._out, tokens)

    @property
    def _headers(self) -> dict[str, str]:
        credentials = self._model.credentials
        if not self.key or self._issuer is not None:
            return {}
        if credentials is None or credentials.header is None:
            return {"Authorization": f"Bearer {self.key}"}
        return {credentials.header: self.key}


def completions_url(url: str) -> str:
    """The URL of completions: below the base URL (`/v1` if the URL has no path), or the URL itself if it names them."""
    return _below(url, COMPLETIONS)


def models_url(url: str) -> str:
    """The URL of the list of models."""
    return _below(url, "/models")


async def check_endpoint(endpoint: ModelEndpoint, model: str) -> AsyncIterator[CheckResult]:
    """Yield the findings one after the other, until something is wrong."""
    where = endpoint.place
    if (exchange := endpoint.exchange) is not None:
        yield CheckResult(True, f"{where} is called with tokens for its callers: whether it accepts them was not tried")
        async for finding in check_exchange(exchange):
            yield finding
        return
    try:
        reply = await endpoint.models()
        let_in = reply.status not in (401, 403) and not _refuses(await endpoint.probe())
    except TimedOut as error:
        yield CheckResult(False, str(error), "something listens there: is it still loading the model? Then try again")
        return
    except EgressError as error:
        yield CheckResult(False, str(error), f"is the endpoint running, and is {where} the right address?")
        return
    except NoToken as error:
        yield CheckResult(
            False, str(error), "see whether token_url, client_id and the secret of `credentials` are right"
        )
        return
    if not let_in:
        said = "does not take the key" if endpoint.key else "asks for a key"
        fix = (
            "look at the variable that `credentials` names, and at its `header`"
            if endpoint.key
            else 'set credentials = { env = "NAME" }, where the variable NAME holds the key'
        )
        yield CheckResult(False, f"{where} {said} (status {reply.status if reply.status in (401, 403) else 401})", fix)
        return
    if reply.status == 429 or reply.status >= 500:
        fix = "try again later; if it stays so, ask its operator"
        yield CheckResult(False, f"{where} takes no requests at present (status {reply.status})", fix)
        return
    yield CheckResult(True, f"{where} answers")
    listed = _model_names(reply.body) if reply.ok else None
    if listed is None:
        if reply.ok and reply.body.lstrip().startswith(b"<"):
            yield CheckResult(False, f"{models_url(where)} is a page, not a list of models", endpoint.hint)
        elif reply.status == 404 and "/v1" not in where:
            fix = f"is the base URL right? Most end in /v1: try openai:{where}/v1"
            yield CheckResult(False, f"{models_url(where)} is not there (status 404)", fix)
        else:
            yield CheckResult(True, f"it does not list its models (status {reply.status}): {model} was not looked for")
        return
    if model in listed or f"{model}:latest" in listed or f"models/{model}" in listed:
        yield CheckResult(True, f"it has {model}")
        return
    named = ", ".join(sorted(listed, key=lambda name: (name[:3] != model[:3], name))[:NAMED_MAX])
    yield CheckResult(
        False, f"it has no model {model}", f"set model to one of {named or 'those it has: it has none yet'}"
    )


def _below(url: str, route: str) -> str:
    parts = urlsplit(url)
    base = parts.path.rstrip("/").removesuffix(COMPLETIONS)
    if not parts.path.rstrip("/"):
        base = "/v1"
    return urlunsplit((parts.scheme, parts.netloc, base + route, parts.query, ""))


class _Named(Struct):
    id: str = ""
    name: str = ""


class _List(Struct):
    data: list[_Named] | None = None
    models: list[_Named] | None = None


def _refuses(reply: HttpReply) -> bool:
    """Whether the endpoint refuses completions to this caller. Many endpoints list their models for everybody.

    A key that may call completions and nothing else gets a 401 for this request, too, but one that names what it lacks
    (OpenAI: "Missing scopes").
    """
    return reply.status == 401 and b"scope" not in reply.body.lower()


def _model_names(body: bytes) -> set[str] | None:
    """The names of the models; None if the body is not a list of models."""
    try:
        found: Any = msgspec.json.decode(body, type=_List | list[_Named])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    models = found if isinstance(found, list) else found.data if found.data is not None else found.models
    return None if models is None else {model.id or model.name for model in models}
