"""The shape of the tables of operations: each official version has one (`v1/operations.py`, `v03/operations.py`).

Invariant: the names, the path, the scope and the plain fields of an operation are said in its row and nowhere else.
JSON-RPC, HTTP+JSON, gRPC, the clients, the routes, the check of scopes and OpenAPI read them there.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import fields

from dragoman.dialects.json_fields import INT32_MAX
from dragoman.model.operations import Operation
from dragoman.model.principal import Scope


class FieldKind(StrEnum):
    """The kind of a value. A `TIME` is in milliseconds in the model; a `SEQ` is the id of an event of our servers."""

    TEXT = "text"
    TEXTS = "texts"
    COUNT = "count"
    FLAG = "flag"
    OBJECT = "object"
    STATE = "state"
    TIME = "time"
    SEQ = "seq"
    WEBHOOK = "webhook"


class FieldRow(Struct, frozen=True):
    """One field of an operation, or of an object within its request.

    `name` is that in the model. `proto` is that in the proto file, if it differs; JSON has the latter in camelCase. A
    number is from `least` to `most`. `description` speaks to those who write clients.
    """

    name: str
    kind: FieldKind = FieldKind.TEXT
    proto: str = ""
    required: bool = False
    least: int = 0
    most: int = INT32_MAX
    description: str = ""

    @property
    def proto_name(self) -> str:
        """The name in the proto file."""
        return self.proto or self.name

    @property
    def json_name(self) -> str:
        """The name in JSON."""
        first, *others = self.proto_name.split("_")
        return first + "".join(other.title() for other in others)


class OperationRow(Struct, frozen=True):
    """One operation of one version.

    `method` is its name over JSON-RPC, `procedure` the one over gRPC; empty: gRPC lacks it. `verb` and `path` are those
    of HTTP+JSON, below the URL of the interface; servers take the methods of `also`, too. `fields` are the plain ones,
    in the order of the proto file: those that are objects are not among them. `scope` is what a caller
    needs; only the rows of 1.0 have it, because it does not depend on the version.
    """

    operation: type[Operation]
    method: str
    procedure: str
    verb: str
    path: str
    fields: tuple[FieldRow, ...] = ()
    also: tuple[str, ...] = ()
    scope: Scope | None = None

    @property
    def segments(self) -> tuple[str, ...]:
        """The segments of the path; one like `{id}` is an id."""
        return tuple(self.path[1:].split("/"))


def default_of(operation: type[Operation], field: FieldRow) -> Any:
    """Return the value of an absent field; msgspec.NODEFAULT if it may not be absent."""
    return next(each.default for each in fields(operation) if each.name == field.name)


OperationTable = Mapping[type[Operation], OperationRow]


def make_table(*rows: OperationRow) -> OperationTable:
    """Return the table of a version."""
    return {row.operation: row for row in rows}
