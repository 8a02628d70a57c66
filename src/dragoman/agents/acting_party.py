"""ActingParty: this server as it acts for the caller of a run, whose token is exchanged before calls in its name.

    token ── exchanged ──► the calls are made with the token that was issued
      ├── it is missing, as after a restart, or refused ──► the caller is asked (`auth-required`) ── answered ──► token
      ├── it is the one that was refused before, or the `ASKS_MAX`th that is refused ──► the task ends
      └── the caller has none, as with a key or a certificate ──► the task ends

Invariant: a refusal is passed on to the caller once for each token, so that nothing goes in a circle. The note of the
chain holds names, never a token.
"""

import logging
from collections.abc import Iterable
from contextlib import suppress

from dragoman.client.errors import ExchangeRefused, NoToken
from dragoman.client.token_exchange import SubjectToken, TokenExchange, present_subject, read_subject_token
from dragoman.dialects.extensions import told_chain
from dragoman.engine.api import Ended, Run
from dragoman.engine.runs.places import enter_named_branch, return_to_branch
from dragoman.model.acting_chain import NOTE, Chain, joined_chain, spell_chain, spelled_chain, with_link
from dragoman.model.message import Part
from dragoman.model.principal import KEY_PREFIX, own_id
from dragoman.model.task import TaskState

log = logging.getLogger("dragoman.upstreams")

ASKS_MAX = 3
"""How many tokens of one caller may be refused in a row until its task ends."""

NO_TOKENS = (KEY_PREFIX, "agent-key:", "cert:", "shared")
"""The beginnings of the ids of principals whose credentials are no tokens of an issuer."""

NO_SUBJECT = "subject_token_missing"
"""The reason code of a task whose caller has no token that could be exchanged."""

NOT_EXCHANGED = "exchange_refused"
"""The reason code of a task whose caller's tokens were not exchanged, so that nothing was done in its name."""

UNNAMED = "{} wants to know who asks: send a message with your credentials."
REFUSED = "{} is called in your name, and your token was not accepted for that: send a message with a fresh one."
"""The questions to a caller whose token is missing, and to one whose token was refused."""


class ActingParty:
    """The party that acts for the caller of `run` (RFC 8693 §1.1) at the agent, or the tools, of `name`."""

    __slots__ = ("_asked", "_asks", "_chain", "_name", "_refused", "_run")

    def __init__(self, run: Run, name: str) -> None:
        self._run = run
        self._name = name
        self._chain = spelled_chain(run.notes.get(NOTE, ""))
        self._refused = ""
        self._asks = 0
        self._asked = 0

    @property
    def questions(self) -> tuple[tuple[Part, ...], ...]:
        """The questions for a caller's token."""
        return tuple((Part(text=text.format(self._name)),) for text in (UNNAMED, REFUSED))

    @property
    def question(self) -> tuple[Part, ...]:
        """The question that fits what is known of the caller's token."""
        return self.questions[bool(self._refused)]

    @property
    def chain(self) -> Chain:
        """The links that the message which made the task tells, and then those from here."""
        return joined_chain(told_chain(self._run.message.metadata), self._chain)

    async def identify(self, exchange: TokenExchange) -> bool:
        """Let the calls from here on be made with a token for the caller. False: the caller is to be asked first.

        Raises Ended if asking is of no use; ExchangeUnusable, or NoToken.
        """
        subject = self._find_subject()
        if subject is None:
            return False
        present_subject.set(subject)
        try:
            issued = await exchange.token_for(subject)
        except ExchangeRefused as refused:
            log.info("%s: task %s: the caller's token is not exchanged: %s", self._name, self._run.head.id, refused)
            self._refuse(subject)
            return False
        self._refused, self._asks = "", 0
        if (chain := with_link(self._chain, issued.link)) is not self._chain:
            self._chain = chain
            self._run.note_soon(**{NOTE: spell_chain(chain)})
        return True

    async def ensure(self, exchanges: Iterable[TokenExchange]) -> None:
        """Let the calls from here on be made with tokens for the caller, who is asked as often as it takes.

        An issuer that gives no answer, or a token that must not be used, comes up with the call itself. Raises Ended.
        """
        for exchange in exchanges:
            with suppress(NoToken):
                while not await self.identify(exchange):
                    await self._ask()

    async def _ask(self) -> None:
        """Ask the caller for another token, in a branch of its own: whether it has to be asked depends on what is in
        memory, so that a later run of the task leaves the question out, or asks another time."""
        self._asked += 1
        before = enter_named_branch(f"{'fresh' if self._refused else 'who'}-{self._asked}")
        try:
            await self._run.ask(self.question, auth=True)
        finally:
            return_to_branch(before)

    def note_refusal(self) -> None:
        """Note that the present token was refused within a call."""
        if (subject := self._find_subject()) is not None:
            self._refuse(subject)

    def _find_subject(self) -> SubjectToken | None:
        """The caller's token; None if the caller is to be asked for one. Raises Ended if there can be none."""
        shown = self._run.shown
        subject = None if shown is None else read_subject_token(shown.headers)
        if subject is None:
            self.check_caller()
        elif subject.digest == self._refused:
            raise self._ended("the token that you sent again was not accepted for that")
        return subject

    def check_caller(self) -> None:
        """Raises Ended for a caller who has shown something else than a token, or whose kind of credentials is none."""
        if self._run.shown is not None or own_id(self._run.head.owner).startswith(NO_TOKENS):
            text = (
                f"{self._name} is called in its caller's name: send the message with a token of your issuer (a JWT) as "
                "bearer token. A key or a certificate cannot be exchanged for one."
            )
            raise Ended(TaskState.REJECTED, (Part(text=text),), NO_SUBJECT)

    def _refuse(self, subject: SubjectToken) -> None:
        self._refused = subject.digest
        self._asks += 1
        if self._asks > ASKS_MAX:
            raise self._ended(f"none of your last {self._asks} tokens was accepted for that")

    def _ended(self, why: str) -> Ended:
        return Ended(TaskState.FAILED, (Part(text=f"{self._name} is called in your name, and {why}."),), NOT_EXCHANGED)
