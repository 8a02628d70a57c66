"""Observations of an agent: what was asked, and what came. Checks read nothing else.

Invariant: values without behaviour that waits, so that a check is tested with recorded answers. An observation has no
credentials, and no queries of URLs; the bodies of answers are kept to
their first part.
"""

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NoReturn

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.client import Interface
from dragoman.net.tls import TlsSession

BODY_BYTES_MAX = 64 * 1024
"""The part of a body that is kept: no error is longer, unless it is a page for people."""

BODY_SHOWN = 120
"""How many characters of a body a finding shows."""

NO_ERROR = "no error"
"""The name of the error of an exchange over gRPC that went well."""


class HarmlessRequest(StrEnum):
    """A request that changes nothing at the agent."""

    UNKNOWN_TASK = "the task of a random id"
    UNKNOWN_CANCEL = "the end of a random task"
    NO_CREDENTIALS = "the same without credentials"
    UNKNOWN_METHOD = "a method that does not exist"
    NO_ID = "a task without its id"
    UNKNOWN_VERSION = "version 99.0"
    BROKEN_JSON = "a body that is not JSON"
    PREFLIGHT = "whether web pages of another origin may call"
    EXTENDED_CARD = "the extended card, without credentials"
    OWN_EXTENDED_CARD = "the extended card"
    WEBHOOKS = "the webhook of a random task"


class Attempt(StrEnum):
    """A call that works with a task of ours. Those marked with * send a message."""

    SEND = "a message*"
    REPEAT = "the same message again*"
    GET = "the task"
    READ_AGAIN = "the task again, without history"
    LIST = "the tasks of its context"
    PAGE = "a page of one task"
    NEXT_PAGE = "the page after it"
    CANCEL_ENDED = "the end of a task that has ended"
    SUBSCRIBE_ENDED = "the updates of a task that has ended"
    SEND_TO_UNKNOWN = "a message to a task that does not exist*"
    SEND_TO_ENDED = "a message to a task that has ended*"
    STREAM = "a message with a stream*"
    RESUME = "the stream from after its first event"
    BEGIN = "a message whose task is not waited for*"
    SUBSCRIBE = "the updates of that task"
    CANCEL = "the end of that task"
    AFTER_CANCEL = "that task again"
    FOREIGN = "the task, by another caller"
    WEBHOOK = "a webhook at an address of this machine"
    CALLED = "a message with a webhook*"
    LEFT = "the end of every other task that was begun"


class AttemptOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of an attempt. `error` is the name of an A2A error, and `failure` says why nothing came.

    `kind` is `Task`, `Message` or that of another result; `state` is the task's. `events` are the kinds of the updates
    of a stream, and `event_ids` their ids, empty for those without. `first_ms` is when the first one came, `last_ms`
    the last. `history` is how many messages a task has, and `next_page` the token of a list's next page. `after_end`
    counts the updates after a terminal state, `stays_open` says that the agent did not end the stream then, and
    `broke` why it ended before. `exchange` is the last request of the attempt, None over gRPC.
    """

    kind: str = ""
    task_id: str = ""
    context_id: str = ""
    state: str = ""
    ended: bool = False
    listed: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    event_ids: tuple[str, ...] = ()
    error: str = ""
    failure: str = ""
    elapsed_ms: float = 0.0
    first_ms: float = 0.0
    last_ms: float = 0.0
    history: int = 0
    next_page: str = ""
    after_end: int = 0
    stays_open: bool = False
    broke: str = ""
    exchange: "Exchange | None" = None

    @property
    def late(self) -> bool:
        """Whether nothing came in time."""
        return self.failure.startswith("no answer within")

    @property
    def unreadable(self) -> bool:
        """Whether an answer came that this tool's client could not read."""
        return self.error == "InvalidAgentResponse"

    @property
    def words(self) -> str:
        """The outcome in a few words."""
        if (self.unreadable or self.failure.startswith("answered with")) and self.exchange is not None:
            return self.exchange.words_with_body
        if self.error:
            return error_name(self.error)
        if self.failure:
            return self.failure.removeprefix("answered with ")
        if self.events:
            return f"a stream of {len(self.events)} updates"
        return f"a {self.kind}" + (f" in {self.state}" if self.state else "")


def error_name(error: str) -> str:
    """Return the name that A2A gives an error (A2A 1.0 §3.3.2)."""
    return error if error == NO_ERROR or error.endswith("Error") else f"{error}Error"


