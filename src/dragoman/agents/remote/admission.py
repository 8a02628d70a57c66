"""Decides when a call may be made for one task, and with whose credentials. Until then the task waits, or ends.

Invariant: a task waits only if the upstream has it already, or has nothing of it and the agent queues. Nothing is sent
while the breaker holds calls back.
"""

import logging
from collections.abc import Mapping

from dragoman.agents.acting_party import UNNAMED, ActingParty
from dragoman.agents.masking import TaskSecrets, secrets_in
from dragoman.agents.passed_headers import SECRET, check_sendable, headers_to_pass
from dragoman.agents.remote import failures
from dragoman.agents.remote.card import NoKeys
from dragoman.agents.remote.credentials import CallerHeaders
from dragoman.agents.remote.exchange import LOOK_AGAIN_S
from dragoman.agents.remote.failures import NOT_SIGNED, UNFOUND, CallWithheld
from dragoman.agents.remote.ids import UpstreamIds
from dragoman.agents.remote.route import UpstreamRoute
from dragoman.auth.signatures import CardNotVerified
from dragoman.client import Connection
from dragoman.client.errors import (
    ExchangeRefused,
    ExchangeUnusable,
    HttpRefusal,
    NoAnswer,
    NoCard,
    NoToken,
    PeerError,
    is_untaken,
)
from dragoman.dialects.extensions import told_chain
from dragoman.engine.api import Ended, Run
from dragoman.model.acting_chain import Chain
from dragoman.model.errors import A2AError, InvalidAgentResponse, TaskNotFound
from dragoman.model.message import Part
from dragoman.net.errors import EgressError

log = logging.getLogger("dragoman.upstreams")

ASKED_S_MAX = 300.0
"""Longest that a task waits between two sends because its upstream asks for it."""


