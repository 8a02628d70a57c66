"""The records of agents that operators add: a definition with its sealed secrets, as the store has each version.

Invariant: no secret is in a record in clear. One that cannot be opened here is a fault with words for any caller, which
name neither a secret nor a host.
"""

import logging
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.admin.agents import AgentAct
from dragoman.auth.sealing import NotForThisUse, OtherKey, SealedSecret, SecretKeys, SecretUse
from dragoman.config.agent_definition import AgentDefinition, read_definition
from dragoman.store.operator_records import OperatorRecord
from dragoman.telemetry.coalescing import about

log = logging.getLogger("dragoman.agents")


class AgentRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A version of an agent: its table without secrets, these by their places, and who made it `by` which act.

    A `removed` agent takes no new task. Once it is `drained`, no task of it is open, and its secrets are deleted.
    """

    agent: dict[str, Any]
    act: AgentAct
    by: str
    secrets: dict[str, SealedSecret] = {}
    removed: bool = False
    drained: bool = False

    def encode(self) -> bytes:
        """The body of the record in the store."""
        return msgspec.json.encode(self)


UNREADABLE = AgentRecord(agent={}, act="changed", by="")
"""Stands for a record that cannot be read."""


class SecretFault(Exception):
    """A secret that cannot be used here, in words for any caller."""


def decode_record(found: OperatorRecord) -> AgentRecord | None:
    """The agent of a record; None if it is gone, or if its bytes are damaged, which the log says."""
    if found.body is None:
        return None
    try:
        return msgspec.json.decode(found.body, type=AgentRecord)
    except msgspec.MsgspecError as error:
        log.warning("the agent %s cannot be read: %s", found.id, error, extra=about(found.id))
        return None


def seal_secrets(
    agent_id: str, definition: AgentDefinition, secrets: Mapping[str, str], keys: SecretKeys
) -> dict[str, SealedSecret]:
    """Seal the secrets of a definition, each for the agent and the origins that it is sent to."""
    return {
        place: keys.seal(secret, SecretUse.of(agent_id, definition.secrets[place])) for place, secret in secrets.items()
    }


def open_secrets(
    agent_id: str, definition: AgentDefinition, sealed: Mapping[str, SealedSecret], keys: SecretKeys | None
) -> dict[str, str]:
    """The secrets of a definition, by their places. Raises SecretFault."""
    found: dict[str, str] = {}
    for place, origins in definition.secrets.items():
        secret = sealed.get(place)
        if secret is None:
            raise SecretFault("its secret is not there: give it anew")
        if keys is None:
            raise SecretFault("its secret is sealed, and this server has no key: set secret_key_file")
        try:
            found[place] = keys.open_secret(secret, SecretUse.of(agent_id, origins))
        except OtherKey as error:
            raise SecretFault(
                "its secret is sealed with another key than this server's: give all servers the same secret_key_file"
            ) from error
        except NotForThisUse as error:
            raise SecretFault("its secret was given for another agent or host: give it anew") from error
    return found


def reseal(agent_id: str, record: AgentRecord, keys: SecretKeys) -> AgentRecord:
    """The record with every secret sealed by the present key. Raises SecretFault or ConfigError."""
    if all(secret.key == keys.current for secret in record.secrets.values()):
        return record
    definition = read_definition(agent_id, record.agent)
    secrets = open_secrets(agent_id, definition, record.secrets, keys)
    return replace(record, secrets=seal_secrets(agent_id, definition, secrets, keys))
