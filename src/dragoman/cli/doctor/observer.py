"""Looks at an agent: fetches its card, and asks each endpoint what changes nothing there.

Invariant: without a Wish no message is sent, and nothing is stored at the agent. Credentials go where those of the
client commands go. An endpoint at another origin than the card's, unless the user named it, is dialled only at a public
address. Every wait ends: what has not answered in time is recorded as such.
"""

import asyncio
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from dragoman.cli.a2a.card import describe_signature
from dragoman.cli.a2a.credentials import AgentCredentials, choose_credentials
from dragoman.cli.a2a.failures import Code, Failure
from dragoman.cli.a2a.output import warn
from dragoman.cli.a2a.reference import ResolvedCard, origin_of, resolve_card
from dragoman.cli.a2a.session import choose_interface, make_tls, named_agent, service_parameters
from dragoman.cli.a2a.settings import Settings
from dragoman.cli.a2a.tokens import stored_token
from dragoman.cli.doctor.checks.safety import ORIGIN
from dragoman.cli.doctor.observation import BODY_BYTES_MAX, Endpoint, Exchange, HarmlessRequest, Observations
from dragoman.cli.doctor.trial import ATTEMPT_S, Trial, Wish
from dragoman.client import (
    CallTimedOut,
    Connection,
    Interface,
    NoAnswer,
    NoCard,
    NotInstalled,
    NotReached,
    PeerError,
    Retries,
    Timeouts,
    connect,
    interfaces,
)
from dragoman.client.decode import tongue
from dragoman.client.discovery import ACCEPT, places
from dragoman.client.endpoint import Doors
from dragoman.client.http import HttpClient
from dragoman.dialects.api import RestCall, RpcCall
from dragoman.dialects.cards import GRPC, JSONRPC
from dragoman.dialects.client.card import decode_card
from dragoman.dialects.client.scalars import Unfit
from dragoman.model.errors import A2AError
from dragoman.model.operations import GetTask
from dragoman.net.address import fault
from dragoman.net.dialer import find_addresses
from dragoman.net.egress import Egress
from dragoman.net.errors import AddressRefused, Broken, EgressError

PROBE_S = 5.0
"""How long one answer may take; an agent that needs longer to say that it does not know a task is ill."""

LOOK_S = 25.0
"""How long all endpoints may take together. They are asked at the same time."""

LOOK_BEFORE_TRIAL_S = 10.0
"""The same, if messages are sent after that."""

ALL_S = 28.0
"""When the last attempt ends, counted from the beginning."""

LIMIT_S = 29.5
"""How long everything may take."""

CARD_S = 12.0
"""How long it may take to find the card."""

ENDPOINTS_MAX = 8
"""How many endpoints of a card are asked; further ones are named as not tried."""

TIMEOUTS = Timeouts(connect_s=4.0, card_s=PROBE_S, answer_s=ATTEMPT_S, idle_s=ATTEMPT_S)


async def observe(settings: Settings, wish: Wish | None = None, second_key: str = "") -> Observations:
    """Look at the agent that the settings name, and with a `wish` send it messages.

    `second_key` is a key of another caller. Raises Failure if the agent cannot be reached, or if its card or anything
    else takes too long; SettingsError.
    """
    try:
        async with asyncio.timeout(LIMIT_S):
            return await _observe(settings, wish, second_key)
    except TimeoutError as error:
        raise Failure(
            Code.TIMEOUT, f"the examination took longer than {LIMIT_S:g} s", hint="try again later"
        ) from error


