"""The agents that operators add while servers run: added, changed, removed and brought back, as records of the store.

                 add                change, restore
    none ──────────────► version 1 ────────────────► version 2 …      at most the last ten are kept
                              │ remove           ▲
                              ▼                  │ add, restore
                           removed ──────────────┘
                              │ no open task            │ no task
                              ▼                         ▼
                           drained: without secrets ──► none

Invariant: what is written can be served: its fields are those that the API may set, its hosts may be dialled from here,
and each secret is sealed for its agent and its hosts. Two operators never change the same version.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from dragoman.admin import agents as rows
from dragoman.admin.agents import (
    KIND,
    AddedAgent,
    AddedAgents,
    AgentChange,
    AgentFinding,
    AgentRemoval,
    AgentRequest,
    AgentRestoration,
    AgentVersion,
    AgentVersions,
)
from dragoman.admin.question import Given
from dragoman.auth.sealing import MAKE_KEY, NotForThisUse, OtherKey, SealedSecret, SecretKeys, SecretUse
from dragoman.config import ConfigError
from dragoman.config.agent_definition import AgentDefinition, part_secrets, read_definition
from dragoman.engine.admin.answers import Asked, Functions, bind
from dragoman.engine.record_reader import RecordReader
from dragoman.model.errors import Conflict, InvalidParams, NotFound, VersionConflict
from dragoman.model.ids import timestamp
from dragoman.net.address import parse_address
from dragoman.net.errors import Unresolved
from dragoman.net.target import Target
from dragoman.server.added_runners import AddedRunners
from dragoman.server.agent_records import (
    UNREADABLE,
    AgentRecord,
    SecretFault,
    decode_record,
    open_secrets,
    seal_secrets,
)
from dragoman.store.api import ListQuery, Owners, RecordChanged, Store, StoreError
from dragoman.store.operator_records import OperatorRecord
from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.agents")

AGENTS_MAX = 1000
"""Most agents that may be added: every replica has all of them in memory."""

LIVE_S = 5.0
"""How long an act waits until this server serves what it has written."""

CHECK_S = 10.0
"""How long a look at an agent may take."""

SWEEP_S = 60.0
"""How often removed agents are looked at."""

SETTLED_MS = 60_000
"""How old a removal is before the agent may be drained."""

Sealed = Mapping[str, SealedSecret]


class AgentBook:
    """Answers the questions about added agents. `runners` are those that this server serves.

    Every answer raises A2AError, or StoreError.
    """

    def __init__(self, store: Store, records: RecordReader, runners: AddedRunners) -> None:
        self._store = store
        self._records = records
        self._runners = runners
        self._keys = runners.keys
        self._guard = runners.hosts.guard
        self._resolver = runners.hosts.resolver

    @property
    def answers(self) -> Functions:
        """The functions that answer, by the names of the questions."""
        return dict(
            (
                bind(rows.LIST_ADDED, self._list),
                bind(rows.SHOW_AGENT, self._show),
                bind(rows.LIST_AGENT_VERSIONS, self._list_versions),
                bind(rows.ADD_AGENT, _repeat_overtaken(self._add)),
                bind(rows.CHANGE_AGENT, _repeat_overtaken(self._change)),
                bind(rows.RESTORE_AGENT, _repeat_overtaken(self._restore)),
                bind(rows.REMOVE_AGENT, _repeat_overtaken(self._remove)),
            )
        )

    # -- questions -----------------------------------------------------------------------------------------------------

    async def _list(self, _: Asked[None]) -> AddedAgents:
        added = [self._line(found) for _, found in sorted(self._runners.feed.records.items())]
        return AddedAgents(tuple(added), None if self._keys is None else self._keys.current)

    async def _show(self, asked: Asked[None]) -> AddedAgent:
        return self._line(await self._find_record(asked.id))

    async def _list_versions(self, asked: Asked[None]) -> AgentVersions:
        await self._find_record(asked.id)
        found = await self._store.operator_records.list_versions(KIND, asked.id)
        versions = [(each, record) for each in found if (record := decode_record(each)) is not None]
        return AgentVersions(
            tuple(
                AgentVersion(
                    version=each.version,
                    act=record.act,
                    by=record.by,
                    changed_at=timestamp(each.changed_ms),
                    agent=record.agent,
                    restorable=self._restorable(asked.id, record),
                )
                for each, record in versions
            )
        )

    # -- acts ----------------------------------------------------------------------------------------------------------

    async def _add(self, asked: Asked[AgentRequest]) -> AddedAgent:
        wanted = asked.given
        self._check_id(wanted.id)
        found = await self._store.operator_records.find_record(KIND, wanted.id)
        before = None if found is None else decode_record(found)
        if before is not None and not before.removed:
            raise Conflict("id", f"{wanted.id} is an added agent already: change it, or choose another id")
        if before is None and len(self._runners.feed.records) >= AGENTS_MAX:
            raise Conflict("id", f"{AGENTS_MAX} agents were added already: remove one")
        table, secrets = _part(wanted.agent)
        definition = await self._check_definition(wanted.id, table)
        record = AgentRecord(
            agent=table,
            act="added",
            by=asked.operator.principal,
            secrets=self._seal(wanted.id, definition, secrets, {}),
        )
        version = 0 if found is None else found.version
        if wanted.dry_run:
            return await self._preview(wanted.id, record, definition, version)
        return await self._write(wanted.id, record, version)

    async def _change(self, asked: Asked[AgentChange]) -> AddedAgent:
        wanted, (found, before) = asked.given, await self._find_present(asked.id, asked.given.version)
        changes, secrets = _part(wanted.agent)
        table = _merge(before.agent, changes, renews="credentials" in secrets)
        definition = await self._check_definition(asked.id, table)
        sealed = self._seal(asked.id, definition, secrets, before.secrets)
        record = AgentRecord(agent=table, act="changed", by=asked.operator.principal, secrets=sealed)
        if wanted.dry_run:
            return await self._preview(asked.id, record, definition, found.version)
        return await self._write(asked.id, record, found.version)

    async def _restore(self, asked: Asked[AgentRestoration]) -> AddedAgent:
        found = await self._find_record(asked.id)
        self._check_id(asked.id)
        _check_version(found.version, asked.given.version)
        versions = await self._store.operator_records.list_versions(KIND, asked.id)
        earlier = next((each for each in versions if each.version == asked.given.to), None)
        record = None if earlier is None else decode_record(earlier)
        if record is None:
            known = ", ".join(str(each.version) for each in versions)
            raise InvalidParams("to", f"is no version that is kept: there are {known}")
        definition = await self._check_definition(asked.id, record.agent)
        try:
            open_secrets(asked.id, definition, record.secrets, self._keys)
        except SecretFault as error:
            raise InvalidParams("to", f"cannot be restored, because {error}") from error
        restored = AgentRecord(
            agent=record.agent, act="restored", by=asked.operator.principal, secrets=dict(record.secrets)
        )
        return await self._write(asked.id, restored, found.version)

    async def _remove(self, asked: Asked[AgentRemoval]) -> AddedAgent:
        found, before = await self._find_present(asked.id, asked.given.version)
        record = replace(before, act="removed", by=asked.operator.principal, removed=True)
        return await self._write(asked.id, record, found.version)

    # -- what is written -----------------------------------------------------------------------------------------------

    def _check_id(self, agent_id: str) -> None:
        """Raises Conflict for an id of the file."""
        if agent_id in self._runners.file_ids:
            raise Conflict("id", f"{agent_id} is an agent of the file: change it there, or choose another id")

    async def _check_definition(self, agent_id: str, table: Mapping[str, Any]) -> AgentDefinition:
        """Read a table, and check the hosts that it names. Raises InvalidParams, which names the field."""
        try:
            definition = read_definition(agent_id, table)
        except ConfigError as error:
            raise InvalidParams("id" if error.key == "id" else _field(error.key), error.allowed) from None
        for place, to in definition.targets.items():
            if (reason := await self._refusal(to)) is not None:
                raise InvalidParams(
                    _field(place),
                    f"names the host {to.host}, which {reason}: agents added by the API are on the open internet, or "
                    "at a host that the file names in allow_hosts of [agents_api]",
                )
        if (unnamed := definition.find_unnamed(self._guard.named)) is not None:
            place, key = unnamed
            raise InvalidParams(
                _field(place),
                f"names the host {definition.targets[place].host}, which would get what callers send ({key}): "
                "set allow_hosts of [agents_api] in the file to name it, or choose another host",
            )
        return definition

    async def _refusal(self, to: Target) -> str | None:
        """Why a host may not be dialled; None if it may. It is looked at again at each connection."""
        if self._guard.named(to.host):
            return None
        addresses: Collection[str] = (to.host,)
        if parse_address(to.host) is None:
            try:
                addresses = await self._resolver.addresses(to.host)
            except Unresolved as error:
                return str(error).partition(":")[0]
        reasons = (self._guard(address) for address in addresses)
        return next((f"stands for {reason}" for reason in reasons if reason is not None), None)

    def _seal(
        self, agent_id: str, definition: AgentDefinition, given: Mapping[str, str], before: Sealed
    ) -> dict[str, SealedSecret]:
        """The sealed secrets of a definition: those that were given, else those from `before` for the same hosts.

        Raises InvalidParams for a secret that is missing, for one that has no place, and without a key.
        """
        for place in given:
            if place not in definition.secrets:
                raise InvalidParams(
                    _field(f"{place}.value"), "goes with no credentials that are forwarded: leave it out"
                )
        if not definition.secrets:
            return {}
        if (keys := self._keys) is None:
            raise InvalidParams(
                _field(f"{next(iter(definition.secrets))}.value"),
                "cannot be kept, as this server has no key for secrets: set secret_key_file, or DRAGOMAN_SECRET_KEY, "
                f"to 32 bytes in base64 ({MAKE_KEY})",
            )
        sealed = seal_secrets(agent_id, definition, given, keys)
        for place, origins in definition.secrets.items():
            if place not in sealed:
                found = _find_kept(agent_id, place, origins, before, keys)
                if found is None:
                    raise InvalidParams(
                        _field(f"{place}.value"),
                        f"must be given: there is no secret for {', '.join(origins)}, and one for other hosts is sent "
                        "nowhere",
                    )
                sealed[place] = found
        return sealed

    async def _preview(
        self, agent_id: str, record: AgentRecord, definition: AgentDefinition, version: int
    ) -> AddedAgent:
        """Look at the version after `version` without writing it."""
        findings = await self._look(agent_id, record, definition)
        return AddedAgent(
            id=agent_id,
            version=version,
            act=record.act,
            by=record.by,
            changed_at=timestamp(self._store.clock.now_ms()),
            agent=record.agent,
            live=False,
            findings=findings,
        )

    async def _write(self, agent_id: str, record: AgentRecord, version: int) -> AddedAgent:
        """Write the version after `version`, and wait until it is served here."""
        try:
            written = await self._records.put_record(KIND, agent_id, record.encode(), version=version)
        except RecordChanged as error:
            raise VersionConflict(error.version) from error
        with suppress(TimeoutError):
            async with asyncio.timeout(LIVE_S):
                await self._runners.until_served(agent_id, written.version)
        return self._line(written)

    async def _look(self, agent_id: str, record: AgentRecord, definition: AgentDefinition) -> tuple[AgentFinding, ...]:
        """Look at an agent without serving it, as `dragoman agents check` does. No message is sent."""
        secrets = open_secrets(agent_id, definition, record.secrets, self._keys)
        findings: list[AgentFinding] = []
        try:
            runner = self._runners.make(definition, secrets)
            try:
                async with asyncio.timeout(CHECK_S):
                    async for found in runner.check():
                        findings.append(AgentFinding(found.ok, found.what, found.fix))
            finally:
                await runner.close()
        except TimeoutError:
            findings.append(AgentFinding(False, f"it was not looked at within {CHECK_S:g} s", "try again"))
        except ValueError as error:
            findings.append(AgentFinding(False, str(error)))
        return tuple(findings)

    # -- what is read --------------------------------------------------------------------------------------------------

    async def _find_record(self, agent_id: str) -> OperatorRecord:
        """The present record of an agent. Raises Conflict for one of the file, NotFound for one that was not added."""
        found = await self._store.operator_records.find_record(KIND, agent_id)
        if found is None or found.body is None:
            self._check_id(agent_id)
            raise NotFound(f"no agent {agent_id[:100]!r} was added: GET /admin/v1/agents:added lists those that were")
        return found

    async def _find_present(self, agent_id: str, version: int | None) -> tuple[OperatorRecord, AgentRecord]:
        """The present record of an agent that is not removed. Raises Conflict, NotFound or VersionConflict."""
        found = await self._find_record(agent_id)
        _check_version(found.version, version)
        record = decode_record(found)
        if record is None:
            raise Conflict("id", f"the record of {agent_id} cannot be read: go back to an earlier version")
        if record.removed:
            raise Conflict("id", f"{agent_id} is removed: add it again, or go back to an earlier version")
        return found, record

    def _restorable(self, agent_id: str, record: AgentRecord) -> bool:
        try:
            open_secrets(agent_id, read_definition(agent_id, record.agent), record.secrets, self._keys)
        except (ConfigError, SecretFault):
            return False
        return True

    def _line(self, found: OperatorRecord) -> AddedAgent:
        record = decode_record(found) or UNREADABLE
        live = self._runners.serves(found.id, found.version)
        return AddedAgent(
            id=found.id,
            version=found.version,
            act=record.act,
            by=record.by,
            changed_at=timestamp(found.changed_ms),
            agent=record.agent,
            live=live and not record.removed,
            removed=record.removed,
            fault=self._runners.fault_of(found.id),
        )

    # -- removed agents ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Let removed agents go for ever, step by step, as their tasks end and are deleted."""
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                await self.sweep()
            except StoreError as error:
                log.warning("removed agents stay for now: %s", error, extra=about("removed agents"))

    async def sweep(self, settled_ms: int = SETTLED_MS) -> None:
        """Delete the secrets of removed agents that have no open task, and the records of those that have no task.

        A removal is `settled_ms` old before: until then another replica may have let a task in. Raises StoreError.
        """
        removed = [
            (found, record)
            for found in self._runners.feed.records.values()
            if (record := decode_record(found)) is not None and record.removed
        ]
        if not removed:
            return
        figures = await self._store.figures()
        open_tasks = {
            each.agent for each in figures.open_tasks if each.queued + each.running + each.sleeping + each.waiting
        }
        for found, record in removed:
            if found.id in open_tasks or self._store.clock.now_ms() - found.changed_ms < settled_ms:
                continue
            with suppress(RecordChanged):  # another replica, or an operator, was faster
                if not record.drained:
                    drained = replace(record, drained=True, secrets={})
                    await self._records.put_record(KIND, found.id, drained.encode(), version=found.version)
                await self._forget_secrets(found)  # of a drained one, too: an earlier sweep may have been cut short
                if record.drained and not await self._has_tasks(found.id):
                    await self._records.put_record(KIND, found.id, None, version=found.version)

    async def _forget_secrets(self, removed: OperatorRecord) -> None:
        """Delete the secrets of an agent up to the version that removed it: a later one brings it back. Raises
        StoreError."""
        records = self._store.operator_records
        for each in await records.list_versions(KIND, removed.id):
            record = decode_record(each)
            if record is not None and record.secrets and each.version <= removed.version:
                await records.rewrite_record(each, replace(record, secrets={}).encode())

    async def _has_tasks(self, agent_id: str) -> bool:
        query = ListQuery(owner=Owners.ALL, agent=agent_id, state=None, limit=1, max_bytes=1)
        return (await self._store.list_rows(query)).total > 0


