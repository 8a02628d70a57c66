"""The errors of A2A in both versions, from the tables by which they are sent."""

from dragoman.cli.topics.table import Section, TopicTable
from dragoman.dialects.v03.errors import TABLE as STATUSES_03
from dragoman.dialects.v1.errors import TABLE as CODES


def make_table() -> TopicTable:
    """Each error with its JSON-RPC code, its reason, and its statuses over HTTP and gRPC."""
    rows = []
    for kind, old in STATUSES_03.items():
        codes = CODES[kind]
        http = f"HTTP {codes.http_status}" + (f" (0.3: {old.status})" if old.status != codes.http_status else "")
        everywhere = ", over JSON-RPC, too" if codes.rpc_status != 200 else ""
        meaning = f"{codes.code}; `{codes.reason}`; {http}{everywhere}; gRPC `{codes.grpc_status}`"
        rows.append((f"`{kind.__name__}`", meaning))
    return TopicTable(("Error", "JSON-RPC code; reason in 1.0; HTTP status; gRPC status"), (Section("", tuple(rows)),))