async def _observe(settings: Settings, wish: Wish | None, second_key: str) -> Observations:
    agent = named_agent(settings)
    headers = service_parameters(settings)
    tls = await make_tls(settings, agent)
    egress = Egress(tls=tls, connect_timeout_s=TIMEOUTS.connect_s)
    try:
        began_s = time.monotonic()
        try:
            async with asyncio.timeout(CARD_S):
                resolved = await resolve_card(agent, egress=egress, headers={})
        except TimeoutError as error:
            raise Failure(Code.UNREACHABLE, f"{_without_query(agent)} shows no card within {CARD_S:g} s") from error
        except Failure as failure:
            if failure.code != Code.CARD_INVALID or not (origin := origin_of(agent)):
                raise
            instead = ((origin, failure.message),)
            return Observations(
                agent=_without_query(agent), place=origin, tried=instead, public=await _is_public(agent)
            )
        except NoCard as error:
            tried = tuple((_without_query(each.url), each.answer) for each in error.tried)
            return Observations(
                agent=_without_query(agent), place=origin_of(agent), tried=tried, public=await _is_public(agent)
            )
        except (NotReached, CallTimedOut) as error:
            if not (reason := _certificate_fault(error)):
                raise
            return Observations(
                agent=_without_query(agent), place=origin_of(agent), certificate=reason, now_s=time.time()
            )
        url = resolved.found.url
        stored = await stored_token(origin_of(url), egress)
        card = _read_card(resolved)
        shown = choose_credentials(settings, agent, card.security_schemes or {} if card else {}, stored)
        for warning in shown.warnings:
            warn(warning)
        trusted = (url, *settings["trust-origin"].values)
        bare = Doors(egress, trusted, None, TIMEOUTS, tls)
        shows = Doors(egress, trusted, shown.credentials, TIMEOUTS, tls)
        try:
            seen = Observations(
                agent=_without_query(agent),
                place=_without_query(resolved.place),
                card=resolved.found.card,
                card_exchange=None if resolved.vouched else await _fetch(egress, url),
                signature=await describe_signature(resolved, settings, egress),
                public=await _is_public(url),
                tls=await egress.reach(url, timeout_s=PROBE_S) if url.startswith("https://") else None,
                unspoken=tuple(_unspoken(resolved.found.card)),
                schemes=card.security_schemes or {} if card else {},
                requirements=card.security_requirements if card else (),
                authenticated=shown.given,
                now_s=time.time(),
            )
            listed = interfaces(resolved.found.card, url, places(url).base, as_listed=True)
            until_s = began_s + ALL_S
            left_s = (LOOK_S if wish is None else LOOK_BEFORE_TRIAL_S) - (time.monotonic() - began_s)
            trust = settings["trust-origin"].values
            looks = [
                _Look(each, resolved, bare, shows, shown, headers, egress, trust) for each in listed[:ENDPOINTS_MAX]
            ]
            seen = replace(seen, endpoints=await _look_at_all(looks, max(left_s, 1.0)))
            if wish is None or (chosen := _choose_endpoint(settings, resolved, looks)) is None:
                return seen
            second = _second_caller(settings, second_key, seen.schemes)
            return await _try(seen, chosen, wish, second, until_s)
        finally:
            await bare.close()
            await shows.close()
    finally:
        await egress.close()


def _choose_endpoint(settings: Settings, resolved: ResolvedCard, looks: list["_Look"]) -> "_Look | None":
    """Choose the endpoint that the client commands would use, or the first one that answers."""
    answering = [look for look in looks if look.answers]
    try:
        preferred = choose_interface(settings, resolved)
    except Failure:
        preferred = None
    return next((look for look in answering if look.interface == preferred), answering[0] if answering else None)


def _second_caller(settings: Settings, key: str, schemes: Mapping[str, Any]) -> AgentCredentials:
    """Return what another caller shows: the key, where the card wants an API key, else as a bearer token."""
    if not key:
        return AgentCredentials()
    agent = settings.text("agent-card")
    given = {"agent-card": (agent,), "api-key": (key,), "bearer": (key,)}
    return choose_credentials(Settings(given, {}, ()), agent, dict(schemes), None)


async def _try(seen: Observations, look: "_Look", wish: Wish, second: AgentCredentials, until_s: float) -> Observations:
    """Make the attempts at one endpoint, as far as the time allows."""
    async with AsyncExitStack() as open_:
        connection = await open_.enter_async_context(look.connect(look.shown))
        other = await open_.enter_async_context(look.connect(second)) if second.given else None
        trial = Trial(connection, other, wish, streams=seen.streams)
        try:
            async with asyncio.timeout(until_s - time.monotonic()):
                await trial.run()
        except TimeoutError:
            pass  # what has come is recorded; the rest is not measured
    return replace(seen, tried_at=look.endpoint, attempts=dict(trial.outcomes))


async def _look_at_all(looks: list["_Look"], within_s: float) -> tuple[Endpoint, ...]:
    try:
        async with asyncio.timeout(within_s), asyncio.TaskGroup() as group:
            for look in looks:
                group.create_task(look.run())
    except TimeoutError:
        pass  # what has come is recorded; the rest is not measured
    return tuple(look.endpoint for look in looks)