class Exchange(Struct, frozen=True, kw_only=True):
    """A request and its answer. `status` is 0 if none came, and `failure` says why.

    Header names are in lower case. `refused`: it was not sent, since the address may not be dialled. `certificate` is
    why the certificate was not trusted, empty if it was. `error` is the name of an A2A error that came over gRPC.
    `compressed`: the body was compressed, and was not read. `verb`, `url`, `sent_headers` and `sent` are the request,
    without credentials.
    """

    status: int = 0
    headers: Mapping[str, str] = {}
    body: bytes = b""
    elapsed_ms: float = 0.0
    failure: str = ""
    refused: bool = False
    certificate: str = ""
    error: str = ""
    compressed: bool = False
    verb: str = ""
    url: str = ""
    sent_headers: Mapping[str, str] = {}
    sent: bytes = b""

    @property
    def is_stream(self) -> bool:
        """Whether the answer is a stream of events."""
        return self.content_type == "text/event-stream"

    @property
    def content_type(self) -> str:
        """The media type of the answer, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def asked(self) -> Any:
        """The body of the request as JSON, None if it is none."""
        return _decoded(self.sent)

    @property
    def request_id(self) -> Any:
        """The id of the JSON-RPC request, None if it was none."""
        asked = self.asked
        return asked.get("id") if isinstance(asked, dict) else None

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")

    @property
    def words_with_body(self) -> str:
        """The answer in a few words, with the beginning of its body."""
        begins = " ".join(self.text.split())
        cut = begins[:BODY_SHOWN] + ("…" if len(begins) > BODY_SHOWN else "")
        return f"{self.words}: {cut}" if cut else f"{self.words} and no body"

    @property
    def document(self) -> Any:
        """The body as JSON, None if it is none."""
        return _decoded(self.body)

    @property
    def rpc_code(self) -> int | None:
        """The code of a JSON-RPC error, None if the answer is none."""
        match self.document:
            case {"error": {"code": int(code)}}:
                return code
        return None

    @property
    def denied(self) -> bool:
        """Whether the answer asks for credentials, or refuses those that were given."""
        return self.status in (401, 403) or self.error in ("Unauthorized", "Forbidden")

    @property
    def words(self) -> str:
        """The answer in a few words."""
        if self.failure:
            return self.failure
        if self.error:
            return error_name(self.error)
        code = self.rpc_code
        if code is not None:
            return f"HTTP {self.status} with the error {code}"
        kind = self.content_type or "no content type"
        match self.document:
            case None if self.body and kind.endswith(("/json", "+json")):
                return f"HTTP {self.status} with {kind} that is no JSON ({json_fault(self.body)})"
            case {"result": None}:
                return f'HTTP {self.status} with "result": null'
        return f"HTTP {self.status} with {kind}"

    @property
    def leads_to_login(self) -> bool:
        """Whether the answer is a redirect to a page where people sign in."""
        to = self.headers.get("location", "")
        return 300 <= self.status < 400 and _LOGIN.search(to.partition("?")[0]) is not None


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


_LOGIN = re.compile(r"(?i)(?:\b|_)(?:log-?_?(?:in|on)|sign-?_?in|sso|saml2?|oauth2?|openid|authorize)(?:\b|_)")
"""Words in the URLs of pages where people sign in."""

CUT = "it ends in the middle"
"""What `json_fault` says of a text that was cut."""


def json_fault(body: bytes) -> str:
    """Say why a body is no JSON (RFC 8259)."""
    try:
        json.loads(body.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        cut = error.end == len(body) < BODY_BYTES_MAX
        return f"{CUT}, after {len(body)} bytes" if cut else f"byte {error.start} is no UTF-8"
    except json.JSONDecodeError as error:
        if error.pos < len(error.doc.rstrip()) and not error.msg.startswith("Unterminated string"):
            return str(error)
        return f"{CUT}, after {len(body)} bytes" if len(body) < BODY_BYTES_MAX else "after what was kept of it"
    except ValueError as error:
        return str(error)
    except RecursionError:
        return "it is nested too deeply"
    return "a character or a number in it is not allowed"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


class Endpoint(Struct, frozen=True, kw_only=True):
    """An endpoint that the card lists, and what it answered. `known`: it may be shown credentials."""

    interface: Interface
    answers: Mapping[HarmlessRequest, Exchange] = {}
    known: bool = True

    @property
    def name(self) -> str:
        """Binding, version and URL."""
        return f"{self.interface.binding} {self.interface.dialect} {self.interface.url.partition('?')[0]}"

    @property
    def official(self) -> bool:
        """Whether it speaks a version of A2A, and no vendor's dialect."""
        return self.interface.dialect in ("1.0", "0.3")

    @property
    def speaks(self) -> bool:
        """Whether the answer there is one of the endpoint's binding, or at least of something that guards it."""
        came = self.answers.get(HarmlessRequest.UNKNOWN_TASK)
        if came is None or came.failure:
            return False
        if self.interface.binding == "GRPC" or came.denied or came.status == 429:
            return True
        match came.document:
            case {"error": _} | {"result": _}:
                return True
            case {"detail": "Not Found" | "Method Not Allowed"}:  # what Starlette says of a route that is not there
                return False
            case dict():
                return self.interface.binding == "HTTP+JSON"
        return False

    @property
    def refused(self) -> bool:
        """Whether nothing was sent there, because its address may not be dialled."""
        first = self.answers.get(HarmlessRequest.UNKNOWN_TASK)
        return first is not None and first.refused


