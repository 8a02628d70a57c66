"""The values of exchanges with agents elsewhere: what an operator gives, and what comes back.

Invariant: the value of a credential is in no `repr`, and in no answer.
"""

import re
from typing import Any, Literal

from msgspec import Struct

from dragoman.client import ApiKey, BearerToken
from dragoman.doctor.finding import Finding
from dragoman.model.errors import InvalidParams

_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
_SECRET = re.compile(r"[!-~]([ -~]{0,16382}[!-~])?", re.ASCII)

FRAMING = frozenset(
    {
        *("connection", "content-encoding", "content-length", "content-type", "expect", "host", "keep-alive", "te"),
        *("trailer", "transfer-encoding", "upgrade"),
    }
)
"""Headers of a request that are its client's own, so that no credential goes there (RFC 9110 §7.6.1, §10.1)."""


class RemoteCredential(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A credential for one exchange: a bearer token, or a key in the header `header`."""

    kind: Literal["bearer", "key"]
    value: str
    header: str = "x-api-key"

    def __repr__(self) -> str:
        return f"RemoteCredential(kind={self.kind!r})"

    def shown_by(self) -> ApiKey:
        """The credential as the client shows it. Raises InvalidParams if no header can hold it."""
        if not _HEADER.fullmatch(self.header) or self.header.lower() in FRAMING:
            raise InvalidParams("credential.header", "must be the name of a header for a key, like x-api-key")
        if not _SECRET.fullmatch(self.value):
            raise InvalidParams("credential.value", "must be plain text of 1 to 16384 characters, without line breaks")
        return BearerToken(self.value) if self.kind == "bearer" else ApiKey(self.value, self.header)


class RemoteEndpoint(Struct, frozen=True, kw_only=True):
    """An endpoint of a card. `takes_credential`: it is at the origin of the card, or serves gRPC on the same host."""

    url: str
    binding: str
    dialect: str
    takes_credential: bool


class EndpointChoice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One endpoint of a card, by its three names."""

    url: str
    binding: str
    dialect: str


class CardRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The URL of an agent or of its card; the card is asked for with the credential, if there is one."""

    url: str
    credential: RemoteCredential | None = None


class CallRequest(CardRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent at `url`. Without `endpoint` the one that the client prefers is called.

    With a `dialect` the URL itself is called in it, and no card is read.
    """

    endpoint: EndpointChoice | None = None
    dialect: str | None = None


class RemoteTaskRequest(CallRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task of an agent."""

    task_id: str


class RemoteSendRequest(CallRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A SendMessageRequest of A2A 1.0 (§3.2.1) for an agent, whatever dialect it speaks."""

    request: dict[str, Any]


class RemoteFailure(Struct, frozen=True):
    """Why an exchange failed. `name` is the class of the error, such as `TaskNotFound` or `NotReached`."""

    name: str
    message: str


class RemoteAgentFacts(Struct, frozen=True, kw_only=True):
    """A card as it came, and its endpoints, the preferred one first; or why there is none.

    `at_root`: the URL names a host and no agent of it, so the card is the one at the root of the host.
    """

    card_url: str
    at_root: bool
    card: dict[str, Any] | None
    endpoints: tuple[RemoteEndpoint, ...]
    failure: RemoteFailure | None


class RemoteAnswer(Struct, frozen=True, kw_only=True):
    """A StreamResponse of A2A 1.0 (§3.2.3) with the task or the message; or why there is none."""

    answer: dict[str, Any] | None
    failure: RemoteFailure | None


class RemoteUpdate(Struct, frozen=True):
    """One item of a stream: a StreamResponse of A2A 1.0 (§3.2.3)."""

    update: dict[str, Any]


class RemoteEnd(Struct, frozen=True):
    """The stream is over. `failure` is null if the agent ended it."""

    failure: RemoteFailure | None


class MessageCheck(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A SendMessageRequest of A2A 1.0 (§3.2.1), as text, to be checked and not sent."""

    text: str


class MessageFault(Struct, frozen=True):
    """A fault of a request. `field` is its path, such as `message.parts[0].text`; empty for the whole text."""

    field: str
    message: str


class MessageFaults(Struct, frozen=True):
    """The faults of a request; none if it can be sent."""

    faults: tuple[MessageFault, ...]


class ExaminationRequest(CardRequest, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent to examine. Only if it is `active` a handful of messages is sent, with `text`, which may cost money."""

    active: bool = False
    text: str | None = None


class Examination(Struct, frozen=True, kw_only=True):
    """The findings of the doctor, so far or in the end, and which server the agent runs on, with the `evidence`.

    `failure` is why it could not be examined any further.
    """

    agent: str
    card_url: str
    server: str
    evidence: str
    findings: tuple[Finding, ...]
    failure: RemoteFailure | None
