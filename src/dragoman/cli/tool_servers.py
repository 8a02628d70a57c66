"""Make the tools that an agent's model may call, from `tools` of the agent's table.

Invariant: a tool server that cannot be used is an `AgentReferenceError` that names the agent and the fix.
"""

from collections.abc import Callable, Mapping, Sequence

from dragoman.agents.mcp.http import HttpReach
from dragoman.agents.mcp.link import Reach
from dragoman.agents.mcp.program import ProgramReach
from dragoman.agents.mcp.tools import McpGrant, McpTools
from dragoman.agents.program.executable import build_environment, find_executable
from dragoman.cli.references import AgentReferenceError
from dragoman.client.credentials import CredentialsFactory
from dragoman.config.models import McpEntry
from dragoman.config.upstreams import UpstreamCredentials

Credited = Callable[[UpstreamCredentials | None], CredentialsFactory]
"""Makes credentials from their table. Raises AgentReferenceError if the environment lacks the secret."""


def tools_of(
    agent_id: str, entries: Sequence[McpEntry], environ: Mapping[str, str], credited: Credited
) -> McpTools | None:
    """Make the tools of the servers in the table; None if it names none. Raises AgentReferenceError."""
    if not entries:
        return None
    return McpTools([_grant(agent_id, entry, environ, credited) for entry in entries])


def _grant(agent_id: str, entry: McpEntry, environ: Mapping[str, str], credited: Credited) -> McpGrant:
    return McpGrant(
        name=entry.name,
        reach=_reach(agent_id, entry, environ, credited),
        allow=None if entry.allow is None else frozenset(entry.allow),
        approve=entry.approve if isinstance(entry.approve, str) else frozenset(entry.approve),
        start_s=entry.start_s,
        call_s=entry.call_s,
    )


def _reach(agent_id: str, entry: McpEntry, environ: Mapping[str, str], credited: Credited) -> Reach:
    if entry.url:
        return HttpReach(entry.url, credited(entry.credentials))
    for name in entry.env:
        if name not in environ:
            raise AgentReferenceError(
                f"agent {agent_id!r}: tools: the environment has no {name}: set it, or take it out of `env`"
            )
    program = find_executable(entry.command[0], environ)
    if program is None:
        raise AgentReferenceError(
            f"agent {agent_id!r}: tools: the program {entry.command[0]} was not found: install it, or write its path"
        )
    return ProgramReach(entry.name, (program, *entry.command[1:]), build_environment(entry.env, environ))
