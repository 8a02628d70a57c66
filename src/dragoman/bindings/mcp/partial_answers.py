"""The forms of a question that are filled in already, while others of it are not: in the store, for all replicas.

Invariant: an entry is deleted with the answer, or expires. It is a convenience: without it the user is asked once more.
"""

from collections.abc import Mapping, Sized
from contextlib import suppress
from typing import Any

import msgspec

from dragoman.store.api import StoreError
from dragoman.store.shared import Shared, decode_entry

KEPT_MS = 86_400_000
"""How long they are kept."""

ATTEMPTS = 10
"""How often an entry is merged anew because another client has changed it meanwhile."""

Filled = dict[str, dict[str, Any] | None]
"""The content of each form, by its name; None for one that the user has dismissed."""


class PartialAnswers:
    """The forms that are filled in, by task and mark of the question. `read` and `add` raise StoreError."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    async def read(self, task_id: str, mark: str) -> Filled:
        """The forms that are filled in so far."""
        entry = await self._shared.get(_key(task_id, mark))
        return (None if entry is None else decode_entry(entry, Filled)) or {}

    async def add_answers(self, task_id: str, mark: str, more: Mapping[str, dict[str, Any] | None]) -> Filled:
        """Add forms to those that are filled in, and return them all. A form that is filled in stays as it is."""
        if not more:
            return await self.read(task_id, mark)
        key, filled = _key(task_id, mark), Filled(more)
        for _ in range(ATTEMPTS):
            entry = await self._shared.get(key)
            filled = {**more, **((None if entry is None else decode_entry(entry, Filled)) or {})}
            version = 0 if entry is None else entry.version
            if await self._shared.put(key, msgspec.msgpack.encode(filled), KEPT_MS, version=version) is not None:
                return filled
        return filled

    async def forget(self, task_id: str, mark: str, forms: Sized) -> None:
        """Delete what was kept of a question with these forms, because it is answered. It expires if that fails."""
        if len(forms) > 1:
            with suppress(StoreError):
                await self._shared.delete(_key(task_id, mark))


def _key(task_id: str, mark: str) -> str:
    return f"mcp/answers/{task_id}/{mark}"
