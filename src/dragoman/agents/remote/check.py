"""Checks whether an upstream takes calls, without sending it a message.

Invariant: a check has no effect at the upstream. It goes the way of a send: same endpoint, rules and credentials.
"""

import msgspec
from msgspec import Struct

from dragoman.agents.remote.failures import (
    BUSY,
    NO_AGENT_THERE,
    NOT_CALLED,
    NOT_LET_IN,
    NOT_REACHED,
    NOT_WELL,
    fault_of,
    in_words,
)
from dragoman.client import Connection
from dragoman.client.errors import HttpRefusal, NoAnswer, NoToken, NotReached, PeerError, no_answer
from dragoman.client.http import COMPLETIONS_PATH, Requester
from dragoman.dialects.cards import GRPC, JSONRPC
from dragoman.model.errors import (
    A2AError,
    AgentNotFound,
    AgentOffline,
    Forbidden,
    InvalidAgentResponse,
    MethodNotFound,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from dragoman.model.ids import new_id
from dragoman.net.errors import EgressError

MODELS_PATH = "/v1/models"

_ABSENT = frozenset({404, 410})


class EndpointFault(Struct, frozen=True):
    """Why calls fail: one of the texts of `failures`, and the error in words."""

    kind: str
    words: str = ""


async def ask(connection: Connection) -> EndpointFault | None:
    """Ask over A2A for a task that does not exist. Returns the fault, None if it answers properly."""
    try:
        await connection.get(new_id())
    except (NoAnswer, PeerError, A2AError) as error:
        binding = connection.interface.binding
        if binding == GRPC and isinstance(error, MethodNotFound):
            return EndpointFault(NO_AGENT_THERE, in_words(error))
        return _fault(error, rpc=binding == JSONRPC)
    return None


async def reach(connection: Connection) -> EndpointFault | None:
    """Only open a connection, and ask nothing. Returns the fault, None if there is none."""
    try:
        await connection.reach()
    except NoAnswer as error:
        return _fault(error, rpc=False)
    return None


def _fault(error: NoAnswer | PeerError | A2AError, *, rpc: bool) -> EndpointFault | None:
    words = in_words(error)
    match error:
        case NotReached(permanent=True):
            return EndpointFault(NOT_CALLED, words)
        case NoToken():
            return EndpointFault(fault_of(error), words)
        case NoAnswer():
            return EndpointFault(NOT_REACHED, words)
        case Unauthorized() | Forbidden() | HttpRefusal(status=401 | 403):
            return EndpointFault(NOT_LET_IN, words)
        # over HTTP+JSON, the status 404 is the proper answer for a task that does not exist
        case AgentNotFound() | NotFound() | HttpRefusal(status=404 | 405 | 410) if rpc:
            return EndpointFault(NO_AGENT_THERE, words)
        case Unavailable() | TooManyRequests() | AgentOffline() | HttpRefusal(status=429 | 503):
            return EndpointFault(BUSY, words)
        case HttpRefusal(status=status) if 300 <= status < 400 or status in (502, 504):
            return EndpointFault(NOT_WELL, words)
        case InvalidAgentResponse() if rpc:
            return EndpointFault(NOT_WELL, words)
        case _:
            return None  # whatever it says about an unknown task, it understood the question


async def ask_for_chat(requester: Requester, base_url: str, *, timeout_s: float) -> EndpointFault | None:
    """The fault of chat completions below that URL, else None. GET asks for its models, else for the path.

    A path that takes POST only answers 405 to GET, an absent one 404.
    """
    try:
        reply = await requester.request("GET", base_url + MODELS_PATH, timeout_s=timeout_s)
        if reply.ok and _lists_models(reply.body):
            return None
        if reply.status not in (401, 403):
            reply = await requester.request("GET", base_url + COMPLETIONS_PATH, timeout_s=timeout_s)
    except EgressError as error:
        return _fault(no_answer(error, "answer_s"), rpc=False)
    except NoToken as error:
        return EndpointFault(fault_of(error), in_words(error))
    words = f"{base_url}{COMPLETIONS_PATH}: HTTP status {reply.status}"
    if reply.status in (401, 403):
        return EndpointFault(NOT_LET_IN, words)
    if reply.status in _ABSENT or 300 <= reply.status < 400 or (reply.ok and not _is_json(reply.body)):
        return EndpointFault(NO_AGENT_THERE, words)
    if reply.status in (429, 503):
        return EndpointFault(BUSY, words)
    return EndpointFault(NOT_WELL, words) if reply.status >= 500 else None


def _lists_models(body: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(body, type=dict[str, object]).get("data"), list)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True
