"""Resolves the dialect of a request by tables of rows; the first match wins.

Invariant: pure and total. Every request gets a dialect, or ByTask with the dialect to use if the task is not found. A
refused request gets the dialect whose errors its caller can read, with decoders that raise the refusal.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import msgspec
from msgspec import Struct, structs

from dragoman.dialects import beeos, evoai, kaos, protoagent, v03, v1
from dragoman.dialects.api import Dialect
from dragoman.dialects.beeos.rest import REST as BEEOS_REST
from dragoman.dialects.mounts import Mount, mount_of
from dragoman.dialects.v03.decode import METHODS as METHODS_03
from dragoman.dialects.v1.decode import METHODS as METHODS_1
from dragoman.model.errors import A2AError, VersionNotSupported

_VERSION = re.compile(r"([0-9]{1,4}\.[0-9]{1,4})(?:\.[0-9]{1,9})?")

_TWICE_ENCODING = "python-httpx/"
"""The User-Agent prefix of the official Python clients (a2a-sdk 0.3.24, 0.3.26, 1.0.3, 1.3.0): over 0.3's HTTP+JSON
they encode the bytes of a file in base64 twice. So does @a2a-js/sdk 1.0.0-beta.0. Version 1.0.1 and later do not, and
their requests look the same (docs/compatibility.md).
"""

_SEND_HEADER = "send the header A2A-Version: 1.0; without it a request is 0.3 (A2A 1.0 §3.6.2), which has no such "


class ByTask(Struct, frozen=True):
    """A request that only names a task, so the mount alone cannot tell its dialect.

    If the caller made that task through this very mount, in one of the dialects of `stored`, that dialect answers.
    `otherwise` answers in all other cases, so a missing task and another caller's task look the same to the byte.
    """

    id: str
    stored: Mapping[str, Dialect]
    otherwise: Dialect


class Asked(Struct, frozen=True):
    """The input of the rows.

    `version` is `1.0`, `0.3`, empty if the caller named none, else as the caller sent it. `name` is the method or the
    route. `params` is empty over HTTP+JSON; `legacy` says that the path is below `/v1`.
    """

    mount: Mount
    version: str
    name: str
    params: bytes = b""
    legacy: bool = False
    user_agent: str = ""

    @property
    def official(self) -> bool:
        """Whether the version is a supported one, or none."""
        return self.version in ("1.0", "0.3", "")

    @property
    def pascal(self) -> bool:
        """Whether the method is one of 1.0."""
        return self.name in METHODS_1

    @property
    def slash(self) -> bool:
        """Whether the method is one of 0.3."""
        return self.name in METHODS_03


class _Part(Struct):
    kind: object = None
    type: object = None


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


def _peek(asked: Asked) -> _Peek:
    try:
        return _PEEK.decode(asked.params)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _NOTHING  # the decoder of the chosen dialect will say what is wrong


def _role_of_1(asked: Asked) -> bool:
    """Whether the role is spelled `ROLE_…`, as only 1.0 does."""
    message = _peek(asked).message
    return message is not None and isinstance(message.role, str) and message.role.startswith("ROLE_")


def _tagged_kind(asked: Asked) -> bool:
    message = _peek(asked).message
    return message is not None and (message.kind is not None or any(part.kind is not None for part in message.parts))


def _message_of_03(asked: Asked) -> bool:
    """Whether the message has an id and the tag `message`, as from every official 0.3 client."""
    message = _peek(asked).message
    return message is not None and message.kind == "message" and message.messageId is not None


def _lists_as_1(asked: Asked) -> bool:
    seen = _peek(asked)
    fields = (seen.pageSize, seen.pageToken, seen.status, seen.contextId, seen.historyLength, seen.includeArtifacts)
    return any(field is not None for field in fields)


def _only_1(asked: Asked) -> bool:
    """Whether 1.0 has the call and BeeOS does not."""
    if not asked.pascal:
        return False
    return asked.name not in beeos.METHODS or _role_of_1(asked) or (asked.name == "ListTasks" and _lists_as_1(asked))


def _only_03(asked: Asked) -> bool:
    """Whether 0.3 has the call and BeeOS does not."""
    return asked.slash and (asked.name not in beeos.METHODS or _role_of_1(asked) or _message_of_03(asked))


def _named_as_kaos(asked: Asked) -> bool:
    """Whether the name is KAOS's, or in no known naming scheme. A name that 0.3 has too may be either's."""
    if asked.name in kaos.METHODS:
        return not asked.slash
    return not asked.pascal and "/" not in asked.name


ONLY_A_TASK = frozenset({"GetTask", "CancelTask", "SubscribeToTask", "tasks/get", "tasks/cancel", "tasks/resubscribe"})
"""Methods whose only parameter is a task's id: they look the same in several dialects."""


class Row(Struct, frozen=True):
    """A condition, and the dialect to use if it holds."""

    when: Callable[[Asked], bool]
    then: Callable[[Asked], Dialect | ByTask]


