"""Decides when a call may be made for one task, and with whose credentials. Until then the task waits, or ends.

Invariant: a task waits only if the upstream has it already, or has nothing of it and the agent queues. Nothing is sent
while the breaker holds calls back.
"""

import logging

from dragoman.agents.remote import failures
from dragoman.agents.remote.attribution import Said
from dragoman.agents.remote.card_keys import NoKeys
from dragoman.agents.remote.faults import UNFOUND
from dragoman.agents.remote.names import Names
from dragoman.agents.remote.route import UpstreamWay
from dragoman.agents.remote.secrets import Masking, secrets_in
from dragoman.auth.signatures import CardNotVerified
from dragoman.client import Connection
from dragoman.client.errors import HttpRefusal, NoAnswer, NoCard, NoToken, PeerError
from dragoman.engine.api import Run
from dragoman.model.errors import A2AError, InvalidAgentResponse, TaskNotFound
from dragoman.model.message import Part

log = logging.getLogger("dragoman.upstreams")

LOOK_AGAIN_S = 5.0
"""Longest time between two checks whether an upstream can be called."""

ASKED_S_MAX = 300.0
"""Longest that a task waits between two sends because its upstream asks for it."""


class Admission:
    """Admits the calls of `run` to the upstream of `way`. `queues`: the task waits while the upstream is away."""

    __slots__ = ("_names", "_run", "_secrets", "_told", "_waited", "_way", "queues")

    def __init__(self, run: Run, way: UpstreamWay, names: Names, *, queues: bool) -> None:
        self.queues = queues
        self._run = run
        self._way = way
        self._names = names
        self._waited = False
        self._told = False
        self._secrets: frozenset[str] = frozenset()

    async def connection(self) -> Connection | None:
        """Wait until a call may be made, and return the connection; None if it speaks no A2A. Raises Ended."""
        way = self._way
        while True:
            if way.forwards and self._run.shown is None:
                await self.ask_who()
            while not way.breaker.admit():
                if not (self.queues or self._names.task_id):
                    raise failures.unreachable(way.name, way.again_s)
                await self.wait()
            try:
                connection = await way.connection()
            except NoCard:
                way.breaker.unknown()
                if way.verifies:
                    raise failures.unverified(way.name) from None
                return None
            except (CardNotVerified, NoKeys):
                way.breaker.unknown()
                raise failures.unverified(way.name) from None
            except (NoAnswer, PeerError) as error:
                self.met(error)
                if not (self.queues or self._names.task_id):
                    raise failures.unreachable(way.name, way.again_s) from error
                await self.wait()
                continue
            if self._waited and not self._names.task_id:
                self._waited = False
                self._run.note(waits="")
                await self._run.written()  # from now on the message may have been sent
            if connection is not None:
                self.show(old=connection.tongue.name == "0.3")
            return connection

    async def wait(self, asked_s: float = 0.0) -> None:
        """Wait until the upstream may answer again. Nothing has been sent.

        `asked_s` is the wait in seconds that the upstream asks for.
        """
        if not self._told:
            self._told = True
            self._run.waiting((Part(text=f"{self._way.name} cannot be reached at present: the task waits for it."),))
        self._note_waiting()
        self._way.look()
        await self._way.pause(max(min(LOOK_AGAIN_S, max(0.2, self._way.breaker.wait_s)), min(asked_s, ASKED_S_MAX)))

    def _note_waiting(self) -> None:
        if not self._waited and not self._names.task_id:
            self._waited = True
            self._run.note(waits="1")

    @property
    def who(self) -> tuple[Part, ...]:
        """The question for a caller whose credentials are needed."""
        return (Part(text=f"{self._way.name} wants to know who asks: send a message with your credentials."),)

    async def ask_who(self) -> None:
        """Ask the caller for its credentials. They are not stored, so that a restart loses them."""
        self._note_waiting()
        while True:
            await self._run.ask(self.who, auth=True)
            if self._run.shown is not None:
                return

    def show(self, *, old: bool) -> None:
        """Send the caller's credentials and extensions with the run's further calls. `old`: as 0.3 needs them."""
        run, shown = self._run, self._run.shown
        if not (run.extensions or self._way.forwards):
            return
        masking: Masking | None = None
        if self._way.forwards and shown is not None:
            self._secrets |= secrets_in(shown.headers)
            masking = Masking(self._secrets)
        self._way.said.caller.set(Said(shown, run.extensions, old, masking))

    def met(self, error: A2AError | NoAnswer | PeerError) -> None:
        """Record how a call failed: in the log, the breaker and the metrics."""
        way = self._way
        down = isinstance(error, NoAnswer | NoToken) or (isinstance(error, HttpRefusal) and error.status >= 500)
        log.warning("upstream %s: task %s: %s: %s", way.name, self._run.head.id, type(error).__name__, way.words(error))
        if failures.not_there(error):
            log.warning("upstream %s: there is no agent at %s: check `run`", way.name, way.place)
        if down:
            way.failed()
            way.count("failed")
        else:
            way.answered()
            way.count("refused")
            if failures.shuts_out(error):
                way.shut_out()
        if isinstance(error, NoAnswer | PeerError | InvalidAgentResponse | TaskNotFound):
            way.look()

    async def reread(self) -> bool:
        """Read the card again, now, since the agent may have changed its interface. False if it cannot be read."""
        try:
            await self._way.reread()
        except UNFOUND:
            return False
        return True
