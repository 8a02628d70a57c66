"""AgentCard (A2A 1.0 §4.4) and Profile, what an agent says of itself wherever it is mounted.

Invariant: `AgentCard` encodes to pure A2A 1.0 JSON; the hybrid that is served at well-known paths is made in dialects/.
"""

from typing import Any

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
    """Who runs the agent (A2A 1.0 §4.4.2)."""

    url: str
    organization: str


class AgentExtension(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A protocol extension the agent implements (A2A 1.0 §4.4.4)."""

    uri: str
    description: str | None = None
    required: bool = False
    params: dict[str, Any] | None = None


class AgentInterface(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """Where and how the agent is reached (A2A 1.0 §4.4.6). `protocol_binding` is `JSONRPC` or `HTTP+JSON`."""

    url: str
    protocol_binding: str
    protocol_version: str
    tenant: str | None = None


class AgentCapabilities(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True):
    """What the server does for the agent (A2A 1.0 §4.4.3). Flags are always spelled out on the wire."""

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
    """What an agent says of itself, without saying where it lives.

    `extended_skills` are on the extended card only (A2A 1.0 §3.1.11), and run when they are named. Media types in
    `input_modes` may end in `/*`; `*/*` takes everything. `streams` False makes streaming operations
    `UnsupportedOperationError` (A2A 1.0 §3.3.4), `pushes` False everything about webhooks
    `PushNotificationNotSupportedError` (the same). `versions` are the official versions that the agent is served in; a
    call in another is `VersionNotSupportedError`.
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
