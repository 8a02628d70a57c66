"""Resolves the dialect of a request by tables of rules; the first match wins.

Invariant: pure and total. Every request gets a dialect, or ByTask with the dialect to use if the task is not found. A
refused request gets the dialect whose errors its caller can read, with decoders that raise the refusal.
"""

import re
from collections.abc import Sequence

from dragoman.dialects import v03, v1
from dragoman.dialects.api import Dialect
from dragoman.dialects.registry import load_systems
from dragoman.dialects.requests import (
    OFFICIAL,
    ONLY_A_TASK,
    SEND_HEADER,
    always,
    answer_in,
    by_task,
    pascal,
    refuse_no_version,
    refusing,
    role_of_1,
    slash,
)
from dragoman.dialects.system import AGENT, ROOT, ByTask, Mount, RequestFacts, Rule, System
from dragoman.dialects.v03.decode import METHODS as METHODS_03
from dragoman.dialects.v1.decode import METHODS as METHODS_1
from dragoman.model.errors import VersionNotSupported

_VERSION = re.compile(r"([0-9]{1,4}\.[0-9]{1,4})(?:\.[0-9]{1,9})?")

OFFICIAL_PYTHON = "python-httpx/"
"""The User-Agent prefix of the official Python clients (a2a-sdk 0.3.24, 0.3.26, 1.0.3, 1.3.0). Over 0.3's HTTP+JSON
they encode the bytes of a file in base64 twice. So does @a2a-js/sdk 1.0.0-beta.0. Version 1.0.1 and later do not, and
their requests look the same (docs/compatibility.md).
"""

SYSTEMS: tuple[System, ...] = load_systems()

_OWNERS: dict[Mount, System] = {
    system.mount: system for system in SYSTEMS if system.mount is not None and system.mount is not ROOT
}
"""The systems with a mount of their own, by that mount."""

MOUNTS: tuple[Mount, ...] = (ROOT, AGENT, *_OWNERS)

CLOSEST_FIRST = sorted(MOUNTS, key=lambda mount: (mount.names_agents, -len(mount.path)))
"""The mounts in the order in which a path is compared with them."""


_AGENTS = AGENT.path.removesuffix("{id}")


def mount_of(path: str) -> Mount:
    """Return the kind of the mount at `path`: `/`, `/agents/echo`, `/a2a` …"""
    if path == "/":
        return ROOT
    for mount in CLOSEST_FIRST:
        if path.startswith(mount.path[:-4]) if mount.names_agents else path == mount.path:
            return mount
    raise ValueError(f"no mount is at {path!r}")


def of_call(method: str, params: bytes | memoryview, version: str | None, mount: str) -> Dialect | ByTask:
    """Resolve the dialect of a JSON-RPC call; `version` is `A2A-Version` as sent, in the header or the query."""
    named = NAMED.get((version, method))
    if named is not None and (mount == ROOT.path or mount.startswith(_AGENTS)):
        return named
    kind = mount_of(mount)
    return _first(CALLS[kind], RequestFacts(kind, version_of(version), method, params))


def of_rest(*, legacy: bool, version: str | None, mount: str = "/", user_agent: str = "") -> Dialect:
    """Resolve the dialect of an HTTP+JSON request; `legacy` says that its path is below `/v1`, where 0.3 is served.

    1.0 is not served below `/v1`: its paths follow the interface's URL, and no card of ours has a URL that ends so.
    """
    facts = RequestFacts(mount_of(mount), version_of(version), "path", legacy=legacy, user_agent=user_agent)
    dialect = _first(RESTS, facts)
    assert isinstance(dialect, Dialect)
    return dialect


def of_own_path(dialect: Dialect, version: str | None) -> Dialect:
    """Resolve the dialect of a request to a path that only one system has, and answers in its `dialect`."""
    named = version_of(version)
    return dialect if named in ("1.0", "0.3", "") else refusing(dialect, VersionNotSupported(named))


def of_nothing(version: str | None, mount: str = "/") -> Dialect:
    """Return the dialect for answering an unreadable JSON-RPC body, by the mount and the version alone."""
    owner, named = _OWNERS.get(mount_of(mount)), version_of(version)
    if owner is not None and owner.unread is not None:
        return owner.unread(named)
    return v1.JSONRPC if named == "1.0" else v03.JSONRPC


