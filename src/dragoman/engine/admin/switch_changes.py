"""SwitchChanges: how an operator takes agents out of service, and back.

Invariant: a switch counts on this process when its change is answered, and on others as `engine.record_reader` says.
"""

import msgspec
from msgspec.structs import asdict, replace

from dragoman.admin.switches import KIND, Switch, SwitchLine, SwitchOrder, SwitchReason
from dragoman.config import agent_id_fault
from dragoman.engine.admin.answers import Asked
from dragoman.engine.admin.overview import ServerFacts
from dragoman.engine.record_reader import RecordReader
from dragoman.model.errors import NotFound
from dragoman.model.ids import timestamp
from dragoman.store.api import Store


class SwitchChanges:
    """Writes the switches. The id of what is switched is an agent's, or `AGENT/MEMBER` for a member of its pool.

    Each change raises NotFound for what nobody serves and nobody has switched yet, or StoreError.
    """

    def __init__(self, store: Store, records: RecordReader) -> None:
        self._store = store
        self._records = records
        self._facts: ServerFacts

    def serve(self, facts: ServerFacts) -> None:
        """Set what the server knows, at the start and after a reload."""
        self._facts = facts

    async def drain(self, asked: Asked[SwitchReason]) -> SwitchLine:
        """Let an agent take no new task."""
        return await self._put(asked, Switch(state="draining", reason=asked.given.reason))

    async def disable(self, asked: Asked[SwitchOrder]) -> SwitchLine:
        """Let an agent take nothing."""
        return await self._put(asked, Switch(state="disabled", running=asked.given.running, reason=asked.given.reason))

    async def enable(self, asked: Asked[SwitchReason]) -> SwitchLine:
        """Let an agent take tasks again."""
        return await self._put(asked, Switch(state="enabled", reason=asked.given.reason))

    async def _put(self, asked: Asked[SwitchReason] | Asked[SwitchOrder], switch: Switch) -> SwitchLine:
        """Write a switch, whatever the present one is: the last word of an operator counts."""
        agent, _, member = asked.id.partition("/")
        if member and not (self._has_member(agent, member) or await self._was_switched(asked.id)):
            raise NotFound(
                f"agent {agent[:100]!r} has no member {member[:100]!r} here: GET /admin/v1/agents lists the members"
            )
        if not member and not await self._knows(agent):
            raise NotFound(
                f"no agent {agent[:100]!r} is served on this store: GET /admin/v1/agents lists those that are"
            )
        written = replace(switch, by=asked.operator.principal, at=timestamp(self._store.clock.now_ms()))
        await self._records.put_record(KIND, asked.id, msgspec.json.encode(written))
        return SwitchLine(**asdict(written), agent=agent, member=member)

    def _has_member(self, agent: str, member: str) -> bool:
        return any(
            each.id == agent and any(one.name == member for one in each.members) for each in self._facts.agents()
        )

    async def _knows(self, agent: str) -> bool:
        if any(agent == each.id for each in self._facts.agents()):
            return True
        replicas = await self._store.replicas.all()  # which name versions of an agent's code beside the agents
        if agent_id_fault(agent) is None and any(agent in replica.agents for replica in replicas):
            return True
        return await self._was_switched(agent)

    async def _was_switched(self, record_id: str) -> bool:
        return await self._store.operator_records.find_record(KIND, record_id) is not None