class EndpointTrial(Struct, frozen=True, kw_only=True):
    """The attempts that were made at an endpoint."""

    endpoint: Endpoint
    attempts: Mapping[Attempt, AttemptOutcome] = {}


class Observations(Struct, frozen=True, kw_only=True):
    """Everything that was seen of an agent.

    `at_root`: the agent was named by its host alone. `card` is None if there is none; `tried` then has the places, each
    with what came. `card_exchange` is the answer
    that the card came in, None for a file. `signature` is what `card get` says of it. `public`: the card's host is on
    the public internet. `unspoken` are the endpoints of the card that this tool does not speak, and `untried` is
    how many were too many to ask. `authenticated`: credentials were shown. `attempts` were made at the endpoint
    `tried_at`, None if none were to be made, and `further` ones at other endpoints. `now_s` is the time of the look, in
    seconds since the epoch.
    """

    agent: str
    place: str = ""
    at_root: bool = False
    card: dict[str, Any] | None = None
    card_exchange: Exchange | None = None
    tried: tuple[tuple[str, str], ...] = ()
    signature: str = ""
    public: bool = False
    tls: TlsSession | None = None
    certificate: str = ""
    endpoints: tuple[Endpoint, ...] = ()
    unspoken: tuple[str, ...] = ()
    untried: int = 0
    schemes: Mapping[str, Any] = {}
    requirements: tuple[Mapping[str, Any], ...] = ()
    authenticated: bool = False
    tried_at: Endpoint | None = None
    attempts: Mapping[Attempt, AttemptOutcome] = {}
    further: tuple[EndpointTrial, ...] = ()
    now_s: float = 0.0

    @property
    def each_trial(self) -> "tuple[Observations, ...]":
        """The same observations, once for each endpoint at which attempts were made."""
        others = (replace(self, tried_at=each.endpoint, attempts=each.attempts, further=()) for each in self.further)
        return (self, *others)

    @property
    def modern(self) -> bool:
        """Whether the card is one of A2A 1.0."""
        return self.card is not None and isinstance(self.card.get("supportedInterfaces"), list)

    @property
    def streams(self) -> bool:
        """Whether the card says that the agent streams."""
        match self.card:
            case {"capabilities": {"streaming": True}}:
                return True
        return False

    @property
    def extends(self) -> bool:
        """Whether the card says that there is an extended card."""
        match self.card:
            case {"capabilities": {"extendedAgentCard": True}} | {"supportsAuthenticatedExtendedCard": True}:
                return True
        return False

    @property
    def pushes(self) -> bool:
        """Whether the card says that the agent calls webhooks."""
        match self.card:
            case {"capabilities": {"pushNotifications": True}}:
                return True
        return False

    @property
    def task_id(self) -> str:
        """The task that was read and listed: that of the first message, or if that took too long, of another."""
        made = (self.attempts.get(attempt) for attempt in (Attempt.SEND, Attempt.BEGIN))
        return next((came.task_id for came in made if came is not None and came.task_id), "")

    @property
    def dedupes(self) -> bool:
        """Whether the card says that a repeated message is taken once."""
        return self.tried_at is not None and self.tried_at.interface.dedupes_s > 0

    @property
    def asks(self) -> bool:
        """Whether the card says that callers must authenticate: it has requirements, and none of them is empty."""
        return bool(self.requirements) and all(each.get("schemes", each) for each in self.requirements)
