"""Memory: what an agent remembers between its tasks, by key: of a conversation, or of a caller.

Invariant: each call is a numbered word of the run. A later run of the task reads what the first one read, and what was
written is not written again.
"""

from collections.abc import Awaitable, Callable
from math import isfinite
from typing import Any, NamedTuple, Protocol

import msgspec

from dragoman.agents.content import json_of
from dragoman.agents.python.step_values import parts_of_result, result_of_parts
from dragoman.engine import bounds
from dragoman.engine.api import Execute
from dragoman.engine.state_space import StateSpace
from dragoman.engine.words import Step, StepDone
from dragoman.model.events import StepFailure, Stepped
from dragoman.store.api import StateChanged, StateFull
from dragoman.store.state import KEY_BYTES_MAX, StateKind, StatePut, check_key

VALUE_BYTES_MAX = 64 << 10
"""The largest value, as JSON."""

CONVERSATION_BYTES_MAX = 1 << 20
CALLER_BYTES_MAX = 10 << 20
"""Most bytes of the keys and values of a conversation, and of a caller (of all callers, if they share them)."""

LIST_MAX = 1000
LIST_BYTES_MAX = 500_000
"""Most entries of a page, and how many bytes they have, so that a page is recorded within the log."""

TTL_S_MAX = 3650 * 86_400.0
"""The longest time to live: ten years."""


class MemoryValue(NamedTuple):
    """A value that is remembered, and the version of it."""

    value: Any
    version: int


class MemoryItem(NamedTuple):
    """A value that is remembered, with its key."""

    key: str
    value: Any
    version: int


class MemoryPage(NamedTuple):
    """Items in the order of their keys. More may follow after the `cursor`; None: there are none."""

    items: tuple[MemoryItem, ...]
    cursor: str | None


class MemoryFull(Exception):
    """There is no room: the value, or all of the memory that it belongs to, would exceed its bound."""


class MemoryChanged(Exception):
    """The entry has another version than `if_version` says: somebody else has written it."""


FAILURES: dict[str, type[Exception]] = {"MemoryFull": MemoryFull, "MemoryChanged": MemoryChanged}
"""The errors that are recorded, so that every later run has them again."""


class MemoryRun(Protocol):
    """The part of `engine.api.Run` that a memory needs: its state, and its numbered words."""

    async def state(self, kind: StateKind, *, wide: bool = False) -> StateSpace | None:
        """The space of the conversation, or of the caller if it is `wide`; None if there is none."""
        ...

    async def step(self, word: Step, execute: Execute) -> Stepped:
        """Return the recorded outcome of a step, or execute it and record its outcome."""
        ...


