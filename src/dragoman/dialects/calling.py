"""Calls as the clients of the vendors' systems write them: messages, webhooks, and what is asked for beside them.

Invariant: nothing is written that was not asked for, so that a plain call is the one that the system's own clients
send. What a caller asks for and the system has no word of its own for is written as 0.3 has it.
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
    """A call with those of the params that are there. Raises InvalidParams for text that is not Unicode."""
    return whole_call(method, present(params))


def whole_call(method: str, params: Mapping[str, Any]) -> RpcCall:
    """A call with all of the params, null too."""
    return RpcCall(method, encoded(params))


def present(members: Mapping[str, Any]) -> Json:
    """The members that are there, and no empty lists, objects or strings."""
    return {name: value for name, value in members.items() if not (value is None or value in ("", (), [], {}))}


def message(said: Message, tag: str, **instead: Any) -> Json:
    """A message with its parts tagged by `tag`; `instead` is written for members of those names, None for nothing."""
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
    """The metadata of a send, in which the skill stands that it names."""
    return {**(sent.metadata or {}), **({"skill": sent.skill} if _unnamed(sent) else {})}


def configuration(sent: SendMessage) -> Json:
    """What a send asks for: which skills, not to wait, how much history, what kinds of answer."""
    return present(
        {
            "skills": sent.skills,
            "blocking": False if sent.return_immediately else None,
            "historyLength": sent.history_length,
            "acceptedOutputModes": sent.accepted_output_modes,
        }
    )


def webhook(config: PushConfig) -> Json:
    """A PushNotificationConfig with its secrets, which are for this one peer to know."""
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
    """The error that says what the system does not have, and what to do instead."""
    return UnsupportedOperation(f"{system} has no {what}: {instead}")


def _unnamed(sent: SendMessage) -> bool:
    """Whether the skill stands nowhere yet: protoAgent's clients also call it a hint."""
    named = {**(sent.message.metadata or {}), **(sent.metadata or {})}
    return sent.skill is not None and sent.skill not in (named.get("skill"), named.get("skillHint"))
