"""Shared by the systems of vendors: messages and parts in their spelling, and calls as their clients write them.

Their spelling is that of 0.3, with fewer required members and a choice of tag. Invariant: 0.3's decoder reads the
messages, after missing members were filled in. Nothing is written that the caller did not ask for, so a plain call is
the same as from the system's own clients. An option for which a system has no word of its own is written as in 0.3.
"""

from collections.abc import Mapping
from typing import Any

from dragoman.dialects.client.encode import encoded
from dragoman.dialects.tongue import RpcCall
from dragoman.dialects.v03.decode import fresh_id
from dragoman.dialects.v03.encode import ROLES
from dragoman.dialects.v03.fields import Fields
from dragoman.model.errors import UnsupportedOperation
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.operations import PushConfig, SendMessage

Json = dict[str, Any]


# -- messages and parts ----------------------------------------------------------------------------------------------


def fill_message(message: Fields, role: str | None = None) -> Json:
    """Return the members of a message, with a fresh id or `role` if they are missing."""
    members = {name: value for name, value in message.members.items() if value is not None}
    if not message.text("messageId", "message_id"):
        members["messageId"] = fresh_id()
    if role is not None:
        members.setdefault("role", role)
    return members


def encode_part(part: Part, tag: str) -> Json:
    """Encode a part whose type is in `tag`, which is `kind` or `type`."""
    body: Json
    if part.text is not None:
        body = {tag: "text", "text": part.text}
    elif part.raw is not None or part.url is not None:
        content: Json = {"uri": part.url} if part.raw is None else {"bytes": part.raw}
        if part.media_type:
            content["mimeType"] = part.media_type
        if part.filename:
            content["name"] = part.filename
        body = {tag: "file", "file": content}
    else:
        body = {tag: "data", "data": part.data}
    if part.metadata:
        body["metadata"] = part.metadata
    return body


def encode_artifact(artifact: Artifact, tag: str) -> Json:
    """Encode an artifact: its parts, then the members that A2A adds."""
    body: Json = {"parts": [encode_part(part, tag) for part in artifact.parts], "artifactId": artifact.artifact_id}
    if artifact.name:
        body["name"] = artifact.name
    if artifact.description:
        body["description"] = artifact.description
    if artifact.metadata:
        body["metadata"] = artifact.metadata
    return body


def text_of(message: Message | None) -> str:
    """Return the text of a message; empty if there is none."""
    return "" if message is None else message.text


# -- calls of their clients --------------------------------------------------------------------------------------------


def call(method: str, params: Mapping[str, Any]) -> RpcCall:
    """Encode a call with the params that are present. Raises InvalidParams for text that is not Unicode."""
    return whole_call(method, present(params))


def whole_call(method: str, params: Mapping[str, Any]) -> RpcCall:
    """Encode a call with all params, including null ones."""
    return RpcCall(method, encoded(params))


def present(members: Mapping[str, Any]) -> Json:
    """Drop absent members and empty lists, objects and strings."""
    return {name: value for name, value in members.items() if not (value is None or value in ("", (), [], {}))}


def message(said: Message, tag: str, **instead: Any) -> Json:
    """Encode a message, its parts tagged by `tag`. `instead` replaces members of those names; None removes them."""
    members: Json = {
        "role": ROLES[said.role],
        "parts": [encode_part(part, tag) for part in said.parts],
        "messageId": said.message_id,
        "taskId": said.task_id,
        "contextId": said.context_id,
        "referenceTaskIds": said.reference_task_ids,
        "metadata": said.metadata,
        "extensions": said.extensions,
    }
    members |= instead
    return {"role": members.pop("role"), "parts": members.pop("parts"), **present(members)}


def metadata(sent: SendMessage) -> Json:
    """Return a send's metadata, including the skill that it names."""
    return {**(sent.metadata or {}), **({"skill": sent.skill} if _unnamed(sent) else {})}


def configuration(sent: SendMessage) -> Json:
    """Encode the options of a send: which skills, not to wait, how much history, what kinds of answer."""
    return present(
        {
            "skills": sent.skills,
            "blocking": False if sent.return_immediately else None,
            "historyLength": sent.history_length,
            "acceptedOutputModes": sent.accepted_output_modes,
        }
    )


def webhook(config: PushConfig) -> Json:
    """Encode a PushNotificationConfig with its secrets, which only this peer may know."""
    schemes = [config.scheme] if config.scheme else ["Bearer"] if config.credentials else []
    return present(
        {
            "url": config.url,
            "token": config.token,
            "authentication": present({"schemes": schemes, "credentials": config.credentials}),
            "id": config.id,
            "secret": config.secret,
            "events": config.events,
        }
    )


def lacks(system: str, what: str, instead: str) -> UnsupportedOperation:
    """Return the error that says what the system lacks, and what to do instead."""
    return UnsupportedOperation(f"{system} has no {what}: {instead}")


def _unnamed(sent: SendMessage) -> bool:
    """Whether the metadata does not name the skill yet; protoAgent's clients also call it a hint."""
    named = {**(sent.message.metadata or {}), **(sent.metadata or {})}
    return sent.skill is not None and sent.skill not in (named.get("skill"), named.get("skillHint"))
