"""The client: it sends values of the model to another agent and returns its answers as values, whatever the dialect."""

from dragoman.auth.signatures import CardNotVerified
from dragoman.client.connection import Connection, connect
from dragoman.client.conversation import Conversation, Reply, text_of
from dragoman.client.credentials import ApiKey, BearerToken, ClientCredentials
from dragoman.client.discovery import CardCache
from dragoman.client.errors import (
    CallBroken,
    CallTimedOut,
    HttpRefusal,
    NoAnswer,
    NoCard,
    NoInterface,
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

__all__ = [
    "ApiKey",
    "ArtifactUpdate",
    "BearerToken",
    "CallBroken",
    "CallTimedOut",
    "CardCache",
    "CardNotVerified",
    "ClientCredentials",
    "Connection",
    "Conversation",
    "HttpRefusal",
    "Message",
    "NoAnswer",
    "NoCard",
    "NoInterface",
    "NoToken",
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
    "text_of",
]
