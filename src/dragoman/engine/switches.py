"""Switches: what operators have taken out of service, and what is refused for it.

                 ┌──────────── enable ────────────┐
                 ▼                                │
    ENABLED ── drain ──► DRAINING ── disable ──► DISABLED      each of the three from any state
    everything           no new task             no new task, answer, message, delegation or lease of a worker

Invariant: a switch is a record that all replicas read, so that it outlives every process, and counts more than the
configuration. Nothing begins for a disabled agent, and nothing begins again: what waits stays as it is.

What ends is not covered: see `engine.switch_watch`.
"""

import logging
from collections.abc import Mapping

import msgspec

from dragoman.admin.switches import KIND, Switch
from dragoman.engine.record_reader import RecordFeed, RecordReader
from dragoman.model.errors import A2AError, AgentOffline, Unavailable
from dragoman.store.operator_records import OperatorRecord
from dragoman.telemetry.coalescing import about

log = logging.getLogger(__name__)

DRAINING = "it takes no new task at present"
DISABLED = "it is out of service at present"
ALL_SWITCHED = "all of its servers are out of service at present"
MEMBER_DISABLED = "the server that has the task is out of service at present"

UNREADABLE = Switch(state="disabled", running="finish", reason="this switch cannot be read: set it anew")
"""Stands for a record whose bytes are damaged. Somebody has set it, so that the agent rather takes nothing."""

_decoder = msgspec.json.Decoder(Switch)


class Switches:
    """The switches as this process knows them. Without `records` there are none."""

    def __init__(self, records: RecordReader | None = None) -> None:
        self._records = records
        self.feed = RecordFeed() if records is None else records.open_feed(KIND)
        self._read: Mapping[str, OperatorRecord] = {}
        """The records that `_known` was made of."""
        self._known: dict[str, Switch] = {}

    def all(self) -> Mapping[str, Switch]:
        """The switches that are not on, by the ids of their records."""
        if self.feed.records is not self._read:
            self._read = self.feed.records
            found = {record_id: read_switch(record) for record_id, record in self._read.items()}
            self._known = {record_id: switch for record_id, switch in found.items() if switch.state != "enabled"}
        return self._known

    def find_switch(self, agent: str, member: str = "") -> Switch | None:
        """The switch of an agent, or of a member of its pool; None if it is on."""
        known = self.all()
        return known.get(record_id(agent, member)) if known else None

    def check_member(self, agent: str, member: str) -> None:
        """Raises AgentOffline for a message to a task that a disabled member of the agent's pool has."""
        if member and not self.takes_on(agent, member):
            raise AgentOffline(agent, MEMBER_DISABLED)

    def takes_on(self, agent: str, member: str = "") -> bool:
        """Whether work on an agent's tasks may begin, or begin again: not while it is disabled."""
        switch = self.find_switch(agent, member)
        return switch is None or switch.state != "disabled"

    def takes_tasks(self, agent: str, member: str = "") -> bool:
        """Whether an agent may be given new tasks: not while it is disabled or draining."""
        known = self.all()
        return not known or record_id(agent, member) not in known

    def refusal(self, agent: str, *, new: bool) -> A2AError | None:
        """The error for a caller's message to an agent, which makes a `new` task or not; None if it is taken."""
        if self._records is not None and self._records.stale:
            return Unavailable("the server has lost touch with its store: send again in a moment", 5)
        switch = self.find_switch(agent)
        if switch is None or (switch.state == "draining" and not new):
            return None
        return AgentOffline(agent, DISABLED if switch.state == "disabled" else DRAINING)

    @property
    def cancels(self) -> Mapping[str, Switch]:
        """The switches of agents, and of members, that are disabled and whose running tasks are to be canceled.

        They are known by the ids of their records.
        """
        return {
            switched: switch
            for switched, switch in self.all().items()
            if switch.state == "disabled" and switch.running == "cancel"
        }


def record_id(agent: str, member: str = "") -> str:
    """The id of a switch's record. No agent has a slash in its id."""
    return f"{agent}/{member}" if member else agent


def describe_switch(switch: Switch) -> str:
    """Why an agent, or a member of its pool, takes nothing, in words for any caller: without who, and their reason."""
    return f"an operator has {'disabled' if switch.state == 'disabled' else 'drained'} it at {switch.at}"


def agents_of(switches: Mapping[str, Switch]) -> tuple[str, ...]:
    """The agents among what is switched, without the members of pools."""
    return tuple(switched for switched in switches if "/" not in switched)


def read_switch(record: OperatorRecord) -> Switch:
    """The switch that a record has."""
    try:
        return _decoder.decode(record.body or b"")
    except msgspec.MsgspecError as error:
        log.warning("the switch of %s cannot be read: %s", record.id, error, extra=about(record.id))
        return UNREADABLE
