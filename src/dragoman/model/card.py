"""AgentCard (A2A 1.0 §4.4), and Profile, the part of it that does not depend on where the agent is mounted.

Invariant: `AgentCard` encodes to pure A2A 1.0 JSON; the hybrid that is served at well-known paths is made in dialects/.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec import Struct


class AgentSkill(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """One thing an agent can do (A2A 1.0 §4.4.5)."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...]
    examples: tuple[str, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()


class AgentProvider(Struct, frozen=True, kw_only=True):
    """The organisation that runs the agent (A2A 1.0 §4.4.2)."""

    url: str
    organization: str


class AgentExtension(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A protocol extension the agent implements (A2A 1.0 §4.4.4)."""

    uri: str
    description: str | None = None
    required: bool = False
    params: dict[str, Any] | None = None


class AgentInterface(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """An address of the agent and its protocol (A2A 1.0 §4.4.6).

    `protocol_binding` is `JSONRPC`, `HTTP+JSON` or `GRPC`; the `url` of the last is a host and a port. `tenant` is the
    tenant of all calls there.
    """

    url: str
    protocol_binding: str
    protocol_version: str
    tenant: str | None = None


class AgentCapabilities(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """The optional features that the server offers for the agent (A2A 1.0 §4.4.3). Flags are never left out."""

    streaming: bool | None = None
    push_notifications: bool | None = None
    extended_agent_card: bool | None = None
    extensions: tuple[AgentExtension, ...] = ()


class AgentCard(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """The manifest of an agent (A2A 1.0 §4.4.1)."""

    name: str
    description: str
    supported_interfaces: tuple[AgentInterface, ...]
    version: str
    capabilities: AgentCapabilities
    default_input_modes: tuple[str, ...]
    default_output_modes: tuple[str, ...]
    skills: tuple[AgentSkill, ...]
    provider: AgentProvider | None = None
    documentation_url: str | None = None
    icon_url: str | None = None
    security_schemes: dict[str, Any] | None = None
    security_requirements: tuple[dict[str, Any], ...] = ()
    signatures: tuple[dict[str, Any], ...] = ()


VERSIONS = ("1.0", "0.3")
"""The official versions, the preferred one first: @a2a-js/sdk 1.x compares with exactly `1.0`."""


class Profile(Struct, frozen=True, kw_only=True):
    """An agent's description of itself, without its address.

    `extended_skills` are on the extended card only (A2A 1.0 §3.1.11), and run when a message names them. Media types in
    `input_modes` may end in `/*`; `*/*` accepts everything. With `streams` False streaming operations raise
    `UnsupportedOperationError`, with `pushes` False operations on webhooks raise `PushNotificationNotSupportedError`
    (A2A 1.0 §3.3.4). `versions` are the official versions in which the agent is served; a call in another one raises
    `VersionNotSupportedError`. `inputs` are the JSON Schemas of what skills take as a data part, by skill; no card of
    A2A has them.
    """

    id: str
    name: str
    description: str
    version: str
    skills: tuple[AgentSkill, ...]
    extended_skills: tuple[AgentSkill, ...] = ()
    input_modes: tuple[str, ...] = ("text/plain", "application/json", "application/octet-stream", "*/*")
    output_modes: tuple[str, ...] = ("text/plain", "application/json", "application/octet-stream")
    provider: AgentProvider | None = None
    documentation_url: str | None = None
    icon_url: str | None = None
    extensions: tuple[AgentExtension, ...] = ()
    streams: bool = True
    pushes: bool = True
    versions: tuple[str, ...] = VERSIONS
    inputs: Mapping[str, Mapping[str, Any]] = {}


class Described(Protocol):
    """An agent with its description at present. That of an agent on another server may be replaced at any time."""

    @property
    def profile(self) -> Profile: ...