class _Look:
    """The questions to one endpoint. `bare` shows nothing, `shows` the user's credentials where they may go."""

    def __init__(
        self,
        interface: Interface,
        resolved: ResolvedCard,
        bare: Doors,
        shows: Doors,
        shown: AgentCredentials,
        headers: Mapping[str, str],
        egress: Egress,
        origins: Sequence[str],
    ) -> None:
        self.interface = interface
        self.shown = shown
        self._resolved = resolved
        self._bare = bare
        self._shows = shows
        self._egress = egress
        self._known = shows.knows(interface.url)
        self._own_headers = headers if self._known else {}
        self._origins = origins
        self._answers: dict[HarmlessRequest, Exchange] = {}

    @property
    def endpoint(self) -> Endpoint:
        """Return the observations so far."""
        return Endpoint(interface=self.interface, answers=dict(self._answers), known=self._known)

    @property
    def answers(self) -> bool:
        """Whether anything answers there."""
        first = self._answers.get(HarmlessRequest.UNKNOWN_TASK)
        return first is not None and not first.failure

    def connect(self, shown: AgentCredentials) -> AbstractAsyncContextManager[Connection]:
        """Return a client of the endpoint, for a caller who shows this. It sends nothing twice."""
        interface = self.interface
        if shown.query and self._known and interface.binding != GRPC:
            interface = replace(interface, url=_with_query(interface.url, shown.query))
        return connect(
            self._resolved.found.url,
            card=self._resolved.found,
            interface=interface,
            credentials=shown.credentials,
            headers=self._own_headers,
            origins=self._origins,
            egress=self._egress,
            timeouts=TIMEOUTS,
            retries=Retries(attempts=1, dedupes=False),
        )

    async def run(self) -> None:
        """Ask everything; stop if the endpoint cannot be reached."""
        if self.interface.binding == GRPC:
            self._answers[HarmlessRequest.UNKNOWN_TASK] = await self._ask_grpc(shows=True)
            if not (first := self._answers[HarmlessRequest.UNKNOWN_TASK]).failure:
                shown = self.shown.given
                self._answers[HarmlessRequest.NO_CREDENTIALS] = await self._ask_grpc(shows=False) if shown else first
            return
        spoken = tongue(self.interface.dialect)
        encode = spoken.rpc if self.interface.binding == JSONRPC else spoken.rest
        if encode is None:
            return
        call = encode(GetTask(id=str(uuid4())))
        first = await self._ask(call, shows=True)
        self._answers[HarmlessRequest.UNKNOWN_TASK] = first
        if first.failure:
            return
        self._answers[HarmlessRequest.NO_CREDENTIALS] = (
            await self._ask(call, shows=False) if self.shown.given else first
        )
        self._answers[HarmlessRequest.UNKNOWN_VERSION] = await self._ask(call, shows=True, more={"A2A-Version": "99.0"})
        if isinstance(call, RpcCall):
            unknown = RpcCall("DragomanDoctorAsks", b"{}")
            self._answers[HarmlessRequest.UNKNOWN_METHOD] = await self._ask(unknown, shows=True)
            self._answers[HarmlessRequest.BROKEN_JSON] = await self._send("POST", "", b'{"jsonrpc": "2.0",', shows=True)
        preflight = {
            "Origin": ORIGIN,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "content-type",
        }
        self._answers[HarmlessRequest.PREFLIGHT] = await self._send("OPTIONS", "", None, shows=False, more=preflight)

    async def _ask(self, call: RpcCall | RestCall, *, shows: bool, more: Mapping[str, str] | None = None) -> Exchange:
        if isinstance(call, RestCall):
            return await self._send(call.verb, call.path, call.body or None, shows=shows, more=more)
        envelope = {"jsonrpc": "2.0", "id": 1, "method": call.method, "params": msgspec.Raw(call.params)}
        return await self._send("POST", "", msgspec.json.encode(envelope), shows=shows, more=more)

    async def _send(
        self, verb: str, path: str, body: bytes | None, *, shows: bool, more: Mapping[str, str] | None = None
    ) -> Exchange:
        url = self.interface.url if not path else self.interface.url.rstrip("/") + path
        if shows and self._known and self.shown.query:
            url = _with_query(url, self.shown.query)
        content = {"Content-Type": "application/json"} if body is not None else {}
        spoken = tongue(self.interface.dialect).headers
        headers = {"Accept": ACCEPT, **content, **spoken, **(self._own_headers if shows else {})}
        doors = self._shows if shows else self._bare
        return await _exchange(doors.way(url), verb, url, {**headers, **(more or {})}, body)

    async def _ask_grpc(self, *, shows: bool) -> Exchange:
        began_s = time.monotonic()
        try:
            async with self.connect(self.shown if shows else AgentCredentials()) as connection:
                async with asyncio.timeout(PROBE_S):
                    await connection.ask(GetTask(id=str(uuid4())))
        except A2AError as error:
            return Exchange(error=type(error).__name__, elapsed_ms=_since_ms(began_s))
        except NotInstalled:
            return Exchange(failure="not measured: install dragoman[grpc]", error="NotInstalled")
        except TimeoutError:
            return Exchange(failure=f"no answer within {PROBE_S:g} s", elapsed_ms=_since_ms(began_s))
        except (NoAnswer, PeerError) as error:
            return _no_answer(error, began_s)
        return Exchange(error="no error", elapsed_ms=_since_ms(began_s))


