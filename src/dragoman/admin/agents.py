"""The agents that operators add while servers run: their definitions, versions, and what servers say of them.

Invariant: pure values. No answer holds a secret: a definition comes back without the `value` of its credentials.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from dragoman.admin.question import Column, Question

KIND = "agent"
"""The kind of their records in the store (`store.operator_records`)."""

VersionNumber = Annotated[int, Meta(ge=1, le=1 << 53)]

AgentAct = Literal["added", "changed", "restored", "removed"]
"""How a version of a definition came to be."""


class AgentRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An agent to add as `id`. `agent` has the keys of its table in the file; a secret is the `value` of credentials.

    With `dry_run` nothing is stored: the definition is checked, and the agent looked at.
    """

    id: str
    agent: dict[str, Any]
    dry_run: bool = False


class AgentChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys of a definition to change: null takes one away, one that is left out stays (RFC 7396).

    Credentials without a `value` keep the secret that was given for the same hosts. With `version` the change is made
    only to that version.
    """

    agent: dict[str, Any]
    version: VersionNumber | None = None
    dry_run: bool = False


class AgentRestoration(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The earlier version to go back `to`, as the next one. With `version` only if that is the present one."""

    to: VersionNumber
    version: VersionNumber | None = None


class AgentRemoval(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With `version` the agent is removed only if that is the present one."""

    version: VersionNumber | None = None


class AgentFinding(Struct, frozen=True):
    """A finding of a look at an agent. `fix` says what to do unless it is `ok`."""

    ok: bool
    what: str
    fix: str = ""


class AddedAgent(Struct, frozen=True, kw_only=True):
    """An agent that was added, in its present version: by whom and when it came to be, and its definition.

    `live`: the server that answers serves it. `fault` is why it does not, or what it cannot do. A `removed` agent takes
    no new task, and is there as long as somebody may read its tasks. `findings` are those of a look at it.
    """

    id: str
    version: int
    act: AgentAct
    by: str
    changed_at: str
    agent: dict[str, Any]
    live: bool
    removed: bool = False
    fault: str | None = None
    findings: tuple[AgentFinding, ...] = ()


class AddedAgents(Struct, frozen=True):
    """All agents that were added, by id. `secrets` is the id of the key that seals secrets; null: there is none."""

    added: tuple[AddedAgent, ...]
    secrets: str | None = None


class AgentVersion(Struct, frozen=True, kw_only=True):
    """A version of a definition. `restorable`: all secrets that it needs are there."""

    version: int
    act: AgentAct
    by: str
    changed_at: str
    agent: dict[str, Any]
    restorable: bool


class AgentVersions(Struct, frozen=True):
    """The last ten versions of a definition, the newest first."""

    versions: tuple[AgentVersion, ...]


LIST_ADDED: Question[None, AddedAgents] = Question(
    name="listAddedAgents",
    path="/agents:added",
    summary="List the agents that operators have added, with their definitions.",
    answer=AddedAgents,
    action="agents.list",
    lines="added",
    columns=(
        *(Column("AGENT", "id"), Column("VERSION", "version"), Column("ACT", "act"), Column("BY", "by")),
        *(Column("CHANGED", "changed_at", "moment"), Column("LIVE", "live"), Column("FAULT", "fault")),
    ),
)
ADD_AGENT = Question(
    name="addAgent",
    method="POST",
    path="/agents",
    summary="Add an agent of another server, or a model. It is live on every server within 2 s.",
    given=AgentRequest,
    answer=AddedAgent,
    action="agents.add",
    subject=lambda wanted: wanted.id[:100],
    versioned=True,
)
RESTORE_AGENT = Question(
    name="restoreAgent",
    method="POST",
    path="/agents/{id}:restore",
    summary="Go back to an earlier version of an added agent.",
    given=AgentRestoration,
    answer=AddedAgent,
    action="agents.restore",
    versioned=True,
)
LIST_AGENT_VERSIONS: Question[None, AgentVersions] = Question(
    name="listAgentVersions",
    path="/agents/{id}/versions",
    summary="List the last ten versions of an added agent.",
    answer=AgentVersions,
    action="agents.show",
    lines="versions",
    columns=(
        *(Column("VERSION", "version"), Column("ACT", "act"), Column("BY", "by")),
        *(Column("CHANGED", "changed_at", "moment"), Column("RESTORABLE", "restorable")),
    ),
)
SHOW_AGENT: Question[None, AddedAgent] = Question(
    name="showAgent",
    path="/agents/{id}",
    summary="Show an added agent, without its secrets.",
    answer=AddedAgent,
    action="agents.show",
    versioned=True,
)
CHANGE_AGENT = Question(
    name="changeAgent",
    method="PATCH",
    path="/agents/{id}",
    summary="Change keys of an added agent's definition.",
    given=AgentChange,
    answer=AddedAgent,
    action="agents.change",
    versioned=True,
)
REMOVE_AGENT = Question(
    name="removeAgent",
    method="DELETE",
    path="/agents/{id}",
    summary="Remove an added agent: it takes no new task, and those that are open go on.",
    given=AgentRemoval,
    answer=AddedAgent,
    action="agents.remove",
    versioned=True,
)

AGENT_QUESTIONS = (
    *(LIST_ADDED, RESTORE_AGENT, LIST_AGENT_VERSIONS, ADD_AGENT, SHOW_AGENT, CHANGE_AGENT, REMOVE_AGENT),
)