class UpstreamAdmission:
    """Admits the calls of `run` to the upstream of `route`. `queues`: the task waits while the upstream is away.

    `headers`: the upstream is sent headers of the caller's requests. Once an upstream may have the message, no wait is
    noted: a later run would send the message as one that nobody has.
    """

    __slots__ = (
        "_acting",
        "_announced",
        "_headers",
        "_ids",
        "_route",
        "_run",
        "_secrets",
        "_unsure",
        "_waited",
        "queues",
    )

    def __init__(self, run: Run, route: UpstreamRoute, ids: UpstreamIds, *, queues: bool, headers: bool) -> None:
        self.queues = queues
        self._headers = headers
        self._run = run
        self._route = route
        self._ids = ids
        self._waited = False
        self._announced = False
        self._secrets = TaskSecrets() if route.access.for_callers else None
        self._unsure = False
        self._acting: ActingParty | None = None
        if route.access.upstream.exchanges:
            self._acting = ActingParty(run, route.name)

    def follow(self, earlier: "UpstreamAdmission") -> None:
        """Go on after the admission to another member: what that has told and noted of the task still holds."""
        self._waited, self._announced = earlier._waited, earlier._announced

    def note_doubt(self, *, unsure: bool) -> None:
        """Note whether an upstream may have the message."""
        self._unsure = unsure

    def load_wait(self) -> None:
        """Load that an earlier run noted that the task waits. Before anything is sent, the note is taken back."""
        self._waited = True

    async def connection(self) -> Connection | None:
        """Wait until a call may be made, and return the connection; None if it speaks no A2A. Raises Ended."""
        route = self._route
        while True:
            if route.access.for_callers and self._run.shown is None:
                if self._acting is not None:
                    self._acting.check_caller()
                await self.ask_for_credentials()
            while not route.health.breaker.admit():
                await self._wait_or_end("calls are held back", None)
            try:
                connection = await route.endpoint.connection()
            except NoCard:
                route.health.breaker.record_unknown()
                if route.access.keys is not None:
                    raise self._end(NOT_SIGNED, failures.unverified(route.name)) from None
                connection = None
            except (CardNotVerified, NoKeys):
                route.health.breaker.record_unknown()
                raise self._end(NOT_SIGNED, failures.unverified(route.name)) from None
            except (NoAnswer, PeerError) as error:
                self.record_failure(error)
                await self._wait_or_end(route.access.describe(error), error)
                continue
            try:
                identified = self._acting is None or await self._identify(self._acting)
            except NoToken as error:
                self.record_failure(error)
                if isinstance(error, ExchangeUnusable):
                    raise failures.ending(route.name, error) from error
                await self._wait_or_end(route.access.describe(error), error)
                continue
            if not identified:
                await self.ask_for_credentials()
                continue
            if self._waited and not self._ids.task_id:
                self._waited = False
                self._run.note(waits="")
                await self._run.written()  # from now on the message may have been sent
            if connection is not None:
                self.set_caller(old=connection.tongue.name == "0.3")
            return connection

    @property
    def _moves(self) -> bool:
        """Whether the message may still go to another member of a pool."""
        return self._route.member is not None and not self._ids.task_id and self._ids.number == 1

    async def _wait_or_end(self, why: str, error: Exception | None) -> None:
        """Wait until the upstream may be called again, where the task waits for it. Raises Ended, or CallWithheld if
        another member may take it; both come `from` the error, if there is one.
        """
        name = self._route.name
        ended = failures.uncertain(name) if self._unsure else failures.unreachable(name, self._route.health.retry_s)
        if self._moves:
            raise self._withhold(why, ended) from error
        if not (self.queues or self._ids.task_id):
            raise ended from error
        await self.wait()

    def _withhold(self, why: str, ended: Ended) -> CallWithheld:
        return CallWithheld(self._route.access.place, why, ended)

    def _end(self, why: str, ended: Ended) -> Exception:
        """The exception where no call can be made: the end of the task, unless another member may take it."""
        return self._withhold(why, ended) if self._moves else ended

    @property
    def chain(self) -> Chain:
        """The chain of those who act in the calls of the run, as far as tokens are exchanged."""
        return told_chain(self._run.message.metadata) if self._acting is None else self._acting.chain

    async def _identify(self, acting: ActingParty) -> bool:
        """Let calls be made in the caller's name. False: it is to be asked for another token. Raises Ended or NoToken.

        The outcome says nothing about the upstream.
        """
        exchange = self._route.access.exchange
        assert exchange is not None  # the way is open, and its credentials are an exchange
        identified = False
        try:
            identified = await acting.identify(exchange)
        finally:
            if not identified:
                self._route.health.breaker.record_unknown()
        return identified

    async def wait(self, asked_s: float = 0.0) -> None:
        """Wait until the upstream may answer again. Nothing has been sent.

        `asked_s` is the wait in seconds that the upstream asks for.
        """
        if not self._announced:
            self._announced = True
            self._run.waiting((Part(text=f"{self._route.name} cannot be reached at present: the task waits for it."),))
        self._note_waiting()
        self._route.endpoint.request_reading()
        health = self._route.health
        await health.pause(max(min(LOOK_AGAIN_S, max(0.2, health.breaker.wait_s)), min(asked_s, ASKED_S_MAX)))

    def _note_waiting(self) -> None:
        if not (self._waited or self._unsure or self._ids.task_id):
            self._waited = True
            self._run.note(waits="1")

    @property
    def credentials_question(self) -> tuple[Part, ...]:
        """The question for a caller whose credentials are needed."""
        return (Part(text=UNNAMED.format(self._route.name)),) if self._acting is None else self._acting.question

    @property
    def credentials_questions(self) -> tuple[tuple[Part, ...], ...]:
        """All questions for a caller's credentials: their answers are for this server, and not for the upstream."""
        return (self.credentials_question,) if self._acting is None else self._acting.questions

    async def ask_for_credentials(self) -> None:
        """Ask the caller for its credentials. They are not stored, so that a restart loses them."""
        self._note_waiting()
        while True:
            await self._run.ask(self.credentials_question, auth=True)
            if self._run.shown is not None:
                return

    def set_caller(self, *, old: bool) -> None:
        """Send the caller's credentials, extensions and listed headers with the run's further calls.

        `old`: as 0.3 needs them. Raises Ended for a header that cannot be passed on.
        """
        run, shown = self._run, self._run.shown
        if not (run.extensions or self._route.access.for_callers or self._headers):
            return
        listed: Mapping[str, str] = headers_to_pass(run, self._route.name) if self._headers else {}
        secrets, exchange = self._secrets if shown is not None else None, self._route.access.exchange
        if secrets is not None and shown is not None:
            check_sendable(shown.headers, self._route.name)
            secret = {name: value for name, value in listed.items() if name in SECRET}
            secrets.add(secrets_in(shown.headers) | secrets_in(secret))
            secrets.add(() if exchange is None else exchange.secrets)
        self._route.access.credentials.caller.set(CallerHeaders(shown, run.extensions, old, secrets, listed))

    def record_failure(self, error: A2AError | NoAnswer | PeerError | EgressError) -> None:
        """Record how a call failed: in the log, the breaker and the metrics."""
        route = self._route
        if isinstance(error, CallWithheld):
            return
        if isinstance(error, ExchangeRefused | ExchangeUnusable):  # the upstream was not called
            route.health.breaker.record_unknown()
            words = route.access.describe(error)
            log.warning("upstream %s: task %s: %s: %s", route.label, self._run.head.id, type(error).__name__, words)
            if self._acting is not None and isinstance(error, ExchangeRefused):
                self._acting.note_refusal()
            return
        down = isinstance(error, NoAnswer | NoToken | EgressError) or (
            isinstance(error, HttpRefusal) and error.status >= 500
        )
        words = route.access.describe(error)
        log.warning("upstream %s: task %s: %s: %s", route.label, self._run.head.id, type(error).__name__, words)
        if failures.not_there(error):
            log.warning("upstream %s: there is no agent at %s: check `run`", route.label, route.access.place)
        if down:
            route.health.record_failure()
            route.health.count("failed")
        else:
            route.health.record_answer()
            route.health.count("refused")
            if is_untaken(error):
                route.health.rest(failures.asked_s(error))
            if failures.shuts_out(error) and not route.access.for_callers:
                route.health.record_shut_out()
        if isinstance(error, NoAnswer | PeerError | EgressError | InvalidAgentResponse | TaskNotFound):
            route.endpoint.request_reading()

    async def refresh_card(self) -> bool:
        """Read the card again, now, since the agent may have changed its interface. False if it cannot be read."""
        try:
            await self._route.endpoint.refresh_card()
        except UNFOUND:
            return False
        return True
