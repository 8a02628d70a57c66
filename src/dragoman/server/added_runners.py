"""AddedRunners: the agents that operators have added, as this server serves them. Each record becomes a runner.

    record ─► definition, secrets opened ─► runner              it is served
          └─► cannot be read, another key, … ─► a fault          it is not served here, and `/ready` says why
          └─► removed ─► the runner, for what is open ─► a RetiredAgent, so that tasks can be read

Invariant: a fault of one agent keeps no other from being served. An agent of the file goes before one of the same id.
Operators are told of the agents as they are served, and not as they were read: after `take` comes the switch-over, and
then `note_served`.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from dragoman.agents.retired import RetiredAgent
from dragoman.auth.sealing import SecretKeys
from dragoman.config import AgentEntry, ConfigError
from dragoman.config.agent_definition import AgentDefinition, read_definition, secret_variable
from dragoman.engine.api import Runner
from dragoman.engine.record_reader import RecordFeed
from dragoman.model.card import Profile
from dragoman.net.address import Guard, Resolver
from dragoman.net.egress import EgressRules
from dragoman.server.agent_records import UNREADABLE, AgentRecord, SecretFault, decode_record, open_secrets
from dragoman.store.operator_records import OperatorRecord
from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.agents")

MakeAdded = Callable[[AgentEntry, Mapping[str, str], EgressRules], Runner]
"""Makes the agent of a definition with its secrets, by the names that the entry has for them. Raises ValueError."""


def make_nothing(entry: AgentEntry, secrets: Mapping[str, str], rules: EgressRules) -> Runner:
    """Make no agent: the default for `MakeAdded` where nobody gives another one."""
    raise ValueError("this server makes no agents that are added: start it by `dragoman serve` or `create_app`")


IN_THE_FILE = "the file has an agent of this id, which is served in its place"

EXPOSED = "strangers could use it: see what the server says about `host` when it starts"

UNNAMED = (
    "names a host that would get what callers send, and that the file does not name: name it in allow_hosts of "
    "[agents_api]"
)


class AddedHosts(Struct, frozen=True):
    """The hosts that added agents may be at: those that the `guard` names, or whose addresses it allows."""

    guard: Guard
    resolver: Resolver

    @property
    def rules(self) -> EgressRules:
        """The rules under which added agents make their connections."""
        return EgressRules(self.guard, self.guard.named, self.resolver)


class LoadedRecord(Struct, frozen=True):
    """A record as this server has it: `runner` is None if it cannot be served, and `fault` says why.

    `origin` is what the runner was made of: the definition and the secrets.
    """

    version: int
    record: AgentRecord
    runner: Runner | None
    fault: str = ""
    origin: tuple[Any, ...] = ()


class AddedRunners:
    """The runners of added agents. `keys` open and seal their secrets; None: this server has none.

    `make` makes a runner, which dials the `hosts` alone.
    """

    def __init__(self, feed: RecordFeed, keys: SecretKeys | None, make: MakeAdded, hosts: AddedHosts) -> None:
        self.feed = feed
        self.keys = keys
        self.hosts = hosts
        self._make = make
        self._taken: Mapping[str, LoadedRecord] = {}
        """The records by id, as of the last `take`."""
        self._served: Mapping[str, LoadedRecord] = {}
        """Those that were taken in when agents were replaced last: what this server serves, or has to leave out."""
        self._withheld: Mapping[str, str] = {}
        """Why agents of those with a runner are not served all the same, by id."""
        self._file_ids: frozenset[str] = frozenset()
        self._replaced = asyncio.Event()
        """Set, and another one put in its place, whenever agents were replaced."""

    def take(self) -> None:
        """Take in the records as they are now. The runner of an agent that is the same stays the same object."""
        self._taken = {
            agent_id: self._read(self._taken.get(agent_id), found) for agent_id, found in self.feed.records.items()
        }

    def choose_runners(
        self, file_ids: Collection[str], exposed: Callable[[Collection[str]], bool]
    ) -> Mapping[str, Runner]:
        """The runners to serve beside the agents of the file: none if strangers could use them, as `exposed` says."""
        found = {
            agent_id: each.runner
            for agent_id, each in self._taken.items()
            if each.runner is not None and agent_id not in file_ids
        }
        return {} if found and exposed(tuple(found)) else found

    def find_removed(self, runners: Mapping[str, Runner]) -> frozenset[str]:
        """The agents of these that were removed: they take no new task. One of the file is not, whatever its id."""
        return frozenset(
            agent_id
            for agent_id, runner in runners.items()
            if self.has_made(runner) and self._taken[agent_id].record.removed
        )

    @property
    def file_ids(self) -> frozenset[str]:
        """The agents of the file that are served."""
        return self._file_ids

    def faults(self) -> dict[str, str]:
        """Why agents are not served here, by id."""
        return {agent_id: each.fault for agent_id, each in self._served.items() if each.fault} | dict(self._withheld)

    def make(self, definition: AgentDefinition, secrets: Mapping[str, str]) -> Runner:
        """Make the agent of a definition with its secrets, by their places. It is not open. Raises ValueError."""
        named = {secret_variable(place): secret for place, secret in secrets.items()}
        return self._make(definition.entry, named, self.hosts.rules)

    def has_made(self, runner: Runner) -> bool:
        """Whether a runner is that of an added agent."""
        taken = self._taken.get(runner.profile.id)
        return taken is not None and taken.runner is runner

    def note_served(self, served: Mapping[str, Runner]) -> None:
        """Note that these are the agents that are served, of the file and of the last `take`."""
        withheld = {
            agent_id: IN_THE_FILE if agent_id in served else EXPOSED
            for agent_id, each in self._taken.items()
            if each.runner is not None and served.get(agent_id) is not each.runner
        }
        for agent_id, why in withheld.items():
            if self._withheld.get(agent_id) != why:
                log.warning("added agent %s is not served: %s", agent_id, why, extra=about(agent_id, agent=agent_id))
        self._served, self._withheld = self._taken, withheld
        self._file_ids = frozenset(agent_id for agent_id, runner in served.items() if not self.has_made(runner))
        replaced, self._replaced = self._replaced, asyncio.Event()
        replaced.set()

    async def until_served(self, agent_id: str, version: int) -> None:
        """Wait until that version of an agent, or a later one, is served here if it can be."""
        while (served := self._served.get(agent_id)) is None or served.version < version:
            await self._replaced.wait()

    def serves(self, agent_id: str, version: int) -> bool:
        """Whether that version of an agent is served here."""
        served = self._served.get(agent_id)
        return (
            served is not None
            and served.version == version
            and served.runner is not None
            and agent_id not in self._withheld
        )

    def fault_of(self, agent_id: str) -> str | None:
        """Why an agent is not served, or cannot do all of its work; None if no fault is known."""
        if (why := self._withheld.get(agent_id)) is not None:
            return why
        served = self._served.get(agent_id)
        if served is None:
            return None
        return served.fault or (None if served.runner is None else served.runner.degraded)

    def _read(self, before: LoadedRecord | None, found: OperatorRecord) -> LoadedRecord:
        if before is not None and before.version == found.version:
            return before
        record = decode_record(found)
        if record is None:
            return LoadedRecord(found.version, UNREADABLE, None, "its record cannot be read: the log says why")
        if record.drained:
            return LoadedRecord(found.version, record, _retire(found.id, record))
        try:
            definition = read_definition(found.id, record.agent)
            if (unnamed := definition.find_unnamed(self.hosts.guard.named)) is not None:
                raise ConfigError("agent", unnamed[0], None, UNNAMED, shows_value=False)
            secrets = open_secrets(found.id, definition, record.secrets, self.keys)
            origin = (msgspec.json.encode(record.agent), tuple(sorted(secrets.items())))
            if before is not None and before.runner is not None and before.origin == origin:
                return LoadedRecord(found.version, record, before.runner, "", origin)
            return LoadedRecord(found.version, record, self.make(definition, secrets), "", origin)
        except ConfigError as error:
            fault = f"its definition cannot be used: {error.key}: {error.allowed}"
        except SecretFault as error:
            fault = str(error)
        except ValueError as error:
            log.warning("added agent %s cannot be served: %s", found.id, error, extra=about(found.id, agent=found.id))
            fault = "it cannot be made: the log says why"
        log.warning("added agent %s is not served: %s", found.id, fault, extra=about(found.id, agent=found.id))
        runner = _retire(found.id, record) if record.removed else None
        return LoadedRecord(found.version, record, runner, fault)


def _retire(agent_id: str, record: AgentRecord) -> RetiredAgent:
    """Make the agent that stands for one that was removed."""
    given = {
        name: value for name in ("name", "description", "version") if isinstance(value := record.agent.get(name), str)
    }
    name = given.get("name", agent_id)
    return RetiredAgent(
        Profile(
            id=agent_id,
            name=name,
            description=given.get("description", name),
            version=given.get("version", "1.0.0"),
            skills=(),
        )
    )
