"""The subject of an examination: an agent, the way to it, and what the caller may show it.

Invariant: the examination dials nothing but by the subject's egress, and shows nothing but what `identify` returns.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from dragoman.client import FoundCard, Interface
from dragoman.client.credentials import Credentials
from dragoman.client.errors import Tried
from dragoman.client.transport import WireLog
from dragoman.net.egress import Egress
from dragoman.net.tls import ClientTls


class ExaminationFailed(Exception):
    """The agent cannot be examined. `hint` is the next step, empty if there is none."""

    def __init__(self, reason: Literal["timeout", "unreachable", "usage"], message: str, hint: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.hint = hint


class CardUnfit(Exception):
    """A document was served in the place of a card. The message says what came, `tried` where, if that is known."""

    def __init__(self, message: str, tried: Sequence[Tried] = ()) -> None:
        super().__init__(message)
        self.tried = tuple(tried)


class SubjectCard(Struct, frozen=True, kw_only=True):
    """A card and its origin. `vouched`: the user has it as a file, and so vouches for its endpoints.

    `at_root`: the user named a host and no agent of it.
    """

    found: FoundCard
    place: str
    vouched: bool = False
    at_root: bool = False


class CallerIdentity(Struct, frozen=True, kw_only=True):
    """The credentials that an agent is shown. `query` is appended to its URL, for keys that go there."""

    credentials: Credentials | None = None
    query: str = ""

    @property
    def given(self) -> bool:
        """Whether anything is shown."""
        return self.credentials is not None or bool(self.query)


class ExchangeLog(WireLog, Protocol):
    """A log of the requests that an examination sends, without credentials."""

    def note(self, text: str) -> None:
        """Note something about the work itself."""
        ...

    def branch(self) -> "ExchangeLog":
        """A log for requests that are made beside those of this one."""
        ...


class Subject(Protocol):
    """An agent to be examined. `agent` and `origin` are shown; `trusted` are origins that may be shown credentials."""

    agent: str
    origin: str
    egress: Egress
    tls: ClientTls
    headers: Mapping[str, str]
    trusted: Sequence[str]
    log: ExchangeLog | None

    async def find_card(self) -> SubjectCard:
        """Find the card. Raises NoCard, NotReached or CallTimedOut, and CardUnfit for another document."""
        ...

    async def identify(self, card: SubjectCard, schemes: Mapping[str, Any]) -> CallerIdentity:
        """Return what the agent is shown; `schemes` are the security schemes of its card."""
        ...

    def identify_other(self, schemes: Mapping[str, Any]) -> CallerIdentity:
        """Return what another caller shows, who must not see the first one's tasks. It may be nothing."""
        ...

    async def describe_signature(self, card: SubjectCard) -> str:
        """Say whether the card's signature is verified, unverifiable or absent."""
        ...

    def prefer(self, card: SubjectCard) -> Interface | None:
        """Return the endpoint that messages go to; None: the first that answers."""
        ...
