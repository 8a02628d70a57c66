"""LeasedMemory: what an agent remembers, for a worker that says what it wants to get or set.

Invariant: each call is a numbered word of the lease, recorded as `ctx.memory` records it (`agents.python.memory`). A
later worker of the task reads what the first one read, and writes nothing again.
"""

from typing import assert_never

from msgspec import UNSET
from msgspec.structs import replace

from dragoman.agents.python.memory import FAILURES, Memory
from dragoman.agents.worker import wire
from dragoman.agents.worker.leased_state import LeasedSpace
from dragoman.agents.worker.leases import Leases
from dragoman.agents.worker.words import ToldStep
from dragoman.engine.api import Execute
from dragoman.engine.words import Step
from dragoman.model.errors import InvalidParams
from dragoman.model.events import Stepped
from dragoman.model.operations import NOTHING_CONFIRMED, Confirmed
from dragoman.store.state import StateKind


class LeasedMemory:
    """The memory in `space`, for a single call of the worker with the lease `token`: the step at `place`.

    `number` is as in `wire.MemoryRequest`, `confirmed` as in `Leases.say`.
    """

    def __init__(
        self,
        leases: Leases,
        token: str,
        space: LeasedSpace,
        place: str,
        number: int,
        confirmed: Confirmed = NOTHING_CONFIRMED,
    ) -> None:
        self._leases = leases
        self._token = token
        self._space = space
        self._place = place
        self._number = number
        self._confirmed = confirmed

    async def answer(self, asked: wire.MemoryRequest) -> wire.MemoryReply:
        """Do what the worker asks for. Raises InvalidParams or LeaseLost."""
        memory = Memory(self, wide=asked.of != "conversation")
        try:
            return await _carry_out(memory, asked)
        except tuple(FAILURES.values()) as failure:
            return wire.MemoryReply(failure=wire.StepFault(type(failure).__name__, str(failure)))
        except (TypeError, ValueError) as error:
            raise InvalidParams("memory", str(error)) from error

    # -- agents.python.memory.MemoryRun --------------------------------------------------------------------------------

    async def state(self, kind: StateKind, *, wide: bool = False) -> LeasedSpace:
        """See `MemoryRun`."""
        return self._space

    async def step(self, word: Step, execute: Execute) -> Stepped:
        """See `MemoryRun`."""
        told = ToldStep(word, self._place, self._number)
        standing = await self._leases.step(self._token, told, confirmed=self._confirmed)
        if standing.recorded is None:
            done = await execute(standing.key)
            standing = await self._leases.step(self._token, replace(told, done=done), confirmed=self._confirmed)
        assert standing.recorded is not None, "it was told just now"
        return standing.recorded


async def _carry_out(memory: Memory, asked: wire.MemoryRequest) -> wire.MemoryReply:
    match asked.verb:
        case "get":
            found = await memory.get(asked.key)
            return wire.MemoryReply(None, 0) if found is None else wire.MemoryReply(found.value, found.version)
        case "set":
            if asked.value is UNSET:
                raise InvalidParams("value", "is missing: give the JSON to remember")
            value, ttl_s = asked.value, asked.ttl_s
            return wire.MemoryReply(
                version=await memory.set(asked.key, value, if_version=asked.if_version, ttl_s=ttl_s)
            )
        case "delete":
            await memory.delete(asked.key, if_version=asked.if_version)
            return wire.MemoryReply()
        case "list":
            page = await memory.list(asked.prefix, limit=asked.limit, cursor=asked.cursor)
            items = tuple([wire.RememberedItem(*item) for item in page.items])
            return wire.MemoryReply(items=items, cursor=page.cursor)
        case _:
            assert_never(asked.verb)
