"""RemoteAgent: another agent, called over A2A if it speaks that, else over chat completions.

    RemoteAgentError (RuntimeError, as KAOS raises)
    ├── AgentUnavailable   neither way led to an answer, and none may have been carried out
    ├── AgentTimedOut      the request went out, and no answer came
    └── TaskFailed         the agent answered that its task failed, was canceled or rejected

Invariant: a message is sent a second way only if the first did not carry it out: never after a timeout, a broken
connection or an answer that cannot be read, since then the agent may have worked on it.
"""

import re
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from dragoman.client.card import Interface, RemoteCard, read_card
from dragoman.client.conversation import LAST_RESORT, make_message
from dragoman.client.credentials import Authorized, Credentials
from dragoman.client.decode import tongue
from dragoman.client.discovery import CardCache, Discovery, Places
from dragoman.client.errors import CallTimedOut, NoAnswer, PeerError
from dragoman.client.http import HttpClient, complete
from dragoman.client.http_transport import HttpTransport
from dragoman.client.retries import Retrier, Retries, Timeouts
from dragoman.client.transport import CallHeaders, CallTerms
from dragoman.dialects.cards import JSONRPC
from dragoman.model.errors import A2AError, InvalidAgentResponse
from dragoman.model.ids import new_id
from dragoman.model.message import Message, Part, Role
from dragoman.model.operations import SendMessage
from dragoman.model.task import Task, TaskState
from dragoman.net.egress import Egress, checked
from dragoman.net.errors import EgressError, TimedOut

DISCOVERY_TIMEOUT_S = 5.0
"""KAOS's own: how long a card may take."""

REQUEST_TIMEOUT_S = 60.0
"""KAOS's own: how long an answer may take."""

CARD_PATH = "/.well-known/agent.json"
"""Where KAOS has its cards."""

ONCE = Retrier(Retries(attempts=1))
"""The errors after which the other way is tried."""

ChatMessages = str | Sequence[Mapping[str, Any]]
"""A text, or messages as chat completions have them: `[{"role": "user", "content": "…"}]`."""

_ASKING = ("user", "task-delegation")
"""Roles of messages that ask for something; the second is KAOS's for what one agent hands to another."""

_CARD_PATH = re.compile(r"/\.well-known/agent(?:-card)?(?:\.json)?$")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)
_FAILURES = {TaskState.FAILED: "failed", TaskState.CANCELED: "canceled", TaskState.REJECTED: "rejected"}
_UNFINISHED = {TaskState.SUBMITTED: "submitted", TaskState.WORKING: "working"}


class RemoteAgentError(RuntimeError):
    """There is no answer. The message names the agent, what was expected and what came."""

    def __init__(self, agent: str, message: str) -> None:
        super().__init__(f"Agent {agent}: {message}")
        self.agent = agent


class AgentUnavailable(RemoteAgentError):
    """The agent has not taken the message either way."""


class AgentTimedOut(RemoteAgentError):
    """The message went out, and no answer came in time; the agent may still be working on it."""


class TaskFailed(RemoteAgentError):
    """The agent took the message, but its task did not succeed. `answer` is the task."""

    def __init__(self, agent: str, answer: Task) -> None:
        said = answer.status.message
        why = f": {said.text}" if said is not None and said.text else ""
        super().__init__(agent, f"its task {answer.id} is {_FAILURES[answer.status.state]}{why}")
        self.answer = answer


