"""CheckpointSaver: LangGraph's checkpoints as entries of one scope of the store.

    c/thread/namespace/id               a checkpoint, without the values of its channels
    v/thread/namespace/channel/version  the value of a channel, which the checkpoints with that version share
    w/thread/namespace/id/task/index    what a task wrote after a checkpoint, until the next one has it

Invariant: a checkpoint is stored together with the values that are new in it, or not at all. Nothing that is read makes
an object of a class that the saver was not told of, and nothing is unpickled.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from secrets import token_hex
from typing import Any, Protocol, TypeVar

import msgspec
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import INTERRUPT
from msgspec import Struct
from msgspec.structs import replace

from dragoman.engine.state_space import StateSpace, read_below
from dragoman.store.state import StatePut, key_segment

T = TypeVar("T")

TypedValue = tuple[str, bytes]
"""A value as LangGraph's serializer has it: the kind of its form, and the form."""

WRITTEN = {"null", "bytes", "bytearray", "msgpack"}
"""The kinds of forms that are read. The serializer knows more, from earlier versions of LangGraph."""

KEPT = "counters_since_delta_snapshot"
"""The key of a checkpoint's metadata that has the channels whose values are in the writes of earlier checkpoints."""

INTERRUPTED = f"/{WRITES_IDX_MAP[INTERRUPT]}"
"""The end of the key of an interrupt."""

RUN_ID = "run_id"
"""The key of a checkpoint's metadata that has the run which made it, by LangGraph's own convention."""


class SavedCheckpoint(Struct, frozen=True, array_like=True):
    """A checkpoint as it is stored. `parent` is empty for the first one of its namespace."""

    thread: str
    namespace: str
    id: str
    parent: str
    checkpoint: TypedValue
    metadata: TypedValue


class SavedWrite(Struct, frozen=True, array_like=True):
    """One write of a task as it is stored. `path` says where the task is in its step."""

    task: str
    path: str
    index: int
    channel: str
    value: TypedValue


_decode_checkpoint = msgspec.msgpack.Decoder(SavedCheckpoint).decode
_decode_write = msgspec.msgpack.Decoder(SavedWrite).decode
_decode_value = msgspec.msgpack.Decoder(TypedValue).decode
_encode = msgspec.msgpack.Encoder().encode


class Beside(Protocol):
    """A source of entries that are stored in the same writes."""

    async def entries_of(self, task_id: str) -> Sequence[StatePut]:
        """The entries that belong to the result of a task."""
        ...

    def rest(self, step: int) -> Sequence[StatePut]:
        """The entries that belong to the results of all steps up to one."""
        ...


