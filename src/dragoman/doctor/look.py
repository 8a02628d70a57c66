"""Looks at one endpoint: asks it what changes nothing there, and keeps the answers.

Invariant: credentials go only where those of the client commands go. An endpoint at another origin than the card's,
unless the user named it or has the card as a file, is dialled only at a public address.
"""

import asyncio
import itertools
import ssl
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from random import randrange
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
from dragoman.doctor.tape import Tape
from dragoman.doctor.trial import ATTEMPT_S
from dragoman.model.errors import A2AError
from dragoman.model.operations import CancelTask, GetExtendedCard, GetPushConfig, GetTask, Operation
from dragoman.net.egress import Egress
from dragoman.net.errors import AddressRefused, Broken, Compressed, EgressError
from dragoman.net.retry_after import retry_after_s

PROBE_S = 5.0
"""How long one answer may take; an agent that needs longer to say that it does not know a task is ill."""

WAITS_MAX, WAIT_S_MAX, WAIT_S = 2, 4.0, 1.0
"""How often a server that is asked too much is waited for, how long at most, and how long if it does not say."""

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
        asks_webhooks: bool,
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
        self._asks_webhooks = asks_webhooks
        self._ids = itertools.count(randrange(10_000, 1_000_000))  # a server that always answers with 1 is noticed
        self._debug = debug
        self._answers: dict[HarmlessRequest, Exchange] = {}

    @property
    def endpoint(self) -> Endpoint:
        """Return the observations so far."""
        return Endpoint(interface=self.interface, answers=dict(self._answers), known=self._known)

    @property
    def answers(self) -> bool:
        """Whether something answers there that may take messages."""
        return self.endpoint.speaks

    def tape(self) -> Tape:
        """Return a new tape for a connection to the endpoint."""
        return Tape(self._debug, self._own_headers)

    def connect(self, shown: CallerIdentity, tape: Tape | None = None) -> AbstractAsyncContextManager[Connection]:
        """Return a client of the endpoint, for a caller who shows this.

        It sends nothing twice that may have been taken; a server that is asked too much is waited for.
        """
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
            retries=Retries(attempts=1 + WAITS_MAX, first_s=WAIT_S, patience_s=2 * WAIT_S_MAX, dedupes=False),
            wire=tape or self._debug,
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
        cancel = encode(CancelTask(id=str(uuid4())))
        self._answers[HarmlessRequest.UNKNOWN_CANCEL] = await self._ask(cancel, shows=True)
        self._answers[HarmlessRequest.UNKNOWN_VERSION] = await self._ask(call, shows=True, more={"A2A-Version": "99.0"})
        if isinstance(call, RpcCall):
            unknown = RpcCall("DragomanDoctorAsks", b"{}")
            self._answers[HarmlessRequest.UNKNOWN_METHOD] = await self._ask(unknown, shows=True)
            self._answers[HarmlessRequest.NO_ID] = await self._ask(RpcCall(call.method, b"{}"), shows=True)
            self._answers[HarmlessRequest.BROKEN_JSON] = await self._send("POST", "", b'{"jsonrpc": "2.0",', shows=True)
        if self._asks_webhooks and spoken.pushes:
            of_none = encode(GetPushConfig(task_id=str(uuid4()), id=str(uuid4())))
            self._answers[HarmlessRequest.WEBHOOKS] = await self._ask(of_none, shows=True)
        if self._asks_extended:
            extended = encode(GetExtendedCard())
            self._answers[HarmlessRequest.EXTENDED_CARD] = bare = await self._ask(extended, shows=False)
            own = await self._ask(extended, shows=True) if self.shown.given else bare
            self._answers[HarmlessRequest.OWN_EXTENDED_CARD] = own
        preflight = {
            "Origin": ORIGIN,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "content-type",
        }
        self._answers[HarmlessRequest.PREFLIGHT] = await self._send("OPTIONS", "", None, shows=False, more=preflight)

    async def _ask(self, call: RpcCall | RestCall, *, shows: bool, more: Mapping[str, str] | None = None) -> Exchange:
        if isinstance(call, RestCall):
            return await self._send(call.verb, call.path, call.body or None, shows=shows, more=more)
        envelope = {"jsonrpc": "2.0", "id": next(self._ids), "method": call.method, "params": msgspec.Raw(call.params)}
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
        asked = {**headers, **(more or {})}
        came = await send_request(doors.way(url), verb, url, asked, body, self._debug)
        return replace(came, sent_headers={name: asked[name] for name in asked if name not in self._own_headers})

    async def _ask_grpc(self, *, shows: bool, operation: Operation | None = None) -> Exchange:
        """Ask for the task of a random id, or make another call."""
        began_s = now_s()
        try:
            async with self.connect(self.shown if shows else CallerIdentity()) as connection:
                async with asyncio.timeout(PROBE_S):
                    await connection.ask(operation or GetTask(id=str(uuid4())))
        except A2AError as error:
            return Exchange(error=type(error).__name__, elapsed_ms=since_ms(began_s))
        except NotInstalled:
            return Exchange(failure="not measured: install dragoman[grpc]", error="NotInstalled")
        except TimeoutError:
            return Exchange(failure=f"no answer within {PROBE_S:g} s", elapsed_ms=since_ms(began_s))
        except (NoAnswer, PeerError) as error:
            return _no_answer(error, began_s, Exchange())
        return Exchange(error=NO_ERROR, elapsed_ms=since_ms(began_s))