class Memory:
    """The agent's memory of this conversation. `caller` is that of its caller in all conversations.

    Values are JSON, at most 64 KB each and 1 MB together. A key is text of up to 1,024 bytes. A conversation is
    forgotten with its last task.
    """

    __slots__ = ("_run", "_wide")

    def __init__(self, run: MemoryRun, *, wide: bool = False) -> None:
        self._run = run
        self._wide = wide

    @property
    def caller(self) -> "Memory":
        """The agent's memory of its caller in all conversations, 10 MB together, until the caller is deleted.

        Agents with `memory="shared"` have one for all callers.
        """
        return Memory(self._run, wide=True)

    async def get(self, key: str) -> MemoryValue | None:
        """The value and its version; None if there is none."""
        key = _key("key", key)

        async def read(space: StateSpace, act: str) -> list[Any] | None:
            found = await space.get_entries((key,))
            return [msgspec.json.decode(found[0].value), found[0].version] if found else None

        found = await self._take("get", key, read)
        return None if found is None else MemoryValue(*found)

    async def set(self, key: str, value: Any, *, if_version: int | None = None, ttl_s: float | None = None) -> int:
        """Remember a value under a key, for `ttl_s` seconds or as long as the memory lasts. Returns its version.

        With `if_version` only if the present one has that version, with 0 if there is none; else raises MemoryChanged.
        Raises MemoryFull if there is no room.
        """
        key, versions = _key("key", key), _versions(key, if_version)
        data = msgspec.json.encode(json_of(value, "value"))
        if len(data) > VALUE_BYTES_MAX:
            raise MemoryFull(
                f"memory {key!r}: the value has {len(data)} bytes as JSON, and may have {VALUE_BYTES_MAX}: split it, "
                "or keep it in an artifact and only its id here"
            )
        if ttl_s is not None:
            _check_ttl(ttl_s)

        async def write(space: StateSpace, act: str) -> int:
            until_ms = None if ttl_s is None else space.now_ms() + round(ttl_s * 1000)
            put = StatePut(key, data, until_ms)
            return await space.write_entries(puts=(put,), if_versions=versions, act=act, max_bytes=self._bytes_max)

        return int(await self._take("set", key, write))

    async def delete(self, key: str, *, if_version: int | None = None) -> None:
        """Forget the value of a key, if there is one. `if_version` is as in `set`."""
        key, versions = _key("key", key), _versions(key, if_version)

        async def write(space: StateSpace, act: str) -> None:
            await space.write_entries(deletes=(key,), if_versions=versions, act=act)

        await self._take("delete", key, write)

    async def list(self, prefix: str = "", *, limit: int = 100, cursor: str | None = None) -> MemoryPage:
        """The next items whose keys begin with `prefix`, after the `cursor` of the page before.

        A page has at most `limit` of them, up to 1,000, and fewer if they are large.
        """
        prefix = _key("prefix", prefix) if prefix != "" else ""
        after = None if cursor is None else _key("cursor", cursor)
        if not 1 <= bounds.integer("limit", limit) <= LIST_MAX:
            raise ValueError(f"limit={limit}: must be from 1 to {LIST_MAX}")

        async def read(space: StateSpace, act: str) -> list[list[Any]]:
            found = await space.list_entries(prefix, limit + 1, after)
            taken, size = 0, 0
            for entry in found[:limit]:
                size += len(entry.value)
                if taken and size > LIST_BYTES_MAX:
                    break
                taken += 1
            items = [[entry.key, msgspec.json.decode(entry.value), entry.version] for entry in found[:taken]]
            return [items, [found[taken - 1].key] if taken < len(found) else []]

        items, more = await self._take("list", prefix, read)
        return MemoryPage(tuple([MemoryItem(*item) for item in items]), more[0] if more else None)

    @property
    def _bytes_max(self) -> int:
        return memory_bytes_max(wide=self._wide)

    async def _take(self, verb: str, key: str, work: Callable[[StateSpace, str], Awaitable[Any]]) -> Any:
        """Tell a numbered word: do the `work`, or return what an earlier run got. Raises MemoryFull, MemoryChanged."""
        name = f"$memory.caller.{verb}" if self._wide else f"$memory.{verb}"

        async def execute(act: str) -> StepDone:
            space = await self._run.state("memory", wide=self._wide)
            if space is None:
                raise RuntimeError("there is no memory here; serve the agent with dragoman serve")
            try:
                result, form = parts_of_result(await work(space, act), work)
            except StateFull as full:
                return StepDone(failure=StepFailure("MemoryFull", self._full_text(full)))
            except StateChanged as changed:
                text = f"memory {changed.key!r} has version {changed.version} by now: get it again, then decide anew"
                return StepDone(failure=StepFailure("MemoryChanged", text))
            return StepDone(result, form)

        stepped = await self._run.step(Step(name, key, soon=True), execute)
        if stepped.failure is not None:
            raise FAILURES[stepped.failure.type](stepped.failure.text)
        return result_of_parts(stepped.result, stepped.form, work)

    def _full_text(self, full: StateFull) -> str:
        reach = "the caller" if self._wide else "this conversation"
        return (
            f"the memory of {reach} would have {full.needed} bytes, and may have {full.max_bytes}: delete what is not "
            "needed any more, or give values a ttl_s"
        )


def memory_bytes_max(*, wide: bool) -> int:
    """How many bytes the keys and values of a memory may have together."""
    return CALLER_BYTES_MAX if wide else CONVERSATION_BYTES_MAX


def _key(argument: str, key: object) -> str:
    """A key as it is stored. Raises TypeError or ValueError, which names the argument."""
    said = bounds.name(argument, key)
    try:
        check_key(said)
    except ValueError as error:
        raise ValueError(
            f"{argument}={bounds.shown(said)}: use 1 to {KEY_BYTES_MAX} bytes of text, without NUL and U+10FFFF"
        ) from error
    return said


def _versions(key: str, if_version: int | None) -> dict[str, int]:
    return {} if if_version is None else {key: bounds.integer("if_version", if_version)}


def _check_ttl(ttl_s: object) -> None:
    if isinstance(ttl_s, bool) or not isinstance(ttl_s, int | float):
        raise TypeError(f"ttl_s must be a number of seconds, not {bounds.type_name(ttl_s)}")
    if not isfinite(ttl_s) or not 0 < ttl_s <= TTL_S_MAX:
        raise ValueError(f"ttl_s={ttl_s!r}: must be more than 0, and at most {TTL_S_MAX:g}")