def of_call(method: str, params: bytes, version: str | None, mount: str) -> Dialect | ByTask:
    """Resolve the dialect of a JSON-RPC call; `version` is `A2A-Version` as sent, in the header or the query."""
    kind = mount_of(mount)
    if kind is Mount.AGENT or kind is Mount.ROOT:
        plain = NAMED.get((version, method))
        if plain is not None:
            return plain
    return _first(CALLS[kind], Asked(kind, version_of(version), method, params))


def of_rest(
    *, legacy: bool, version: str | None, mount: str = "/", user_agent: str = "", vendor: bool = False
) -> Dialect:
    """Resolve the dialect of an HTTP+JSON request; `legacy` says that its path is below `/v1`, where 0.3 is served.

    `vendor` says that only the mount's own system has the path.

    1.0 is not served below `/v1`: its paths follow the interface's URL, and no card of ours has a URL that ends so.
    """
    asked = Asked(mount_of(mount), version_of(version), "path", legacy=legacy, user_agent=user_agent)
    if vendor:
        own = protoagent.REST if asked.mount is Mount.PROTOAGENT else BEEOS_REST
        return own if asked.official else _refuse(own, VersionNotSupported(asked.version))
    dialect = _first(RESTS, asked)
    assert isinstance(dialect, Dialect)
    return dialect


def of_nothing(version: str | None, mount: str = "/") -> Dialect:
    """Return the dialect for answering an unreadable JSON-RPC body, by the mount and the version alone."""
    match mount_of(mount):
        case Mount.TENANT:
            return beeos.JSONRPC
        case Mount.EVOAI:
            return evoai.JSONRPC
        case Mount.PROTOAGENT if version_of(version) != "1.0":
            return protoagent.JSONRPC
        case _:
            return v1.JSONRPC if version_of(version) == "1.0" else v03.JSONRPC


def version_of(sent: str | None) -> str:
    """Return the version without its patch number, which has no meaning (A2A 1.0 §3.6.1); any other text as sent."""
    sent = (sent or "").strip()
    match = _VERSION.fullmatch(sent)
    return match[1] if match else sent


def _first(rows: Sequence[Row], asked: Asked) -> Dialect | ByTask:
    return next(row.then(asked) for row in rows if row.when(asked))


def _refuse(dialect: Dialect, error: A2AError) -> Dialect:
    def refuse(*_: object) -> NoReturn:
        raise error

    return structs.replace(dialect, decode=refuse, decode_rest=refuse)


def _unknown_method(asked: Asked) -> Dialect:
    """Return the dialect that answers MethodNotFound: that of the version, or the one with similar method names."""
    if asked.version in ("1.0", "0.3"):
        return of_nothing(asked.version)
    return v03.JSONRPC if "/" in asked.name else v1.JSONRPC


def _unknown_version(asked: Asked) -> Dialect:
    return _refuse(v03.JSONRPC if "/" in asked.name else v1.JSONRPC, VersionNotSupported(asked.version))


def _unknown_version_at_tenant(asked: Asked) -> Dialect:
    """Refuse an unknown version. BeeOS's gateway also knows 1.0 and 0.3, and refuses every other one."""
    if _only_1(asked) or _only_03(asked):
        return _unknown_version(asked)
    return _refuse(beeos.JSONRPC, VersionNotSupported(asked.version))


def _no_version(_: Asked) -> Dialect:
    return _refuse(v1.JSONRPC, VersionNotSupported("", ("1.0", "0.3"), f"{_SEND_HEADER}method"))


def _by_task(**stored: Dialect) -> Callable[[Asked], Dialect | ByTask]:
    """Resolve by task among the keyword dialects; the first one is `otherwise`."""
    otherwise = next(iter(stored.values()))
    named = {dialect.name: dialect for dialect in stored.values()}

    def resolve(asked: Asked) -> Dialect | ByTask:
        seen = _peek(asked)
        task_id = seen.id if isinstance(seen.id, str) else seen.taskId
        return ByTask(task_id, named, otherwise) if isinstance(task_id, str) else otherwise

    return resolve


def _is(dialect: Dialect) -> Callable[[Asked], Dialect | ByTask]:
    return lambda _: dialect


_OFFICIAL: tuple[Row, ...] = (
    # An unknown method is reported before an unknown version, as in the official server (a2a-sdk 1.3.0).
    Row(lambda asked: not (asked.pascal or asked.slash), _unknown_method),
    Row(lambda asked: not asked.official, _unknown_version),
    # A version that was named holds: a method it does not have is MethodNotFound, by that version's decoder.
    Row(lambda asked: asked.version == "1.0", _is(v1.JSONRPC)),
    Row(lambda asked: asked.version == "0.3", _is(v03.JSONRPC)),
)

NAMED: dict[tuple[str | None, str], Dialect] = {
    **{("1.0", method): v1.JSONRPC for method in METHODS_1},
    **{("0.3", method): v03.JSONRPC for method in METHODS_03},
}
"""Shortcut for the rows of the root and of `/agents/{id}`, if the version is named and has the method."""

