"""The operations of A2A in both versions, from the tables by which requests are read."""

from dragoman.cli.topics.table import Section, TopicTable
from dragoman.dialects.operations import OperationRow
from dragoman.dialects.v03.operations import TABLE as OPERATIONS_03
from dragoman.dialects.v1.operations import TABLE as OPERATIONS


def make_table() -> TopicTable:
    """Each operation with its names and paths."""
    rows = []
    for operation, row in OPERATIONS.items():
        old = OPERATIONS_03[operation]
        over_grpc = "" if old.procedure == row.method else f", over gRPC {_code(old.procedure)}"
        meaning = f"`{_request(row)}`; in 0.3 `{old.method}`, `{_request(old)}`{over_grpc}"
        rows.append((f"`{row.method}`", meaning))
    columns = ("Method in 1.0, also over gRPC", "HTTP+JSON in 1.0; method, HTTP+JSON and gRPC in 0.3")
    return TopicTable(columns, (Section("", tuple(rows)),))


def _request(row: OperationRow) -> str:
    return f"{' or '.join(verb for verb in (row.verb, *row.also) if verb != 'HEAD')} {row.path}"


def _code(procedure: str) -> str:
    return f"`{procedure}`" if procedure else "not at all"
