"""Compares an answer with a text that shows it: every key shown, in that order, with that value; ours after them.

The list of keys that may come after them is that of docs/dialects.md.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from dragoman.dialects import jsonrpc
from dragoman.dialects.api import Dialect
from dragoman.model import operations
from dragoman.model.card import AgentCard
from dragoman.model.message import Message
from dragoman.model.operations import Operation, PushConfig, Result, SendMessage, TaskPage
from dragoman.model.task import Record

VECTORS = Path(__file__).parent / "vectors"
DOCS = Path(__file__).parents[2] / "docs" / "dialects.md"
ANY_TEXT = "..."
RESULTS: dict[str, Any] = {
    "Record": Record,
    "Message": Message,
    "TaskPage": TaskPage,
    "AgentCard": AgentCard,
    "PushConfig": PushConfig,
    "PushConfigs": tuple[PushConfig, ...],
    "None": None,
}
UNNAMED = "*"


def vectors(dialect: str, prefix: str) -> dict[str, dict[str, Any]]:
    found = {path.stem: json.loads(path.read_text("utf-8")) for path in (VECTORS / dialect).glob(f"{prefix}-*.json")}
    assert found, f"no vectors {dialect}/{prefix}-*.json"
    return dict(sorted(found.items()))


def compact(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def named_vectors(dialect: str) -> tuple[dict[str, dict[str, Any]], Callable[[str], list[str]]]:
    """All vectors of a folder by their names, and a function that gives the names of those that have a key."""
    found = {path.stem: json.loads(path.read_text("utf-8")) for path in (VECTORS / dialect).glob("*.json")}

    def having(key: str) -> list[str]:
        names = sorted(name for name, vector in found.items() if key in vector)
        assert names, f"no vectors in {dialect} with {key}"
        return names

    return found, having


def operation_of(vector: dict[str, Any]) -> Operation:
    ((name, fields),) = vector["operation"].items()
    operation: Operation = msgspec.convert(fields, getattr(operations, name))
    return operation


def result_of(vector: dict[str, Any]) -> Result:
    ((name, fields),) = vector["result"].items()
    result: Result = msgspec.convert(fields, RESULTS[name])
    return result


def decoded(dialect: Dialect, request: dict[str, Any]) -> Operation:
    """The operation of a whole request; an id that was made up for its message is `*`."""
    opened = jsonrpc.decode_request(json.dumps(request).encode())
    operation = dialect.decode(opened.method, opened.params)
    if isinstance(operation, SendMessage) and not request["params"]["message"].get("messageId"):
        assert operation.message.message_id
        operation = structs.replace(operation, message=structs.replace(operation.message, message_id=UNNAMED))
    return operation


def answered(dialect: Dialect, request_id: object, operation: Operation, result: Result) -> bytes:
    before, after = dialect.around_answer(json.dumps(request_id).encode())
    return before + dialect.encode_result(operation, result) + after


def further_keys(section: str) -> frozenset[str]:
    """The keys that docs/dialects.md lists in `section` as `Further keys:`."""
    text = DOCS.read_text("utf-8").split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    lists = re.findall(r"^Further keys: (.*?)\n\n", text + "\n\n", re.MULTILINE | re.DOTALL)
    assert lists, f"docs/dialects.md, {section}: no line 'Further keys: …'"
    return frozenset(word for each in lists for word in re.findall(r"`([^`]+)`", each))


def holds(shown: Any, written: Any, further: frozenset[str]) -> bool:
    """Whether `written` is as `shown`, with keys of `further` after those shown; `["..."]` shows any list."""
    match shown:
        case dict():
            return (
                isinstance(written, dict)
                and list(written)[: len(shown)] == list(shown)
                and further.issuperset(list(written)[len(shown) :])
                and all(holds(value, written[key], further) for key, value in shown.items())
            )
        case [only] if only == ANY_TEXT:
            return isinstance(written, list)
        case list():
            return (
                isinstance(written, list)
                and len(shown) == len(written)
                and all(holds(one, other, further) for one, other in zip(shown, written, strict=True))
            )
        case _:
            return isinstance(written, str) if shown == ANY_TEXT else bool(shown == written)
