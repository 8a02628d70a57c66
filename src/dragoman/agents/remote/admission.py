"""Decides when a call may be made for one task, and with whose credentials. Until then the task waits, or ends.

Invariant: a task waits only if the upstream has it already, or has nothing of it and the agent queues. Nothing is sent
while the breaker holds calls back.
"""

import logging

from dragoman.agents.remote import failures
from dragoman.agents.remote.card import NoKeys
from dragoman.agents.remote.credentials import CallerHeaders, Masking, secrets_in
from dragoman.agents.remote.exchange import LOOK_AGAIN_S
from dragoman.agents.remote.failures import UNFOUND
from dragoman.agents.remote.ids import UpstreamIds
from dragoman.agents.remote.route import UpstreamRoute
from dragoman.auth.signatures import CardNotVerified
from dragoman.client import Connection
from dragoman.client.errors import HttpRefusal, NoAnswer, NoCard, NoToken, PeerError
from dragoman.engine.api import Run
from dragoman.model.errors import A2AError, InvalidAgentResponse, TaskNotFound
from dragoman.model.message import Part
from dragoman.net.errors import EgressError

log = logging.getLogger("dragoman.upstreams")

ASKED_S_MAX = 300.0
"""Longest that a task waits between two sends because its upstream asks for it."""


class UpstreamAdmission:
    """Admits the calls of `run` to the upstream of `route`. `queues`: the task waits while the upstream is away."""

    __slots__ = ("_announced", "_ids", "_route", "_run", "_secrets", "_waited", "queues")

    def __init__(self, run: Run, route: UpstreamRoute, ids: UpstreamIds, *, queues: bool) -> None:
        self.queues = queues
        self._run = run
        self._route = route
        self._ids = ids
        self._waited = False
        self._announced = False
        self._secrets: frozenset[str] = frozenset()

    async def connection(self) -> Connection | None:
        """Wait until a call may be made, and return the connection; None if it speaks no A2A. Raises Ended."""
        route = self._route
        while True:
            if route.access.forwards and self._run.shown is None:
                await self.ask_for_credentials()
            while not route.health.breaker.admit():
                if not (self.queues or self._ids.task_id):
                    raise failures.unreachable(route.name, route.health.retry_s)
                await self.wait()
            try:
                connection = await route.endpoint.connection()
            except NoCard:
                route.health.breaker.record_unknown()
                if route.access.keys is not None:
                    raise failures.unverified(route.name) from None
                return None
            except (CardNotVerified, NoKeys):
                route.health.breaker.record_unknown()
                raise failures.unverified(route.name) from None
            except (NoAnswer, PeerError) as error:
                self.record_failure(error)
                if not (self.queues or self._ids.task_id):
                    raise failures.unreachable(route.name, route.health.retry_s) from error
                await self.wait()
                continue
            if self._waited and not self._ids.task_id:
                self._waited = False
                self._run.note(waits="")
                await self._run.written()  # from now on the message may have been sent
            if connection is not None:
                self.set_caller(old=connection.tongue.name == "0.3")
            return connection

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
        if not self._waited and not self._ids.task_id:
            self._waited = True
            self._run.note(waits="1")

    @property
    def credentials_question(self) -> tuple[Part, ...]:
        """The question for a caller whose credentials are needed."""
        return (Part(text=f"{self._route.name} wants to know who asks: send a message with your credentials."),)

    async def ask_for_credentials(self) -> None:
        """Ask the caller for its credentials. They are not stored, so that a restart loses them."""
        self._note_waiting()
        while True:
            await self._run.ask(self.credentials_question, auth=True)
            if self._run.shown is not None:
                return

    def set_caller(self, *, old: bool) -> None:
        """Send the caller's credentials and extensions with the run's further calls. `old`: as 0.3 needs them."""
        run, shown = self._run, self._run.shown
        if not (run.extensions or self._route.access.forwards):
            return
        masking: Masking | None = None
        if self._route.access.forwards and shown is not None:
            self._secrets |= secrets_in(shown.headers)
            masking = Masking(self._secrets)
        self._route.access.credentials.caller.set(CallerHeaders(shown, run.extensions, old, masking))

    def record_failure(self, error: A2AError | NoAnswer | PeerError | EgressError) -> None:
        """Record how a call failed: in the log, the breaker and the metrics."""
        route = self._route
        down = isinstance(error, NoAnswer | NoToken | EgressError) or (
            isinstance(error, HttpRefusal) and error.status >= 500
        )
        words = route.access.describe(error)
        log.warning("upstream %s: task %s: %s: %s", route.name, self._run.head.id, type(error).__name__, words)
        if failures.not_there(error):
            log.warning("upstream %s: there is no agent at %s: check `run`", route.name, route.access.place)
        if down:
            route.health.record_failure()
            route.health.count("failed")
        else:
            route.health.record_answer()
            route.health.count("refused")
            if failures.shuts_out(error) and not route.access.forwards:
                route.health.record_shut_out()
        if isinstance(error, NoAnswer | PeerError | InvalidAgentResponse | TaskNotFound):
            route.endpoint.request_reading()

    async def refresh_card(self) -> bool:
        """Read the card again, now, since the agent may have changed its interface. False if it cannot be read."""
        try:
            await self._route.endpoint.refresh_card()
        except UNFOUND:
            return False
        return True
