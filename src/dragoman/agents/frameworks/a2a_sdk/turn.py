"""Turn: everything that one call of an executor is told, in our types.

Invariant: values only; nothing here knows a release of the SDK.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from dragoman.model.message import Message
from dragoman.model.task import Record


class ExecutorTurn(Struct, frozen=True, kw_only=True):
    """One call of `execute`, or of `cancel`, which has no message.

    `task` is the task as the last call left it; None in the first one. `caller` is the id of an authenticated caller,
    None on a server without authentication. `headers` are those of the message's request that the agent lists; None if
    they are lost.
    """

    task_id: str
    context_id: str
    message: Message | None
    task: Record | None
    related: tuple[Record, ...] = ()
    metadata: dict[str, Any] | None = None
    accepted_output_modes: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    caller: str | None = None
    headers: Mapping[str, str] | None = MappingProxyType({})
