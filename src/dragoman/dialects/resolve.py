"""Which dialect is this request? Tables of rows, the first that fits wins.

Invariant: pure and total: every request gets a dialect. One that is refused gets the dialect whose errors its caller
can read, with decoders that raise the refusal.
"""

import re
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NoReturn

from msgspec import Struct, structs

from dragoman.dialects import v03, v1
from dragoman.dialects.api import Dialect
from dragoman.dialects.v03.decode import METHODS as METHODS_03
from dragoman.dialects.v1.decode import METHODS as METHODS_1
from dragoman.model.errors import A2AError, VersionNotSupported

_VERSION = re.compile(r"([0-9]{1,4}\.[0-9]{1,4})(?:\.[0-9]{1,9})?")

_TWICE_ENCODING = "python-httpx/"
"""How the User-Agent of the official Python clients begins (a2a-sdk 0.3.26, 1.3.0): over 0.3's HTTP+JSON they put the
bytes of a file into base64 twice, and nothing else in their requests tells them from those that do not."""

_SEND_HEADER = "send the header A2A-Version: 1.0; without it a request is 0.3 (A2A 1.0 §3.6.2), which has no such "


class Mount(Enum):
    """The kinds of mounts: the root, `/agents/{id}`, `/{id}`."""

    ROOT = "/"
    AGENT = "/agents/{id}"
    TENANT = "/{id}"


class Grammar(Enum):
    """Whose method a name is, or whose path: no name is in both versions."""

    V1 = "1.0"
    V03 = "0.3"
    UNKNOWN = ""


class Asked(Struct, frozen=True):
    """What the rows look at.

    `version` is `1.0`, `0.3`, empty when the caller named none, else as the caller sent it. `name` is the method or the
    route. `params` is empty over HTTP+JSON.
    """

    mount: Mount
    version: str
    grammar: Grammar
    name: str
    params: bytes = b""
    user_agent: str = ""

    @property
    def official(self) -> bool:
        """Whether the version is one that is spoken, or none."""
        return self.version in ("1.0", "0.3", "")


class Row(Struct, frozen=True):
    """A condition, and the dialect where it holds."""

    when: Callable[[Asked], bool]
    then: Callable[[Asked], Dialect]


def of_call(method: str, params: bytes, version: str | None, mount: str) -> Dialect:
    """The dialect of a JSON-RPC call; `version` is `A2A-Version` as sent, in the header or the query."""
    if method in METHODS_1:
        grammar = Grammar.V1
    elif method in METHODS_03:
        grammar = Grammar.V03
    else:
        grammar = Grammar.UNKNOWN
    return _first(CALLS, Asked(_mount(mount), version_of(version), grammar, method, params))


def of_rest(*, legacy: bool, version: str | None, mount: str = "/", user_agent: str = "") -> Dialect:
    """The dialect of an HTTP+JSON request; `legacy` says that its path is below `/v1`, where 0.3 lives.

    Below `/v1` 1.0 is not served: its paths follow the interface's URL, and no card of ours names one that ends so.
    """
    grammar = Grammar.V03 if legacy else Grammar.V1
    return _first(RESTS, Asked(_mount(mount), version_of(version), grammar, "path", user_agent=user_agent))


def of_nothing(version: str | None) -> Dialect:
    """The dialect to answer a JSON-RPC body in that could not be read: by the version alone."""
    return v1.JSONRPC if version_of(version) == "1.0" else v03.JSONRPC


def version_of(sent: str | None) -> str:
    """The version without its patch number, which means nothing (A2A 1.0 §3.6.1); what is no version, as sent."""
    sent = (sent or "").strip()
    match = _VERSION.fullmatch(sent)
    return match[1] if match else sent


def _first(rows: Sequence[Row], asked: Asked) -> Dialect:
    return next(row.then(asked) for row in rows if row.when(asked))


