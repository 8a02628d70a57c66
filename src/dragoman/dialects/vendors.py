"""Shared by the systems of vendors: messages and parts in their spelling, and calls as their clients write them.

Their spelling is that of 0.3, with fewer required members and a choice of tag. Invariant: 0.3's decoder reads the
messages, after missing members were filled in. Nothing is written that the caller did not ask for, so a plain call is
the same as from the system's own clients. An option for which a system has no word of its own is written as in 0.3.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from dragoman.dialects.api import Answer, RpcCall
from dragoman.dialects.client import refusals
from dragoman.dialects.client.encode import encoded
from dragoman.dialects.client.scalars import decode_answer
from dragoman.dialects.v03 import encode as v03
from dragoman.dialects.v03.decode import fresh_id
from dragoman.dialects.v03.encode import ROLES
from dragoman.dialects.v03.fields import Fields
from dragoman.model.errors import A2AError, UnsupportedOperation
from dragoman.model.message import Artifact, Message, Part
from dragoman.model.operations import (
    CancelTask,
    CompleteTask,
    CreatePushConfig,
    DeletePushConfig,
    GetPushConfig,
    GetTask,
    ListPushConfigs,
    ListTasks,
    Operation,
    PushConfig,
    SendMessage,
    StreamMessage,
    Subscribe,
    UpdateStatus,
)
from dragoman.model.updates import Update

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
    return v03.encode_part(part, tag, wraps=False)


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


class VendorMethod(Struct, frozen=True):
    """A system's method for an operation, and the function that makes the params of a call from the operation.

    Params that are absent or empty are left out, unless the call is `whole`.
    """

    name: str
    params: Callable[[Any], Json]
    whole: bool = False


Methods = Mapping[type[Operation], VendorMethod]
"""The methods of a system, by operation."""

_NO_STREAMS = ("streams", "send, or ask with GetTask")
_NO_WEBHOOKS = ("webhooks", "ask with GetTask")
_NO_WORKERS = ("workers", "its tasks end by themselves")

LACKS: Mapping[type[Operation], tuple[str, str]] = {
    StreamMessage: _NO_STREAMS,
    Subscribe: _NO_STREAMS,
    ListTasks: ("list of tasks", "keep the ids that a send is answered with"),
    CreatePushConfig: _NO_WEBHOOKS,
    GetPushConfig: _NO_WEBHOOKS,
    ListPushConfigs: _NO_WEBHOOKS,
    DeletePushConfig: _NO_WEBHOOKS,
    CompleteTask: _NO_WORKERS,
    UpdateStatus: _NO_WORKERS,
}
"""By operation: what a system lacks that has no method for it, and what a caller can do instead."""


def encode_calls(
    system: str, methods: Methods, lacking: Mapping[type[Operation], tuple[str, str]] = LACKS
) -> Callable[[Operation], RpcCall]:
    """Return the encoder of a system's calls, `Tongue.rpc`.

    Every operation is in `methods` or in `lacking`. The encoder raises UnsupportedOperation for those in `lacking`, and
    InvalidParams for text that is not Unicode.
    """

    def rpc(operation: Operation) -> RpcCall:
        method = methods.get(type(operation))
        if method is None:
            raise lacks(system, *lacking[type(operation)])
        params = method.params(operation)
        return RpcCall(method.name, encoded(params if method.whole else present(params)))

    return rpc


def read_by(
    answer: Callable[[Operation, object], Answer],
    update: Callable[[object], tuple[Update, ...] | A2AError],
    codes: Mapping[int, type[A2AError]] = refusals.CODES,
    words: Mapping[str, type[A2AError]] = {},
    statuses: Mapping[int, type[A2AError]] = refusals.STATUSES,
) -> dict[str, Any]:
    """Return the readers of a Tongue: of results and frames, from decoded JSON, and of errors by the tables.

    An error is read by its word, by its code, or by the HTTP status. The readers raise InvalidAgentResponse, and that
    of frames the error that `update` finds in one.
    """

    def read_answer(operation: Operation, body: bytes) -> Answer:
        return decode_answer(body, lambda value: answer(operation, value))

    def read_update(frame: bytes) -> tuple[Update, ...]:
        told = decode_answer(frame, update)
        if isinstance(told, A2AError):
            raise told
        return told

    return {
        "read_answer": read_answer,
        "read_update": read_update,
        "read_error": lambda body, status: refusals.read(body, status, codes, words, statuses),
    }


def no_params(operation: Operation) -> Json:
    """The params of a call that needs none."""
    return {}


def task_params(operation: CancelTask | Subscribe) -> Json:
    """The params of a call about a task: its id, and the metadata of a cancellation."""
    return {"id": operation.id, "metadata": operation.metadata if isinstance(operation, CancelTask) else None}


def history_params(operation: GetTask) -> Json:
    """The params of a read: the task's id, and how much of its history is wanted."""
    return {"id": operation.id, "historyLength": operation.history_length}


def webhook_params(operation: CreatePushConfig) -> Json:
    """The params of a registration: the task's id, and the webhook."""
    return {"taskId": operation.config.task_id, "pushNotificationConfig": webhook(operation.config)}


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