class CheckpointSaver(BaseCheckpointSaver[str]):  # type: ignore[misc]  # LangGraph is not installed where types are checked
    """Keeps checkpoints in a `space`. Its methods raise what those of the space raise.

    `classes` are those of which values may be, beside LangGraph's own and those of Python's library that are safe, each
    by module and name; a value of another class is read as what it was made of. The synchronous methods are for
    threads other than that of the event loop in which the saver is made. `beside` is stored with what the tasks of a
    graph write, but not with what those of its subgraphs do.
    """

    def __init__(
        self, space: StateSpace, classes: Collection[tuple[str, ...]] = (), beside: Beside | None = None
    ) -> None:
        super().__init__(serde=JsonPlusSerializer(allowed_msgpack_modules=tuple(classes) or None))
        self._space = space
        self._beside = beside
        self._putting: set[asyncio.Task[Any]] = set()
        self._storing: set[asyncio.Task[Any]] = set()
        """Those that store the results of tasks."""
        self._loop = asyncio.get_running_loop()

    # -- reading -------------------------------------------------------------------------------------------------------

    async def aget_tuple(self, config: Mapping[str, Any]) -> CheckpointTuple | None:
        """The checkpoint that the config names, or the newest of its thread and namespace."""
        saved = await self._saved(config)
        return None if saved is None else await self._tuple(saved, config if get_checkpoint_id(config) else None)

    async def alist(
        self,
        config: Mapping[str, Any] | None,
        *,
        filter: Mapping[str, Any] | None = None,  # noqa: A002  LangGraph's name
        before: Mapping[str, Any] | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """The checkpoints that match, the newest first."""
        thread, namespace = ("", None) if config is None else _place(config, namespace=None)
        wanted, bound = config and get_checkpoint_id(config), before and get_checkpoint_id(before)
        prefix = "c/" if config is None else _key("c", thread) if namespace is None else _key("c", thread, namespace)
        checkpoints = self._checkpoints(prefix)
        if namespace is None:
            checkpoints = _each(sorted([each async for each in checkpoints], key=lambda each: each.id, reverse=True))
        async for saved in checkpoints:
            if limit is not None and limit <= 0:
                return
            if (wanted and saved.id != wanted) or (bound and saved.id >= bound):
                continue
            metadata = self._loads(saved.metadata)
            if filter and any(metadata.get(name) != value for name, value in filter.items()):
                continue
            if limit is not None:
                limit -= 1
            yield await self._tuple(saved)

    async def aget_delta_channel_history(
        self, *, config: Mapping[str, Any], channels: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        """The writes to channels since their last stored values, which are the seeds, on the way to a checkpoint."""
        found: dict[str, dict[str, Any]] = {channel: {"writes": []} for channel in channels}
        missing = set(channels)
        target = await self._saved(config) if channels else None
        async for saved in self._ancestors(target):
            for written in reversed(await self._writes(saved)):
                if written.channel in missing:
                    found[written.channel]["writes"].append(self._pending(written))
            for channel, value in (await self._values(saved, missing)).items():
                found[channel]["seed"] = value
                missing.discard(channel)
            if not missing:
                break
        for each in found.values():
            each["writes"].reverse()
        return found

    async def open_interrupts(self, config: Mapping[str, Any]) -> str:
        """A text that differs if anything else is asked in a thread, or the same once more."""
        saved = await self._saved(config)
        if saved is None:
            return ""
        below = _key("w", saved.thread, saved.namespace, saved.id)
        entries = read_below(self._space, below)
        versions = [str(entry.version) async for entry in entries if entry.key.endswith(INTERRUPTED)]
        return f"{saved.id}:{','.join(versions)}"

    async def _saved(self, config: Mapping[str, Any]) -> SavedCheckpoint | None:
        thread, namespace = _place(config)
        assert namespace is not None
        if checkpoint_id := get_checkpoint_id(config):
            return await self._checkpoint(thread, namespace, checkpoint_id)
        newest = await self._space.list_entries(_key("c", thread, namespace), 1, descending=True)
        return _decode_checkpoint(newest[0].value) if newest else None

    async def _checkpoint(self, thread: str, namespace: str, id: str) -> SavedCheckpoint | None:  # noqa: A002
        found = await self._space.get_entries([_key("c", thread, namespace, id)[:-1]])
        return _decode_checkpoint(found[0].value) if found else None

    async def _checkpoints(self, prefix: str) -> AsyncIterator[SavedCheckpoint]:
        """Those below a prefix, from the last one."""
        async for entry in read_below(self._space, prefix, descending=True):
            yield _decode_checkpoint(entry.value)

    async def _ancestors(self, saved: SavedCheckpoint | None) -> AsyncIterator[SavedCheckpoint]:
        """Those from which a checkpoint was made, the nearest first."""
        seen: set[str] = set()
        while saved is not None and saved.parent and saved.parent not in seen:
            seen.add(saved.parent)
            saved = await self._checkpoint(saved.thread, saved.namespace, saved.parent)
            if saved is not None:
                yield saved

    async def _writes(self, saved: SavedCheckpoint) -> Sequence[SavedWrite]:
        """The writes of tasks after a checkpoint, in the order in which LangGraph applies them."""
        below = _key("w", saved.thread, saved.namespace, saved.id)
        writes = [_decode_write(entry.value) async for entry in read_below(self._space, below)]
        return sorted(writes, key=lambda each: writes_sort_key(each.path, each.task, each.index))

    async def _values(self, saved: SavedCheckpoint, channels: Collection[str] | None = None) -> dict[str, Any]:
        """The stored values of a checkpoint's channels, or of some of them."""
        versions: dict[str, Any] = self._loads(saved.checkpoint)["channel_versions"]
        keys = {
            _value_key(saved, channel, version): channel
            for channel, version in versions.items()
            if channels is None or channel in channels
        }
        found = await self._space.get_entries(list(keys)) if keys else ()
        return {keys[entry.key]: self._loads(_decode_value(entry.value)) for entry in found}

    async def _tuple(self, saved: SavedCheckpoint, config: Mapping[str, Any] | None = None) -> CheckpointTuple:
        return CheckpointTuple(
            config=config or _config(saved, saved.id),
            checkpoint=self._loads(saved.checkpoint) | {"channel_values": await self._values(saved)},
            metadata=self._loads(saved.metadata),
            parent_config=_config(saved, saved.parent) if saved.parent else None,
            pending_writes=[self._pending(each) for each in await self._writes(saved)],
        )

    def _pending(self, written: SavedWrite) -> tuple[str, str, Any]:
        return written.task, written.channel, self._loads(written.value)

    def _loads(self, value: TypedValue) -> Any:
        if value[0] not in WRITTEN:
            raise ValueError(f"a checkpoint of this store has no values of kind {value[0]!r}")
        return self.serde.loads_typed(value)

    # -- writing -------------------------------------------------------------------------------------------------------

    async def aput(
        self,
        config: Mapping[str, Any],
        checkpoint: Mapping[str, Any],
        metadata: Mapping[str, Any],
        new_versions: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Store a checkpoint, which follows the one that the config names. Returns its own config."""
        thread, namespace = _place(config)
        assert namespace is not None
        values = checkpoint["channel_values"]
        rest = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        saved = SavedCheckpoint(
            thread,
            namespace,
            checkpoint["id"],
            get_checkpoint_id(config) or "",
            self._dumps(rest),
            self._dumps(get_checkpoint_metadata(config, metadata)),
        )
        puts = [StatePut(_checkpoint_key(saved), _encode(saved))]
        for channel, version in new_versions.items():
            if channel in values:
                puts.append(StatePut(_value_key(saved, channel, version), _encode(self._dumps(values[channel]))))
        here = asyncio.current_task()
        assert here is not None
        self._putting.add(here)
        try:
            if self._storing:  # else the checkpoint might be there without what is stored beside its results
                await asyncio.wait(self._storing)
            if self._beside is not None and not namespace:
                puts.extend(self._beside.rest(metadata.get("step", 0)))
            await self._space.write_entries(puts=puts)
        finally:
            self._putting.discard(here)
        return _config(saved, saved.id)

    async def settle(self) -> None:
        """Return once the checkpoints are stored that LangGraph has begun to put."""
        await asyncio.sleep(0)  # it puts them in tasks of their own
        while self._putting:
            await asyncio.wait(self._putting)

    async def aput_writes(
        self, config: Mapping[str, Any], writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store what a task wrote. Its earlier writes stay, except in LangGraph's own channels."""
        thread, namespace = _place(config)
        assert namespace is not None
        below = _key("w", thread, namespace, config["configurable"]["checkpoint_id"], task_id)
        puts: dict[str, StatePut] = {}
        plain: list[str] = []
        for at, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, at)
            key = f"{below}{index}"
            if index >= 0:
                plain.append(key)
            puts[key] = StatePut(key, _encode(SavedWrite(task_id, task_path, index, channel, self._dumps(value))))
        if self._beside is None or namespace or not task_path or len(plain) < len(writes):
            await self._store_new(puts, plain)
            return
        here = asyncio.current_task()
        assert here is not None
        self._storing.add(here)  # before anything is waited for: the checkpoint of the next step may follow at once
        try:
            await self._store_new(puts, plain, self._beside.entries_of(task_id))
        finally:
            self._storing.discard(here)

    async def _store_new(
        self,
        puts: dict[str, StatePut],
        plain: Sequence[str],
        beside: Awaitable[Sequence[StatePut]] | None = None,
    ) -> None:
        """Store entries, but for those of the `plain` keys that are there, and with what belongs `beside` them."""
        more = () if beside is None else await beside
        for known in await self._space.get_entries(plain) if plain else ():
            del puts[known.key]
        if puts or more:
            await self._space.write_entries(puts=[*puts.values(), *more])

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete everything of a thread."""
        await self._space.write_entries(prefixes=self.prefixes_of(thread_id))

    def prefixes_of(self, thread_id: str) -> Sequence[str]:
        """The beginnings of the keys of a thread."""
        return [_key(kind, thread_id) for kind in "cvw"]

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints that these runs made, and what was written after them."""
        if run_ids:
            everything = [each async for each in self._checkpoints("c/")]
            await self._keep(everything, [each for each in everything if self._run_of(each) not in run_ids])

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy everything of a thread to another one."""
        puts = []
        for kind in "cvw":
            source, target = _key(kind, source_thread_id), _key(kind, target_thread_id)
            async for entry in read_below(self._space, source):
                value = entry.value
                if kind == "c":
                    value = _encode(replace(_decode_checkpoint(value), thread=target_thread_id))
                puts.append(StatePut(target + entry.key.removeprefix(source), value))
        if puts:
            await self._space.write_entries(puts=puts)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete the checkpoints of threads: all but the newest of each namespace, or, to `delete`, all.

        Earlier ones are kept as far as the newest needs their writes, because LangGraph has not stored the whole value
        of a channel since.
        """
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"strategy={strategy!r}: must be keep_latest or delete")
        for thread in thread_ids:
            if strategy == "delete":
                await self.adelete_thread(thread)
                continue
            everything = [each async for each in self._checkpoints(_key("c", thread))]
            newest: dict[str, SavedCheckpoint] = {}
            for each in everything:  # from the last one of each namespace
                newest.setdefault(each.namespace, each)
            kept = [needed for each in newest.values() for needed in await self._needed(each)]
            await self._keep(everything, kept)

    async def _needed(self, newest: SavedCheckpoint) -> Sequence[SavedCheckpoint]:
        """A checkpoint, and those before it whose writes its channels are made of."""
        needed, missing = [newest], set(self._loads(newest.metadata).get(KEPT) or ())
        missing -= (await self._values(newest, missing)).keys()
        if missing:
            async for each in self._ancestors(newest):
                needed.append(each)
                missing -= (await self._values(each, missing)).keys()
                if not missing:
                    break
        return needed

    async def _keep(self, everything: Iterable[SavedCheckpoint], kept: Iterable[SavedCheckpoint]) -> None:
        """Delete the other checkpoints, with what was written after them, and the values that none of the kept has."""
        ids = {(each.thread, each.namespace, each.id) for each in kept}
        values: set[str] = set()
        held: set[str] = set()
        keys: list[str] = []
        prefixes: list[str] = []
        for each in everything:
            versions = self._loads(each.checkpoint)["channel_versions"]
            of_each = {_value_key(each, channel, version) for channel, version in versions.items()}
            if (each.thread, each.namespace, each.id) in ids:
                held |= of_each
            else:
                values |= of_each
                keys.append(_checkpoint_key(each))
                prefixes.append(_key("w", each.thread, each.namespace, each.id))
        if keys:
            await self._space.write_entries(deletes=[*keys, *sorted(values - held)], prefixes=prefixes)

    def _run_of(self, saved: SavedCheckpoint) -> Any:
        return self._loads(saved.metadata).get(RUN_ID)

    def _dumps(self, value: Any) -> TypedValue:
        kind, form = self.serde.dumps_typed(value)
        return kind, bytes(form)

    def get_next_version(self, current: str | None, channel: None) -> str:
        """The version after another one. Two branches of a thread never have the same."""
        return f"{(0 if current is None else int(current.partition('.')[0])) + 1:032}.{token_hex(8)}"

    # -- from other threads --------------------------------------------------------------------------------------------

    def get_tuple(self, config: Mapping[str, Any]) -> CheckpointTuple | None:
        """As `aget_tuple`."""
        return self._wait(self.aget_tuple(config))

    def list(self, config: Mapping[str, Any] | None, **options: Any) -> Iterator[CheckpointTuple]:
        """As `alist`."""

        async def gather() -> Sequence[CheckpointTuple]:
            return [each async for each in self.alist(config, **options)]

        yield from self._wait(gather())

    def put(self, *given: Any) -> dict[str, Any]:
        """As `aput`."""
        return self._wait(self.aput(*given))

    def put_writes(
        self, config: Mapping[str, Any], writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """As `aput_writes`."""
        self._wait(self.aput_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """As `adelete_thread`."""
        self._wait(self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As `adelete_for_runs`."""
        self._wait(self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As `acopy_thread`."""
        self._wait(self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As `aprune`."""
        self._wait(self.aprune(thread_ids, strategy=strategy))

    def get_delta_channel_history(
        self, *, config: Mapping[str, Any], channels: Sequence[str]
    ) -> dict[str, dict[str, Any]]:
        """As `aget_delta_channel_history`."""
        return self._wait(self.aget_delta_channel_history(config=config, channels=channels))

    def _wait(self, call: Coroutine[Any, Any, T]) -> T:
        return wait_in_thread(self._loop, call, "checkpoints")


def wait_in_thread(loop: asyncio.AbstractEventLoop, call: Coroutine[Any, Any, T], what: str) -> T:
    """The result of a call that `loop` makes. Raises RuntimeError in the loop's own thread, which it would block."""
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    if here is loop:
        call.close()
        raise RuntimeError(f"{what}: use the asynchronous methods in the event loop, such as graph.ainvoke")
    return asyncio.run_coroutine_threadsafe(call, loop).result()


async def _each(items: Iterable[T]) -> AsyncIterator[T]:
    for item in items:
        yield item


def _place(config: Mapping[str, Any], namespace: str | None = "") -> tuple[str, str | None]:
    """The thread and the namespace that a config names. `namespace` is the one if it names none."""
    configurable = config["configurable"]
    return str(configurable["thread_id"]), configurable.get("checkpoint_ns", namespace)


def _config(saved: SavedCheckpoint, id: str) -> dict[str, Any]:  # noqa: A002
    place = {"thread_id": saved.thread, "checkpoint_ns": saved.namespace, "checkpoint_id": id}
    return {"configurable": place}


def _key(kind: str, *texts: str) -> str:
    """The beginning of the keys below some texts."""
    return "/".join((kind, *map(key_segment, texts), ""))


def _checkpoint_key(saved: SavedCheckpoint) -> str:
    return _key("c", saved.thread, saved.namespace, saved.id)[:-1]


def _value_key(saved: SavedCheckpoint, channel: str, version: Any) -> str:
    return _key("v", saved.thread, saved.namespace, channel, str(version))[:-1]
