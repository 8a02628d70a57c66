"""JSON-RPC requests as far as they tell dialects apart: predicates for rules, and the rules of the official versions.

Invariant: pure and total. Params that cannot be read have no sign of any dialect; the decoder of the chosen dialect
reports what is wrong.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import msgspec
from msgspec import Raw, Struct, structs

from dragoman.dialects import v03, v1
from dragoman.dialects.api import Dialect
from dragoman.dialects.system import ByTask, RequestFacts, Rule
from dragoman.dialects.v03.decode import METHODS as METHODS_03
from dragoman.dialects.v1.decode import METHODS as METHODS_1
from dragoman.model.errors import A2AError, VersionNotSupported

SEND_HEADER = "send the header A2A-Version: 1.0; without it a request is 0.3 (A2A 1.0 §3.6.2), which has no such "


_ABSENT = Raw()


class _Part(Struct):
    kind: object = None
    type: object = None
    file: Raw = _ABSENT


class _Message(Struct):
    role: object = None
    kind: object = None
    messageId: object = None  # noqa: N815  as on the wire
    parts: list[_Part] = []


class _Peek(Struct):
    """The few params that distinguish dialects."""

    message: _Message | None = None
    id: object = None
    taskId: object = None  # noqa: N815
    pageSize: object = None  # noqa: N815
    pageToken: object = None  # noqa: N815
    status: object = None
    contextId: object = None  # noqa: N815
    historyLength: object = None  # noqa: N815
    includeArtifacts: object = None  # noqa: N815


_PEEK = msgspec.json.Decoder(_Peek)
_NOTHING = _Peek()


def _peek(facts: RequestFacts) -> _Peek:
    try:
        return _PEEK.decode(facts.params)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _NOTHING


def pascal(facts: RequestFacts) -> bool:
    """Whether the method is one of 1.0."""
    return facts.name in METHODS_1


def slash(facts: RequestFacts) -> bool:
    """Whether the method is one of 0.3."""
    return facts.name in METHODS_03


def role_of_1(facts: RequestFacts) -> bool:
    """Whether the role is spelled `ROLE_…`, as only 1.0 does."""
    message = _peek(facts).message
    return message is not None and isinstance(message.role, str) and message.role.startswith("ROLE_")


def tagged_kind(facts: RequestFacts) -> bool:
    """Whether the message or one of its parts has the tag `kind`, as in 0.3."""
    message = _peek(facts).message
    return message is not None and (message.kind is not None or any(part.kind is not None for part in message.parts))


def untagged(facts: RequestFacts) -> bool:
    """Whether there is a message with an id, and neither it nor any of its parts has a tag or a member of 0.3."""
    message = _peek(facts).message
    return (
        message is not None
        and message.kind is None
        and isinstance(message.messageId, str)
        and bool(message.parts)
        and all(part.kind is None and part.type is None and part.file == _ABSENT for part in message.parts)
    )


def message_of_03(facts: RequestFacts) -> bool:
    """Whether the message has an id and the tag `message`, as from every official 0.3 client."""
    message = _peek(facts).message
    return message is not None and message.kind == "message" and message.messageId is not None


def lists_as_1(facts: RequestFacts) -> bool:
    """Whether a param is one of 1.0's ListTasks."""
    seen = _peek(facts)
    fields = (seen.pageSize, seen.pageToken, seen.status, seen.contextId, seen.historyLength, seen.includeArtifacts)
    return any(field is not None for field in fields)


def names_task_id(facts: RequestFacts) -> bool:
    """Whether there is a param `taskId`."""
    return _peek(facts).taskId is not None


ONLY_A_TASK = frozenset({"GetTask", "CancelTask", "SubscribeToTask", "tasks/get", "tasks/cancel", "tasks/resubscribe"})
"""Methods whose only parameter is a task's id: they look the same in several dialects."""


def always(facts: RequestFacts) -> bool:
    """The condition of the last rule."""
    return True


def answer_in(dialect: Dialect) -> Callable[[RequestFacts], Dialect | ByTask]:
    """Return the outcome of a rule whose dialect is always the same."""
    return lambda _: dialect


def by_task(otherwise: Dialect, *others: Dialect) -> Callable[[RequestFacts], Dialect | ByTask]:
    """Return the outcome of a rule where the task decides, among `otherwise` and `others`."""
    stored = {dialect.name: dialect for dialect in (otherwise, *others)}

    def resolve(facts: RequestFacts) -> Dialect | ByTask:
        seen = _peek(facts)
        task_id: Any = seen.id if isinstance(seen.id, str) else seen.taskId
        return ByTask(task_id, stored, otherwise) if isinstance(task_id, str) else otherwise

    return resolve


def refusing(dialect: Dialect, error: A2AError) -> Dialect:
    """Return the dialect with decoders that raise `error`, so that its caller can read the refusal."""

    def refuse(*_: object) -> NoReturn:
        raise error

    return structs.replace(dialect, decode=refuse, decode_rest=refuse)


def refuse_version(facts: RequestFacts) -> Dialect:
    """Refuse an unknown version in the dialect that the method's name is closest to."""
    return refusing(v03.JSONRPC if "/" in facts.name else v1.JSONRPC, VersionNotSupported(facts.version))


def refuse_no_version(facts: RequestFacts) -> Dialect:
    """Refuse a method of 1.0 without a version."""
    return refusing(v1.JSONRPC, VersionNotSupported("", ("1.0", "0.3"), f"{SEND_HEADER}method"))


def _refuse_method(facts: RequestFacts) -> Dialect:
    """Return the dialect that answers MethodNotFound: that of the version, or the one with similar method names."""
    if facts.version in ("1.0", "0.3"):
        return v1.JSONRPC if facts.version == "1.0" else v03.JSONRPC
    return v03.JSONRPC if "/" in facts.name else v1.JSONRPC


OFFICIAL: tuple[Rule, ...] = (
    # An unknown method is reported before an unknown version, as in the official server (a2a-sdk 1.3.0).
    Rule(lambda facts: not (pascal(facts) or slash(facts)), _refuse_method),
    Rule(lambda facts: not facts.official, refuse_version),
    # A version that was named holds: a method it does not have is MethodNotFound, by that version's decoder.
    Rule(lambda facts: facts.version == "1.0", answer_in(v1.JSONRPC)),
    Rule(lambda facts: facts.version == "0.3", answer_in(v03.JSONRPC)),
)
"""The rules of unknown methods and of named versions."""