async def _fetch(egress: Egress, url: str) -> Exchange:
    return await _exchange(egress, "GET", url, {"Accept": ACCEPT, "A2A-Version": "1.0"}, None)


async def _exchange(way: HttpClient, verb: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Exchange:
    """Send a request. It is sent once more if its connection broke: some servers close theirs after an error of 500."""
    began_s = time.monotonic()
    try:
        try:
            reply = await way.request(verb, url, timeout_s=PROBE_S, headers=headers, body=body)
        except Broken:
            reply = await way.request(verb, url, timeout_s=PROBE_S, headers=headers, body=body)
    except (EgressError, PeerError, NoAnswer) as error:
        return _no_answer(error, began_s)
    return Exchange(
        status=reply.status,
        headers=dict(reply.headers),
        body=reply.body[:BODY_BYTES_MAX],
        elapsed_ms=_since_ms(began_s),
    )


def _no_answer(error: Exception, began_s: float) -> Exchange:
    refused = any(isinstance(each, AddressRefused) for each in _causes(error))
    url = getattr(error, "url", "")
    return Exchange(
        failure=str(error).removeprefix(f"{url}: "),
        refused=refused,
        certificate=_certificate_fault(error),
        elapsed_ms=_since_ms(began_s),
    )


def _certificate_fault(error: BaseException) -> str:
    """Return why a certificate is not trusted; empty if the error is another one."""
    for each in _causes(error):
        if isinstance(each, ssl.SSLCertVerificationError):
            return each.verify_message or "it cannot be verified"
    return ""


def _causes(error: BaseException) -> list[BaseException]:
    causes = []
    cause: BaseException | None = error
    while cause is not None:
        causes.append(cause)
        cause = cause.__cause__
    return causes


def _with_query(url: str, query: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{query}"


def _without_query(url: str) -> str:
    """Return a URL as it may be shown: its query may hold a key."""
    return url.partition("?")[0]


def _since_ms(began_s: float) -> float:
    return (time.monotonic() - began_s) * 1000


async def _is_public(url: str) -> bool:
    """Whether every address of a URL's host is on the public internet."""
    host = urlsplit(origin_of(url)).hostname or ""
    try:
        return all(fault(address) is None for address in await find_addresses(host, None)) if host else False
    except OSError:
        return False


def _read_card(resolved: ResolvedCard) -> Any:
    try:
        return decode_card(resolved.found.card)
    except Unfit:
        return None


def _unspoken(card: Mapping[str, Any]) -> list[str]:
    """Name the endpoints of a list whose binding or version this tool does not speak."""
    from dragoman.client.card import binding_of, dialect_of

    listed = card.get("supportedInterfaces")
    named = []
    for each in listed if isinstance(listed, list) else ():
        if not isinstance(each, dict):
            continue
        binding = each.get("protocolBinding") or each.get("transport") or JSONRPC
        version = each.get("protocolVersion") or card.get("protocolVersion") or "1.0"
        if not isinstance(binding, str) or not isinstance(version, str):
            continue
        if binding_of(binding) is None or dialect_of(version) is None:
            named.append(f"{binding} {version} {each.get('url')}")
    return named