CALLS: dict[Mount, tuple[Row, ...]] = {
    # No version is 0.3 (A2A 1.0 §3.6.2), so a method of 1.0 without one is refused: this mount is pure.
    Mount.AGENT: (
        *_OFFICIAL,
        Row(lambda asked: asked.slash, _is(v03.JSONRPC)),
        Row(lambda asked: True, _no_version),
    ),
    # KAOS clients send no version: its names without one are KAOS, unless the role is spelled as only 1.0 spells it.
    Mount.ROOT: (
        Row(lambda asked: asked.version == "" and asked.pascal and _role_of_1(asked), _is(v1.JSONRPC)),
        Row(lambda asked: asked.version == "" and _named_as_kaos(asked), _is(kaos.JSONRPC)),
        *_OFFICIAL,
        Row(
            lambda asked: asked.name in ONLY_A_TASK and asked.name in kaos.METHODS,
            _by_task(official=v03.JSONRPC, vendor=kaos.JSONRPC),
        ),
        Row(lambda asked: asked.slash, _is(v03.JSONRPC)),
        Row(lambda asked: True, _is(v1.JSONRPC)),
    ),
    # protoAgent's 1.0 clients use 1.0's names, all others those of 0.3. Its dialect is a superset of 0.3.
    Mount.PROTOAGENT: (
        Row(lambda asked: asked.pascal and asked.version in ("1.0", ""), _is(v1.JSONRPC)),
        Row(lambda asked: asked.name in protoagent.METHODS and asked.version in ("0.3", ""), _is(protoagent.JSONRPC)),
        Row(lambda asked: asked.version == "1.0", _is(v1.JSONRPC)),
        Row(lambda asked: not asked.official and (asked.pascal or asked.name in protoagent.METHODS), _unknown_version),
        Row(lambda asked: True, _is(protoagent.JSONRPC)),
    ),
    # Parts tagged `kind` are 0.3, all else is Evo AI.
    Mount.EVOAI: (
        Row(lambda asked: not asked.official and asked.slash and _tagged_kind(asked), _unknown_version),
        Row(lambda asked: asked.version == "0.3" or _tagged_kind(asked), _is(v03.JSONRPC)),
        Row(
            lambda asked: asked.name in ONLY_A_TASK and _peek(asked).taskId is None,
            _by_task(vendor=evoai.JSONRPC, official=v03.JSONRPC),
        ),
        Row(lambda asked: True, _is(evoai.JSONRPC)),
    ),
    # BeeOS clients send A2A-Version: 1.0 on everything, so 1.0 is no signal here; 0.3 is one with 0.3's method names.
    Mount.TENANT: (
        Row(lambda asked: not (asked.pascal or asked.slash or asked.name in beeos.METHODS), _is(beeos.JSONRPC)),
        Row(lambda asked: not asked.official, _unknown_version_at_tenant),
        Row(lambda asked: asked.version == "0.3" and (asked.slash or _only_1(asked)), _is(v03.JSONRPC)),
        Row(_only_1, _is(v1.JSONRPC)),
        Row(_only_03, _is(v03.JSONRPC)),
        Row(
            lambda asked: asked.name in ONLY_A_TASK and asked.pascal,
            _by_task(vendor=beeos.JSONRPC, official=v1.JSONRPC),
        ),
        Row(lambda asked: asked.name in ONLY_A_TASK, _by_task(vendor=beeos.JSONRPC, official=v03.JSONRPC)),
        Row(lambda asked: True, _is(beeos.JSONRPC)),
    ),
}


def _rest_03(asked: Asked) -> Dialect:
    if not asked.user_agent.startswith(_TWICE_ENCODING):
        return v03.REST
    return v03.REST_TWICE if asked.version else v03.REST_TWICE_0_3  # a2a-sdk 1.3.0 names 0.3; 0.3.26 names none


def _unknown_rest_version(asked: Asked) -> Dialect:
    dialect = _rest_03(asked) if asked.legacy else v1.REST
    return _refuse(dialect, VersionNotSupported(asked.version))


def _new_version_on_old_path(asked: Asked) -> Dialect:
    return _refuse(v1.REST, VersionNotSupported("1.0", ("0.3",), "paths below /v1 are 0.3, leave /v1 out"))


def _old_version_on_new_path(asked: Asked) -> Dialect:
    return _refuse(v1.REST, VersionNotSupported("0.3", ("1.0",), "HTTP+JSON of 0.3 is below /v1"))


def _no_rest_version(asked: Asked) -> Dialect:
    return _refuse(v1.REST, VersionNotSupported("", ("1.0", "0.3"), f"{_SEND_HEADER}path"))


RESTS: tuple[Row, ...] = (
    Row(lambda asked: not asked.official, _unknown_rest_version),
    Row(lambda asked: asked.legacy and asked.version == "1.0", _new_version_on_old_path),
    Row(lambda asked: asked.legacy, _rest_03),
    Row(lambda asked: asked.version == "0.3", _old_version_on_new_path),
    # A path of 1.0 is unmistakable, so it needs no version, except where the mount is pure.
    Row(lambda asked: asked.version == "" and asked.mount is Mount.AGENT, _no_rest_version),
    Row(lambda asked: True, lambda asked: v1.REST),
)
