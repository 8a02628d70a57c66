"""python-a2a, as its clients speak (0.5.10): whole tasks at `tasks/…` below an agent's URL, bare messages at the URL.

Invariant: an answer has only states and parts that the clients know. Frames have no envelope: at `tasks/stream` each is
the task so far, at `stream` the text that was added.
"""

from msgspec.structs import replace

from dragoman.dialects.api import Dialect
from dragoman.dialects.python_a2a import encode
from dragoman.dialects.python_a2a.decode import CONVERSATION, METHODS, bare, decode
from dragoman.dialects.system import AGENT, ROOT, OwnPath, System
from dragoman.dialects.v03.errors import rest_error_status
from dragoman.model.events import ArtifactChunk, StatusChanged
from dragoman.model.operations import Manners

COALESCE_S = 0.25
"""Shortest time between two frames of a growing artifact, each of which holds all of it (as for Evo AI)."""


def _bare(request_id: bytes) -> tuple[bytes, bytes]:
    """Return nothing to put around an answer or a frame."""
    return b"", b""


JSONRPC = Dialect(
    name="python-a2a",
    key="python-a2a",
    content_type="application/json",
    decode=decode,
    decode_rest=None,
    encode_result=encode.encode_task_result,
    encode_snapshot=encode.encode_task,
    encode_message=encode.encode_task_message,
    encode_event=encode.encode_task_event,
    encode_error=encode.encode_error,
    error_status=rest_error_status,
    folds=frozenset({ArtifactChunk, StatusChanged}),
    manners=Manners(
        answers_with_message=False,
        subscribed_until_terminal=False,
        subscribes_to_ended=True,
        cancels_ended=True,
    ),
    around_frame=_bare,
    coalesce_s=COALESCE_S,
)
"""Whole tasks, in JSON-RPC's envelope."""

MESSAGES = replace(
    JSONRPC,
    key="python-a2a-text",
    encode_result=encode.encode_message_result,
    encode_snapshot=encode.encode_text_snapshot,
    encode_message=encode.encode_text_message,
    encode_event=encode.encode_text_event,
    encode_error=encode.encode_bare_error,
    folds=frozenset({StatusChanged}),
    around_answer=_bare,
    around_error=_bare,
    coalesce_s=0.0,
)
"""Bare messages, answered by a bare message or by a stream of text."""

CONVERSATIONS = replace(MESSAGES, encode_result=encode.encode_conversation_result)
"""Bare conversations, answered by the same conversation with one message more."""


def _open_bare(body: bytes) -> tuple[str, Dialect] | None:
    method = bare(body)
    return None if method is None else (method, CONVERSATIONS if method == CONVERSATION else MESSAGES)


def _own(path: str, dialect: Dialect) -> OwnPath:
    methods = {"POST": path}
    return OwnPath(mounts=(ROOT, AGENT), path=path, methods=methods, endpoint="rpc", dialect=dialect, bare=path)


SYSTEM = System(
    name="python-a2a",
    dialect=JSONRPC,
    methods=METHODS,
    bare=_open_bare,
    paths=(
        *(_own(f"tasks/{name}", JSONRPC) for name in ("send", "get", "cancel", "stream")),
        _own("stream", MESSAGES),
        OwnPath(mounts=(ROOT, AGENT), path="agent.json", methods={"GET": "", "HEAD": ""}, endpoint="card"),
    ),
)

__all__ = ["CONVERSATIONS", "JSONRPC", "MESSAGES", "METHODS", "SYSTEM"]