def _repeat_overtaken(
    act: Callable[[Asked[Given]], Awaitable[AddedAgent]],
) -> Callable[[Asked[Given]], Awaitable[AddedAgent]]:
    """The act, made to whatever the version is, unless a version was given: another write may come in between."""

    async def repeat(asked: Asked[Given]) -> AddedAgent:
        while True:
            try:
                return await act(asked)
            except VersionConflict:
                if getattr(asked.given, "version", None) is not None:
                    raise

    return repeat


def _find_kept(
    agent_id: str, place: str, origins: Collection[str], before: Sealed, keys: SecretKeys
) -> SealedSecret | None:
    """The sealed secret from `before` that was given for these origins, first that of the same place; None for none."""
    use = SecretUse.of(agent_id, origins)
    for at in (place, *(other for other in before if other != place)):
        if (sealed := before.get(at)) is not None:
            with suppress(OtherKey, NotForThisUse):
                keys.open_secret(sealed, use)
                return sealed
    return None


def _merge(table: Mapping[str, Any], changes: Mapping[str, Any], *, renews: bool) -> dict[str, Any]:
    """A table after changes of its keys (RFC 7396). Lists and credentials are replaced as a whole.

    With `renews`, a new secret has come with the credentials: if it came alone, the others of their keys stay.
    """
    merged, given = {**table, **changes}, changes.get("credentials")
    if renews and isinstance(given, Mapping):
        before = table.get("credentials")
        if not given and isinstance(before, Mapping) and not before.get("forward"):
            given = before
        merged["credentials"] = {name: value for name, value in given.items() if value is not None}
    return {name: value for name, value in merged.items() if value is not None}


def _part(table: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Part a table from its secrets. Raises InvalidParams."""
    try:
        return part_secrets(table)
    except ConfigError as error:
        raise InvalidParams(_field(error.key), error.allowed) from None


def _check_version(present: int, version: int | None) -> None:
    """Raises VersionConflict if the present version is another one than that which was expected."""
    if version not in (None, present):
        raise VersionConflict(present)


def _field(place: str) -> str:
    """The field of a request that has a place of the definition."""
    return f"agent.{place}" if place else "agent"