def of_bare(body: bytes, mount: str) -> tuple[str, Dialect] | None:
    """Return method and dialect of a body that is no JSON-RPC request; None if no system's clients send such a one."""
    if mount_of(mount) in (ROOT, AGENT):
        for system in SYSTEMS:
            if system.bare is not None and (found := system.bare(body)) is not None:
                return found
    return None


def version_of(sent: str | None) -> str:
    """Return the version without its patch number, which has no meaning (A2A 1.0 §3.6.1); any other text as sent."""
    sent = (sent or "").strip()
    match = _VERSION.fullmatch(sent)
    return match[1] if match else sent


def _first(rules: Sequence[Rule], facts: RequestFacts) -> Dialect | ByTask:
    return next(rule.then(facts) for rule in rules if rule.when(facts))


def _shared(mount: Mount) -> tuple[Rule, ...]:
    """The systems' rules at a mount that belongs to none of them."""
    return tuple(rule for system in SYSTEMS for rule in system.shared.get(mount, ()))


def _of_task(mount: Mount) -> tuple[Rule, ...]:
    """The rules of 0.3's methods that only name a task, which may have been made in any of the mount's dialects."""
    at = [system for system in SYSTEMS if mount in system.shared]
    return tuple(
        Rule(
            lambda facts, method=method: facts.name == method,  # type: ignore[misc]
            by_task(v03.JSONRPC, *(system.dialect for system in at if method in system.methods)),
        )
        for method in ONLY_A_TASK & METHODS_03.keys()
    )


NAMED: dict[tuple[str | None, str], Dialect] = {
    **{("1.0", method): v1.JSONRPC for method in METHODS_1},
    **{("0.3", method): v03.JSONRPC for method in METHODS_03},
}
"""Shortcut for the rules of the root and of `/agents/{id}`, if the version is named and has the method."""

CALLS: dict[Mount, tuple[Rule, ...]] = {
    # No version is 0.3 (A2A 1.0 §3.6.2), so a method of 1.0 without one is refused: this mount is pure.
    AGENT: (
        *_shared(AGENT),
        *OFFICIAL,
        *_of_task(AGENT),
        Rule(slash, answer_in(v03.JSONRPC)),
        Rule(always, refuse_no_version),
    ),
    # A method of 1.0 needs no version here if nothing but 1.0 has it, or if the role is spelled as only 1.0 spells it.
    ROOT: (
        Rule(lambda facts: facts.version == "" and pascal(facts) and role_of_1(facts), answer_in(v1.JSONRPC)),
        *_shared(ROOT),
        *OFFICIAL,
        *_of_task(ROOT),
        Rule(slash, answer_in(v03.JSONRPC)),
        Rule(always, answer_in(v1.JSONRPC)),
    ),
    **{mount: owner.rules for mount, owner in _OWNERS.items()},
}


def _rest_03(facts: RequestFacts) -> Dialect:
    if not facts.user_agent.startswith(OFFICIAL_PYTHON):
        return v03.REST
    return v03.REST_TWICE if facts.version else v03.REST_TWICE_0_3  # a2a-sdk 1.3.0 names 0.3; 0.3.26 names none


def _unknown_rest_version(facts: RequestFacts) -> Dialect:
    dialect = _rest_03(facts) if facts.legacy else v1.REST
    return refusing(dialect, VersionNotSupported(facts.version))


def _new_version_on_old_path(facts: RequestFacts) -> Dialect:
    return refusing(v1.REST, VersionNotSupported("1.0", ("0.3",), "paths below /v1 are 0.3, leave /v1 out"))


def _old_version_on_new_path(facts: RequestFacts) -> Dialect:
    return refusing(v1.REST, VersionNotSupported("0.3", ("1.0",), "HTTP+JSON of 0.3 is below /v1"))


def _no_rest_version(facts: RequestFacts) -> Dialect:
    return refusing(v1.REST, VersionNotSupported("", ("1.0", "0.3"), f"{SEND_HEADER}path"))


RESTS: tuple[Rule, ...] = (
    Rule(lambda facts: not facts.official, _unknown_rest_version),
    Rule(lambda facts: facts.legacy and facts.version == "1.0", _new_version_on_old_path),
    Rule(lambda facts: facts.legacy, _rest_03),
    Rule(lambda facts: facts.version == "0.3", _old_version_on_new_path),
    # A path of 1.0 is unmistakable, so it needs no version, except where the mount is pure.
    Rule(lambda facts: facts.version == "" and facts.mount is AGENT, _no_rest_version),
    Rule(always, lambda facts: v1.REST),
)
