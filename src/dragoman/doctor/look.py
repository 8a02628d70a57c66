"""Looks at one endpoint: asks it what changes nothing there, and keeps the answers.

Invariant: credentials go only where those of the client commands go. An endpoint at another origin than the card's,
unless the user named it or has the card as a file, is dialled only at a public address.
"""

import asyncio
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from dragoman.client import Connection, Interface, NoAnswer, NotInstalled, PeerError, Retries, Timeouts, connect
from dragoman.client.decode import tongue
from dragoman.client.discovery import ACCEPT
from dragoman.client.doors import Doors
from dragoman.client.http import HttpClient
from dragoman.dialects.api import RestCall, RpcCall
from dragoman.dialects.cards import GRPC, JSONRPC
from dragoman.doctor.checks.safety import ORIGIN
from dragoman.doctor.observation import BODY_BYTES_MAX, NO_ERROR, Endpoint, Exchange, HarmlessRequest
from dragoman.doctor.subject import CallerIdentity, ExchangeLog, SubjectCard
from dragoman.doctor.trial import ATTEMPT_S
from dragoman.model.errors import A2AError
from dragoman.model.operations import GetExtendedCard, GetTask, Operation
from dragoman.net.egress import Egress
from dragoman.net.errors import AddressRefused, Broken, EgressError

PROBE_S = 5.0
"""How long one answer may take; an agent that needs longer to say that it does not know a task is ill."""

TIMEOUTS = Timeouts(connect_s=4.0, card_s=PROBE_S, answer_s=ATTEMPT_S, idle_s=ATTEMPT_S)


class EndpointLook:
    """The questions to one endpoint. `bare` shows nothing, `shows` the user's credentials where they may go."""

    def __init__(
        self,
        interface: Interface,
        resolved: SubjectCard,
        bare: Doors,
        shows: Doors,
        shown: CallerIdentity,
        headers: Mapping[str, str],
        egress: Egress,
        origins: Sequence[str],
        *,
        asks_extended: bool,
        debug: ExchangeLog | None,
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
        self._asks_extended = asks_extended
        self._debug = debug
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

    def connect(self, shown: CallerIdentity) -> AbstractAsyncContextManager[Connection]:
        """Return a client of the endpoint, for a caller who shows this. It sends nothing twice."""
        interface = self.interface
        if shown.query and self._known and interface.binding != GRPC:
            interface = replace(interface, url=with_query(interface.url, shown.query))
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
            wire=self._debug,
        )

    async def run(self) -> None:
        """Ask everything; stop if the endpoint cannot be reached."""
        if self.interface.binding == GRPC:
            self._answers[HarmlessRequest.UNKNOWN_TASK] = await self._ask_grpc(shows=True)
            if not (first := self._answers[HarmlessRequest.UNKNOWN_TASK]).failure:
                shown = self.shown.given
                self._answers[HarmlessRequest.NO_CREDENTIALS] = await self._ask_grpc(shows=False) if shown else first
                if self._asks_extended:
                    asked = await self._ask_grpc(shows=False, operation=GetExtendedCard())
                    self._answers[HarmlessRequest.EXTENDED_CARD] = asked
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
        if self._asks_extended:
            self._answers[HarmlessRequest.EXTENDED_CARD] = await self._ask(encode(GetExtendedCard()), shows=False)
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
            url = with_query(url, self.shown.query)
        content = {"Content-Type": "application/json"} if body is not None else {}
        spoken = tongue(self.interface.dialect).headers
        headers = {"Accept": ACCEPT, **content, **spoken, **(self._own_headers if shows else {})}
        doors = self._shows if shows else self._bare
        return await send_request(doors.way(url), verb, url, {**headers, **(more or {})}, body, self._debug)

    async def _ask_grpc(self, *, shows: bool, operation: Operation | None = None) -> Exchange:
        """Ask for the task of a random id, or make another call."""
        began_s = time.monotonic()
        try:
            async with self.connect(self.shown if shows else CallerIdentity()) as connection:
                async with asyncio.timeout(PROBE_S):
                    await connection.ask(operation or GetTask(id=str(uuid4())))
        except A2AError as error:
            return Exchange(error=type(error).__name__, elapsed_ms=_since_ms(began_s))
        except NotInstalled:
            return Exchange(failure="not measured: install dragoman[grpc]", error="NotInstalled")
        except TimeoutError:
            return Exchange(failure=f"no answer within {PROBE_S:g} s", elapsed_ms=_since_ms(began_s))
        except (NoAnswer, PeerError) as error:
            return _no_answer(error, began_s)
        return Exchange(error=NO_ERROR, elapsed_ms=_since_ms(began_s))


async def send_request(
    way: HttpClient, verb: str, url: str, headers: Mapping[str, str], body: bytes | None, debug: ExchangeLog | None
) -> Exchange:
    """Send a request. It is sent once more if its connection broke: some servers close theirs after an error of 500."""
    began_s = time.monotonic()
    if debug is not None:
        debug.request(verb, without_query(url), headers, body or b"")
    try:
        try:
            reply = await way.request(verb, url, timeout_s=PROBE_S, headers=headers, body=body)
        except Broken:
            reply = await way.request(verb, url, timeout_s=PROBE_S, headers=headers, body=body)
    except (EgressError, PeerError, NoAnswer) as error:
        if debug is not None:
            debug.note(f"< {error}")
        return _no_answer(error, began_s)
    if debug is not None:
        debug.answer(reply.status, reply.headers, reply.body[:BODY_BYTES_MAX])
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
        certificate=certificate_fault(error),
        elapsed_ms=_since_ms(began_s),
    )


def certificate_fault(error: BaseException) -> str:
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


def with_query(url: str, query: str) -> str:
    return f"{url}{'&' if '?' in url else '?'}{query}"


def without_query(url: str) -> str:
    """Return a URL as it may be shown: its query may hold a key."""
    return url.partition("?")[0]


def _since_ms(began_s: float) -> float:
    return (time.monotonic() - began_s) * 1000