async def send_request(
    way: HttpClient, verb: str, url: str, headers: Mapping[str, str], body: bytes | None, debug: ExchangeLog | None
) -> Exchange:
    """Send a request. It is sent once more if its connection broke: some servers close theirs after an error of 500.
    A server that answers 429 is asked again after the wait that it wants.
    """
    for _ in range(WAITS_MAX):
        came = await _send_once(way, verb, url, headers, body, debug)
        if came.status != 429:
            return came
        after_s = retry_after_s(came.headers.get("retry-after"), round(time.time() * 1000))
        if after_s is not None and after_s > WAIT_S_MAX:
            return came
        await asyncio.sleep(WAIT_S if after_s is None else after_s)
    return await _send_once(way, verb, url, headers, body, debug)


async def _send_once(
    way: HttpClient, verb: str, url: str, headers: Mapping[str, str], body: bytes | None, debug: ExchangeLog | None
) -> Exchange:
    began_s = now_s()
    if debug is not None:
        debug.request(verb, without_query(url), headers, body or b"")
    sent = Exchange(verb=verb, url=without_query(url), sent_headers=dict(headers), sent=body or b"")
    try:
        try:
            reply = await way.request(verb, url, timeout_s=PROBE_S, headers=headers, body=body)
        except Compressed:
            raise
        except Broken:
            reply = await way.request(verb, url, timeout_s=PROBE_S, headers=headers, body=body)
    except (EgressError, PeerError, NoAnswer) as error:
        if debug is not None:
            debug.note(f"< {error}")
        return _no_answer(error, began_s, sent)
    if debug is not None:
        debug.answer(reply.status, reply.headers, reply.body[:BODY_BYTES_MAX])
    return replace(
        sent,
        status=reply.status,
        headers=dict(reply.headers),
        body=reply.body[:BODY_BYTES_MAX],
        elapsed_ms=since_ms(began_s),
    )


def _no_answer(error: Exception, began_s: float, sent: Exchange) -> Exchange:
    causes = _causes(error)
    url = getattr(error, "url", "")
    return replace(
        sent,
        failure=str(error).removeprefix(f"{url}: "),
        refused=any(isinstance(each, AddressRefused) for each in causes),
        compressed=any(isinstance(each, Compressed) for each in causes),
        certificate=certificate_fault(error),
        elapsed_ms=since_ms(began_s),
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


def now_s() -> float:
    """Return the time of the running loop in seconds, which never goes back."""
    return asyncio.get_running_loop().time()


def since_ms(began_s: float) -> float:
    """Return the milliseconds since a time of the loop."""
    return (now_s() - began_s) * 1000
