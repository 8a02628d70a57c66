"""ItemStore: LangGraph's long-term memory as entries of one scope of the store.

    i/label/…/label//key    an item of a namespace
    n/label/…/label         a namespace: it stays where it came first, even without items

Invariant: it answers as LangGraph's own `InMemoryStore`, which is asked about the items that were read. An item that is
written again keeps its place and the time at which it was made.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.base import BaseStore, GetOp, Item, ListNamespacesOp, PutOp, SearchOp, validate_op_namespace
from langgraph.store.memory import InMemoryStore
from msgspec import Struct

from dragoman.agents.frameworks.langgraph.checkpoints import TypedValue, wait_in_thread
from dragoman.engine.state_space import StateSpace, read_below
from dragoman.store.state import StatePut, key_segment

MS_PER_MINUTE = 60_000


class SavedItem(Struct, frozen=True, array_like=True):
    """An item as it is stored. `place` is its turn among those of its namespace; `ttl` is in minutes."""

    namespace: tuple[str, ...]
    key: str
    value: TypedValue
    place: int
    created_ms: int
    updated_ms: int
    ttl: float | None = None


class SavedNamespace(Struct, frozen=True, array_like=True):
    """A namespace as it is stored. `place` is its turn."""

    namespace: tuple[str, ...]
    place: int


_decode_item = msgspec.msgpack.Decoder(SavedItem).decode
_decode_namespace = msgspec.msgpack.Decoder(SavedNamespace).decode
_encode = msgspec.msgpack.Encoder().encode


class ItemStore(BaseStore):  # type: ignore[misc]  # LangGraph is not installed where types are checked
    """Keeps items in the space that `find_space` finds when it is first used.

    `classes` are those of which values may be, as for `CheckpointSaver`. The synchronous methods are for threads other
    than that of the event loop in which the store is made.
    """

    supports_ttl = True

    def __init__(
        self, find_space: Callable[[], Awaitable[StateSpace | None]], classes: Collection[tuple[str, ...]] = ()
    ) -> None:
        self._find_space = find_space
        self._space: StateSpace | None = None
        self._serde = JsonPlusSerializer(allowed_msgpack_modules=tuple(classes) or None)
        self._loop = asyncio.get_running_loop()
        self._writes = asyncio.Lock()
        self._place = 0

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        """As `abatch`."""
        result: list[Any] = wait_in_thread(self._loop, self.abatch(ops), "the store")
        return result

    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        """Carry out operations. Those that read see nothing of those that write."""
        asked = list(ops)
        for op in asked:
            validate_op_namespace(op)
            if isinstance(op, SearchOp) and op.query is not None:
                raise ValueError(
                    "the store finds items by namespace and filter, not by a query: leave query out, or compile the "
                    "graph with a store that has an index"
                )
        space = await self._open()
        results = [await self._read(space, op) for op in asked]
        puts = {(op.namespace, op.key): op for op in asked if isinstance(op, PutOp)}
        if puts:
            async with self._writes:
                await self._write(space, list(puts.values()))
        return results

    async def _open(self) -> StateSpace:
        if self._space is None:
            self._space = await self._find_space()
        if self._space is None:
            raise RuntimeError(
                "a run of a worker, and one that answers with a Message, has no store: give the graph one of its own "
                "when you compile it"
            )
        return self._space

    # -- reading -------------------------------------------------------------------------------------------------------

    async def _read(self, space: StateSpace, op: Any) -> Any:
        match op:
            case GetOp():
                found = await space.get_entries([_item_key(op.namespace, op.key)])
                items = [_decode_item(entry.value) for entry in found]
                await self._refresh(space, items if op.refresh_ttl else ())
                return self._item(items[0]) if items else None
            case SearchOp():
                items = await self._items(space, op.namespace_prefix)
                held = await self._holding(space, items)
                (found,) = await held.abatch([op])
                if op.refresh_ttl:
                    shown = {(item.namespace, item.key) for item in found}
                    await self._refresh(space, [each for each in items if (each.namespace, each.key) in shown])
                return found
            case ListNamespacesOp():
                (found,) = await (await self._holding(space, ())).abatch([op])
                return found
            case _:
                return None

    async def _items(self, space: StateSpace, prefix: Sequence[str]) -> list[SavedItem]:
        return [_decode_item(entry.value) async for entry in read_below(space, _prefix("i", prefix))]

    async def _holding(self, space: StateSpace, items: Sequence[SavedItem]) -> InMemoryStore:
        """LangGraph's store with these items and all namespaces, in the order in which they came."""
        known = [_decode_namespace(entry.value) async for entry in read_below(space, "n/")]
        held = InMemoryStore()
        for each in sorted(known, key=lambda each: each.place):
            held._data[each.namespace] = {}
        for item in sorted(items, key=lambda item: item.place):
            held._data[item.namespace][item.key] = self._item(item)
        return held

    async def _refresh(self, space: StateSpace, items: Iterable[SavedItem]) -> None:
        """Let items that expire begin anew, because they were read."""
        if puts := [_put_of(item, space.now_ms()) for item in items if item.ttl is not None]:
            await space.write_entries(puts=puts)

    def _item(self, saved: SavedItem) -> Item:
        return Item(
            value=self._serde.loads_typed(saved.value),
            key=saved.key,
            namespace=saved.namespace,
            created_at=datetime.fromtimestamp(saved.created_ms / 1000, UTC),
            updated_at=datetime.fromtimestamp(saved.updated_ms / 1000, UTC),
        )

    # -- writing -------------------------------------------------------------------------------------------------------

    async def _write(self, space: StateSpace, ops: Sequence[Any]) -> None:
        now_ms = space.now_ms()
        keys = {_item_key(op.namespace, op.key): op for op in ops}
        namespaces = {_namespace_key(op.namespace): op.namespace for op in ops}
        known = {entry.key: entry.value for entry in await space.get_entries([*keys, *namespaces])}
        puts = [
            StatePut(key, _encode(SavedNamespace(namespace, self._next_place(now_ms))))
            for key, namespace in namespaces.items()
            if key not in known
        ]
        for key, op in keys.items():
            if op.value is None:
                continue
            kind, form = self._serde.dumps_typed(dict(op.value))
            before = _decode_item(known[key]) if key in known else None
            made = (self._next_place(now_ms), now_ms) if before is None else (before.place, before.created_ms)
            item = SavedItem(op.namespace, op.key, (kind, bytes(form)), *made, now_ms, op.ttl)
            puts.append(_put_of(item, now_ms))
        deletes = [key for key, op in keys.items() if op.value is None and key in known]
        if puts or deletes:
            await space.write_entries(puts=puts, deletes=deletes)

    def _next_place(self, now_ms: int) -> int:
        """A place behind all others: of this store, and of those that were written at an earlier time."""
        self._place = max(self._place + 1, now_ms * 1000)
        return self._place


def _put_of(item: SavedItem, now_ms: int) -> StatePut:
    expires_ms = None if item.ttl is None else now_ms + round(item.ttl * MS_PER_MINUTE)
    return StatePut(_item_key(item.namespace, item.key), _encode(item), expires_ms)


def _prefix(kind: str, labels: Sequence[str]) -> str:
    return "/".join((kind, *map(key_segment, labels), ""))


def _item_key(namespace: Sequence[str], key: str) -> str:
    return f"{_prefix('i', namespace)}/{key_segment(key)}"


def _namespace_key(namespace: Sequence[str]) -> str:
    return _prefix("n", namespace)
