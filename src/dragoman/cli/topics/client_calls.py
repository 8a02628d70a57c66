"""The calls of the Python client, its settings and its errors, from their signatures and docstrings."""

import inspect

from dragoman import client
from dragoman.cli.topics.members import member_rows
from dragoman.cli.topics.table import Section, TopicTable
from dragoman.model.errors import A2AError, InvalidAgentResponse
from dragoman.net.errors import BadUrl

SETTINGS = client.Timeouts, client.Retries, client.PushConfig
ERRORS = (
    *(A2AError, InvalidAgentResponse, client.PeerError, client.HttpRefusal, client.NoToken, client.NoAnswer),
    *(client.NotReached, client.CallTimedOut, client.CallBroken, client.StreamLost, client.NoCard),
    *(client.NoInterface, client.NotInstalled, client.CardNotVerified, BadUrl),
)


def make_table() -> TopicTable:
    """What can be called on an agent and a conversation, the settings of `connect`, and the errors."""
    sections = (
        Section("An agent", member_rows(client.Connection, "agent")),
        Section("A conversation", member_rows(client.Conversation, "talk")),
        Section("Settings", tuple(map(_row, SETTINGS))),
        Section("Errors", tuple(map(_row, ERRORS))),
    )
    return TopicTable(("Name", "Meaning"), sections)


def _row(kind: type) -> tuple[str, ...]:
    return f"`{kind.__name__}`", " ".join((inspect.getdoc(kind) or "").split())
