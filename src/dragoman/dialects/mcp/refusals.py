"""The refusals of 2026-07-28 that no other protocol has.

Invariant: each says what the client must change, in words and in the `data` that its code promises.
"""

from typing import Any

from dragoman.dialects.mcp import names
from dragoman.model.errors import InvalidRequest


class HeaderMismatch(InvalidRequest):
    """A header is missing, malformed, or says something else than the body (Streamable HTTP, Server Validation)."""

    def __init__(self, header: str, fix: str) -> None:
        super().__init__(f"{header} {fix}")
        self.header = header


class MissingCapability(InvalidRequest):
    """The request needs something of its client that it did not declare: `required`, as capabilities are declared."""

    def __init__(self, what: str, required: dict[str, Any]) -> None:
        super().__init__(f"{what}: declare it in _meta, under {names.META_CAPABILITIES}")
        self.required = required


class UnsupportedVersion(InvalidRequest):
    """The request is of a version of MCP that is not spoken here."""

    def __init__(self, requested: str) -> None:
        super().__init__(f"version {requested[:40]!r} of MCP is not spoken here: use {' or '.join(names.SPOKEN)}")
        self.requested = requested[:40]


def needs_tasks(what: str) -> MissingCapability:
    """The refusal of a request that only a client with the extension for tasks may make."""
    return MissingCapability(f"{what} needs the extension {names.TASKS}", {"extensions": {names.TASKS: {}}})
