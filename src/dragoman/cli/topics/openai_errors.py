"""The errors of chat completions and Responses, from the table by which they are sent."""

from dragoman.cli.topics.table import Section, TopicTable
from dragoman.dialects.openai.encode import TABLE


def make_table() -> TopicTable:
    """Each error with its code, its HTTP status, and what the class of the error says of it."""
    rows = []
    for kind, known in sorted(TABLE.items(), key=lambda row: row[1].status):
        said = " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
        again = "" if known.again else " Do not send it again: `x-should-retry` is false."
        rows.append((f"`{known.code}`" if known.code else "none", str(known.status), said + again))
    return TopicTable(("Code", "HTTP status", "When"), (Section("", tuple(rows)),))