class RemoteAgent:
    """Another agent by its base URL, or by the URL of its card.

    The card is read with the first message, and again after a failure. `name` is the `model` for chat completions.
    Without `egress` it opens its own, which `close` (or `async with`) closes. `credentials` are sent to `base_url`
    only. Raises BadUrl.
    """

    def __init__(
        self,
        name: str,
        base_url: str | None = None,
        *,
        card_url: str | None = None,
        agent_card_url: str | None = None,
        egress: Egress | None = None,
        credentials: Credentials | None = None,
        discovery_timeout_s: float = DISCOVERY_TIMEOUT_S,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        url = base_url or card_url or agent_card_url
        if not url:
            raise ValueError(f"agent {name}: base_url is required: RemoteAgent({name!r}, 'http://host:port')")
        checked(url)
        self.name = name
        self.base_url = _CARD_PATH.sub("", url.rstrip("/")).rstrip("/")
        self.card: RemoteCard | None = None
        self._own = egress is None
        self._egress = egress or Egress()
        self._http: HttpClient = self._egress if credentials is None else Authorized(self._egress, credentials)
        self._credentials = credentials
        self._discovery_timeout_s = discovery_timeout_s
        self._request_timeout_s = request_timeout_s

    async def process_message(
        self,
        messages: ChatMessages,
        context_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        *,
        traceparent: str | None = None,
    ) -> str:
        """Send messages to the agent and return the text of its answer.

        Over A2A it gets the last message that asks for something, over chat completions all of them. `context_id`
        names the conversation and `metadata` goes with the message; both are for A2A. `traceparent` is passed on if it
        is valid (W3C Trace Context). Raises RemoteAgentError.
        """
        headers = {"traceparent": traceparent} if traceparent and _TRACEPARENT.fullmatch(traceparent) else {}
        asked = _asked(messages)
        try:
            card = await self._discover(headers)
            if "jsonrpc" not in card.supported_protocols:
                refusal = f"its card lists supportedProtocols {list(card.supported_protocols)}, without jsonrpc"
            else:
                return await self._ask(asked, context_id, metadata, headers)
        except InvalidAgentResponse as error:
            raise self._failure(error) from error
        except (_NoCard, PeerError, A2AError) as error:
            refusal = str(error)
        except NoAnswer as error:
            if error.sent:
                raise self._failure(error) from error
            refusal = str(error)
        try:
            return await self._complete(messages, headers)
        except (PeerError, EgressError, InvalidAgentResponse) as error:
            raise self._failure(error, refusal) from error

    async def close(self) -> None:
        """Close the connections that this object has opened."""
        if self._own:
            await self._egress.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _discover(self, headers: dict[str, str]) -> RemoteCard:
        if self.card is None:
            place = Places(base=self.base_url, cards=(self.base_url + CARD_PATH,), given=self.base_url)
            terms = CallTerms(
                timeouts=Timeouts(card_s=self._discovery_timeout_s),
                retrier=ONCE,
                headers=headers,
                credentials=self._credentials,
            )
            # KAOS's own clients send no version. A card of 1.0 alone has no supportedProtocols.
            discovery = Discovery(self._http, place, CardCache(), terms, version=None)
            try:
                self.card = read_card((await discovery.find()).card)
            except (NoAnswer, PeerError) as error:  # reading the card has no effect on the agent
                raise _NoCard(str(error)) from error
        return self.card

    async def _ask(
        self, text: str, context_id: str | None, metadata: dict[str, Any] | None, headers: dict[str, str]
    ) -> str:
        """Send SendMessage, in KAOS's spelling, to the agent's own URL."""
        said = make_message(text, context_id=context_id, metadata=metadata)
        send = SendMessage(message=replace(said, message_id=""))  # KAOS's messages have no id
        transport = HttpTransport(
            self._http,
            Interface(url=self.base_url + "/", binding=JSONRPC, dialect="kaos"),
            tongue("kaos"),
            CallTerms(timeouts=Timeouts(answer_s=self._request_timeout_s), retrier=ONCE, headers=headers),
        )
        try:
            return self._text(await transport.call(send, CallHeaders(idempotency_key=new_id())))
        except (PeerError, NoAnswer, A2AError):
            self.card = None  # the card may have changed
            raise

    def _text(self, answer: object) -> str:
        if not isinstance(answer, Task | Message):
            raise InvalidAgentResponse(f"expected a task or a message, got {type(answer).__name__}")
        if isinstance(answer, Task):
            state = answer.status.state
            if state in _FAILURES:
                raise TaskFailed(self.name, answer)
            if state in _UNFINISHED:
                raise InvalidAgentResponse(
                    f"expected a task that has ended, got {answer.id}, which is {_UNFINISHED[state]}: ask with GetTask"
                )
        if (text := text_of(answer)) is None:
            raise InvalidAgentResponse(
                "expected a text in `artifacts`, `output` or the last agent message of `history`, got none"
            )
        return text

    async def _complete(self, messages: ChatMessages, headers: dict[str, str]) -> str:
        whole = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        return await complete(
            self._http, self.base_url, self.name, whole, timeout_s=self._request_timeout_s, headers=headers
        )

    def _failure(self, error: Exception, refusal: str = "") -> RemoteAgentError:
        told = f"no answer over A2A ({refusal}), nor over chat completions ({error})" if refusal else str(error)
        if isinstance(error, TimedOut | CallTimedOut):
            return AgentTimedOut(self.name, told)
        if isinstance(error, PeerError) or (isinstance(error, EgressError | NoAnswer) and not error.sent):
            return AgentUnavailable(self.name, told)
        return RemoteAgentError(self.name, told)


class _NoCard(Exception):
    """The card could not be read."""


def text_of(answer: Task | Message) -> str | None:
    """The text of an answer, from the first in KAOS's order: artifacts, `output`, the agent's last message, the status.

    A status that only reports completion does not count. None if there is no text.
    """
    if isinstance(answer, Message):
        return _text_in(answer.parts, "\n")
    given = [_text_in(artifact.parts, "") for artifact in answer.artifacts]
    said = [_text_in(each.parts, "\n") for each in reversed(answer.history) if each.role is Role.AGENT]
    status = answer.status.message
    last = None if status is None or status.text.lower() in LAST_RESORT else _text_in(status.parts, "\n")
    told = [text for text in given if text is not None]
    found = [
        *(["\n".join(filter(None, told))] if told else []),
        *[text for text in said if text is not None],
        *([] if last is None else [last]),
    ]
    return next(filter(None, found), found[0] if found else None)


def _text_in(parts: Sequence[Part], between: str) -> str | None:
    """The texts among the parts; if there are none, the data as JSON."""
    if texts := [part.text for part in parts if part.text is not None]:
        return between.join(texts)
    data = [msgspec.json.encode(part.data).decode() for part in parts if part.data is not UNSET]
    return "\n".join(data) or None


def _asked(messages: ChatMessages) -> str:
    """The text of the last message that asks for something, or of the last one. Raises ValueError without any."""
    if isinstance(messages, str):
        return messages
    asking = [message for message in messages if message.get("role", "user") in _ASKING] or list(messages)
    if not asking:
        raise ValueError("messages is empty: expected a text, or [{'role': 'user', 'content': '…'}]")
    content = asking[-1].get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    if not texts:
        raise ValueError(f"the last message has no text: expected `content` with one, got {content!r:.100}")
    return "\n".join(texts)