def _mount(path: str) -> Mount:
    if path == "/":
        return Mount.ROOT
    return Mount.AGENT if path.startswith("/agents/") else Mount.TENANT


def _refused(dialect: Dialect, error: A2AError) -> Dialect:
    def refuse(*_: object) -> NoReturn:
        raise error

    return structs.replace(dialect, decode=refuse, decode_rest=refuse)


def _unknown_method(asked: Asked) -> Dialect:
    """The dialect that answers MethodNotFound: that of the version, or else the one whose names look like this one."""
    if asked.version in ("1.0", "0.3"):
        return of_nothing(asked.version)
    return v03.JSONRPC if "/" in asked.name else v1.JSONRPC


def _unknown_version(asked: Asked) -> Dialect:
    dialect = v03.JSONRPC if asked.grammar is Grammar.V03 else v1.JSONRPC
    return _refused(dialect, VersionNotSupported(asked.version))


def _no_version(asked: Asked) -> Dialect:
    return _refused(v1.JSONRPC, VersionNotSupported("", ("1.0", "0.3"), f"{_SEND_HEADER}method"))


CALLS: tuple[Row, ...] = (
    # The dialects of a mount that is strict, and methods that only one of the vendors has, go here.
    # An unknown method is told before an unknown version, as the official server does (a2a-sdk 1.3.0).
    Row(lambda asked: asked.grammar is Grammar.UNKNOWN, _unknown_method),
    Row(lambda asked: not asked.official, _unknown_version),
    # Role spelling, part tags and id keys of the vendors go here.
    # A version that was named holds: a method it does not have is MethodNotFound, by that version's decoder.
    Row(lambda asked: asked.version == "1.0", lambda asked: v1.JSONRPC),
    Row(lambda asked: asked.version == "0.3", lambda asked: v03.JSONRPC),
    # No version is 0.3 (A2A 1.0 §3.6.2) …
    Row(lambda asked: asked.grammar is Grammar.V03, lambda asked: v03.JSONRPC),
    # … so a method of 1.0 without one is refused where the mount is pure.
    Row(lambda asked: asked.mount is Mount.AGENT, _no_version),
    # KAOS (`type` parts under a 1.0 name on the root) goes here.
    Row(lambda asked: True, lambda asked: v1.JSONRPC),
)


def _rest_03(asked: Asked) -> Dialect:
    return v03.REST_TWICE if asked.user_agent.startswith(_TWICE_ENCODING) else v03.REST


def _unknown_rest_version(asked: Asked) -> Dialect:
    dialect = _rest_03(asked) if asked.grammar is Grammar.V03 else v1.REST
    return _refused(dialect, VersionNotSupported(asked.version))


def _new_version_on_old_path(asked: Asked) -> Dialect:
    return _refused(v1.REST, VersionNotSupported("1.0", ("0.3",), "paths below /v1 are 0.3, leave /v1 out"))


def _old_version_on_new_path(asked: Asked) -> Dialect:
    return _refused(v1.REST, VersionNotSupported("0.3", ("1.0",), "HTTP+JSON of 0.3 is below /v1"))


def _no_rest_version(asked: Asked) -> Dialect:
    return _refused(v1.REST, VersionNotSupported("", ("1.0", "0.3"), f"{_SEND_HEADER}path"))


RESTS: tuple[Row, ...] = (
    Row(lambda asked: not asked.official, _unknown_rest_version),
    Row(lambda asked: asked.grammar is Grammar.V03 and asked.version == "1.0", _new_version_on_old_path),
    Row(lambda asked: asked.grammar is Grammar.V03, _rest_03),
    Row(lambda asked: asked.version == "0.3", _old_version_on_new_path),
    # A path of 1.0 is unmistakable, so it needs no version, except where the mount is pure.
    Row(lambda asked: asked.version == "" and asked.mount is Mount.AGENT, _no_rest_version),
    Row(lambda asked: True, lambda asked: v1.REST),
)
