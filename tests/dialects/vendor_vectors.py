"""Vectors of the vendors' dialects: requests to operations; results, errors and logs to answers and frames.

Invariant: JSON is compared with the order of its keys; frames are compared byte by byte.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dragoman.dialects import jsonrpc, sse
from dragoman.dialects.api import Dialect
from dragoman.model import errors, operations
from dragoman.model.errors import A2AError
from dragoman.model.events import Event, StatusChanged
from dragoman.model.lifecycle import SETTLED, Fold
from dragoman.model.operations import Operation, PushConfig, SendMessage
from dragoman.model.task import Record, TaskHead

ROOT = Path(__file__).parent / "vectors"
RESULTS: dict[str, Any] = {"Record": Record, "PushConfig": PushConfig, "PushConfigs": tuple[PushConfig, ...]}
FRESH = "msg-"
"""How the id begins that a message gets whose sender gave it none; vectors have an empty id there."""


def vectors(dialect: str, prefix: str) -> list[Any]:
    """The vectors of a kind."""
    found = sorted((ROOT / dialect).glob(f"{prefix}-*.json"))
    return [pytest.param(json.loads(path.read_text()), id=path.stem) for path in found]


def some_vectors(dialect: str, prefix: str) -> list[Any]:
    """The vectors of a kind that there must be."""
    found = vectors(dialect, prefix)
    assert found, f"no vectors {dialect}/{prefix}-*.json"
    return found


def in_order(text: str | bytes) -> Any:
    """JSON with objects as lists of pairs."""
    return json.loads(text, object_pairs_hook=list)


def expected(vector: dict[str, Any]) -> Operation:
    """The operation of a vector."""
    operation = msgspec.convert(vector["fields"], getattr(operations, vector["operation"]))
    assert isinstance(operation, Operation)
    return operation


def decoded(dialect: Dialect, request: dict[str, Any]) -> Operation:
    """The operation of a whole JSON-RPC request; an id that was made up is empty."""
    envelope = jsonrpc.decode_request(json.dumps(request).encode())
    operation = dialect.decode(envelope.method, envelope.params)
    if isinstance(operation, SendMessage) and operation.message.message_id.startswith(FRESH):
        assert len(operation.message.message_id) > len(FRESH)
        return replace(operation, message=replace(operation.message, message_id=""))
    return operation


def answered(dialect: Dialect, vector: dict[str, Any]) -> bytes:
    """The answer to the vector's operation with the vector's result."""
    kind = RESULTS[vector["result"]] if vector["result"] is not None else None
    before, after = dialect.around_answer(json.dumps(vector["id"]).encode())
    return before + dialect.encode_result(expected(vector), msgspec.convert(vector["value"], kind)) + after


def refused(dialect: Dialect, vector: dict[str, Any]) -> tuple[int, bytes]:
    """HTTP status and answer of the vector's error."""
    error = getattr(errors, vector["error"])(*vector["args"])
    assert isinstance(error, A2AError)
    before, after = dialect.around_error(json.dumps(vector["id"]).encode())
    return dialect.error_status(error), before + dialect.encode_error(error) + after


def streamed(dialect: Dialect, vector: dict[str, Any]) -> list[list[str]]:
    """The SSE frames of each event of the vector's log, folded as far as the dialect asks for it."""
    around = dialect.around_frame(json.dumps(vector["id"]).encode())
    head = msgspec.convert(vector["head"], TaskHead)
    fold = Fold(head)
    sent: list[list[str]] = []
    for seq, step in enumerate(vector["log"], 1):
        event: Event = msgspec.convert(step["event"], Event)
        fold.add(seq, event)
        folded = type(event) in dialect.folds and not (isinstance(event, StatusChanged) and event.state not in SETTLED)
        frames = dialect.encode_event(head, event, fold.record() if folded else None)
        sent.append([sse.frames([(None, frame)], *around).decode().removesuffix("\n\n") for frame in frames])
    return sent


def subscribed(dialect: Dialect, vector: dict[str, Any]) -> list[str]:
    """The SSE frames that a caller gets first who takes the vector's task up again."""
    around = dialect.around_frame(json.dumps(vector["id"]).encode())
    record = msgspec.convert(vector["value"], Record)
    encode = dialect.encode_subscription
    frames = (dialect.encode_snapshot(record, None),) if encode is None else encode(record)
    return [sse.frames([(None, frame)], *around).decode().removesuffix("\n\n") for frame in frames]
