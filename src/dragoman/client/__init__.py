"""The client: it sends values of the model to another agent and returns its answers as values, whatever the dialect.

`connection` has `connect` and the calls, `sync` the same calls without `async`, `conversation` whole turns. On the way
out a call passes `endpoint` (which of the agent's endpoints, by its `card`, which `discovery` finds) and a `transport`
(one request or stream): `http_transport`, which decodes with `decode`, or `grpc_transport`. `stream` keeps a stream
alive: `recovery` decides how, and `task_fold` builds the task. `retries` says how long to wait and what to repeat,
`credentials` who is calling, `errors` what can go wrong.
"""

from dragoman.auth.signatures import CardNotVerified
from dragoman.client.card import Interface, interfaces
from dragoman.client.connection import Connection, connect
from dragoman.client.conversation import Conversation, Reply, text_of
from dragoman.client.credentials import ApiKey, BearerToken, ClientCredentials
from dragoman.client.discovery import CardCache, FoundCard, find_card
from dragoman.client.errors import (
    CallBroken,
    CallTimedOut,
    HttpRefusal,
    NoAnswer,
    NoCard,
    NoInterface,
    NotInstalled,
    NoToken,
    NotReached,
    PeerError,
    StreamLost,
)
from dragoman.client.retries import Retries, Timeouts
from dragoman.model.message import Message
from dragoman.model.operations import PushConfig
from dragoman.model.task import Task
from dragoman.model.updates import ArtifactUpdate, StatusUpdate, Update
from dragoman.net.tls import BadTls, ClientTls

__all__ = [
    "ApiKey",
    "ArtifactUpdate",
    "BadTls",
    "BearerToken",
    "CallBroken",
    "CallTimedOut",
    "CardCache",
    "CardNotVerified",
    "ClientCredentials",
    "ClientTls",
    "Connection",
    "Conversation",
    "FoundCard",
    "HttpRefusal",
    "Interface",
    "Message",
    "NoAnswer",
    "NoCard",
    "NoInterface",
    "NoToken",
    "NotInstalled",
    "NotReached",
    "PeerError",
    "PushConfig",
    "Reply",
    "Retries",
    "StatusUpdate",
    "StreamLost",
    "Task",
    "Timeouts",
    "Update",
    "connect",
    "find_card",
    "interfaces",
    "text_of",
]
