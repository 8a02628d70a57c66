"""Encodes calls as the clients of the vendors' systems do: messages, webhooks, and their options.

Invariant: nothing is written that the caller did not ask for, so a plain call is the same as from the system's own
clients. An option for which the system has no word of its own is written as in 0.3.
"""

from collections.abc import Mapping
from typing import Any

from dragoman.dialects.asking import encoded
from dragoman.dialects.tagged import encode_part
from dragoman.dialects.tongue import RpcCall
from dragoman.dialects.v03.encode import ROLES
from dragoman.model.errors import UnsupportedOperation
from dragoman.model.message import Message
from dragoman.model.operations import PushConfig, SendMessage

Json = dict[str, Any]


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
