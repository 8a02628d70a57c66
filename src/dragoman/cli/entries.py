"""Makes the agent of an `[[agents]]` entry of the file, for each kind of `run`.

Invariant: an agent, or a tool server of its model, that cannot be served is an `AgentReferenceError` that names the
agent and the fix. The code for models, programs and MCP is imported only if an entry needs it.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dragoman.agents.card_overrides import entry_versions, override_card, override_skill
from dragoman.agents.configured_credentials import ConfiguredCredentials, make_no_credentials
from dragoman.agents.program.executable import build_environment, check_program, find_executable
from dragoman.agents.remote.agent import UpstreamAgent
from dragoman.agents.table import apply_entry, bound_agent, direct_wait_s
from dragoman.agents.tools import Tools
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.agents.worker.leases import LEASE_S
from dragoman.cli.references import AgentReferenceError, load_entry
from dragoman.client.credentials import CredentialsFactory
from dragoman.config import WORKER, AgentEntry, Model, Program, Upstream, UpstreamCredentials
from dragoman.config.models import McpEntry
from dragoman.engine.api import Runner
from dragoman.model.card import AgentSkill, Profile
from dragoman.net.egress import OPERATORS_RULES, EgressRules

if TYPE_CHECKING:
    from dragoman.agents.mcp.link import Reach

_MakeCredentials = Callable[[UpstreamCredentials | None], CredentialsFactory]
"""Makes credentials from their table. Raises AgentReferenceError if the environment lacks the secret."""


def make_agent(entry: AgentEntry) -> Runner:
    """Make the agent of a table of the file. Raises AgentReferenceError."""
    agent = _make_agent(entry)
    bound_agent(agent, entry)
    return agent


def make_added_agent(entry: AgentEntry, secrets: Mapping[str, str], rules: EgressRules) -> Runner:
    """Make an agent that an operator has added by the API, which is another server's or a model.

    `secrets` are in the place of the environment, and connections are made under the `rules`. Raises ValueError.
    """
    try:
        if entry.upstream is not None:
            agent: Runner = _upstream_agent(entry, entry.upstream, secrets, rules)
        else:
            assert entry.model is not None
            agent = _model_agent(entry, entry.model, secrets, rules)
        bound_agent(agent, entry)
    except AgentReferenceError as error:
        raise ValueError(str(error)) from error
    return agent


def _make_agent(entry: AgentEntry) -> Runner:
    if entry.run == WORKER:
        return _worker_agent(entry)
    if entry.upstream is not None:
        return _upstream_agent(entry, entry.upstream, os.environ)
    if entry.model is not None:
        return _model_agent(entry, entry.model, os.environ)
    if entry.program is not None:
        return _program_agent(entry, entry.program, os.environ)
    return load_entry(entry)


def _worker_agent(entry: AgentEntry) -> WorkerAgent:
    """Make an agent that worker processes serve. Its card comes from the table, because its code is elsewhere."""
    skills = tuple(
        override_skill(AgentSkill(id=skill.id, name=skill.id, description=skill.id, tags=()), skill)
        for skill in entry.skills
    )
    profile = replace(_bare_profile(entry), skills=skills)
    bare = WorkerAgent(
        profile, queues=entry.offline == "queue", lease_s=LEASE_S if entry.lease_s is None else entry.lease_s
    )
    return apply_entry(bare, entry)


def _upstream_agent(
    entry: AgentEntry, upstream: Upstream, environ: Mapping[str, str], rules: EgressRules = OPERATORS_RULES
) -> UpstreamAgent:
    """Make an agent of another server. Its card is the other server's, with the table's fields on top.

    Raises AgentReferenceError if the environment lacks the credentials.
    """
    return UpstreamAgent(
        _bare_profile(entry),
        upstream,
        adjust=partial(override_card, entry=entry),
        make_credentials=_credentials_factory(entry, upstream.credentials, environ),
        queues=entry.offline == "queue",
        direct=entry.direct or False,
        direct_wait_s=direct_wait_s(entry),
        rules=rules,
        pool=entry.pool,
        make_member_credentials=[
            _credentials_factory(entry, member.upstream.credentials, environ)
            for member in (() if entry.pool is None else entry.pool.members)
            if member.upstream is not None
        ],
    )


def _model_agent(
    entry: AgentEntry, model: Model, environ: Mapping[str, str], rules: EgressRules = OPERATORS_RULES
) -> Runner:
    """Make an agent from a model. Its card comes from the table; without skills it has one with the agent's id.

    Raises AgentReferenceError if the environment lacks a key.
    """
    from dragoman.agents.model.agent import ChatAgent
    from dragoman.agents.model.pool import ModelPool, PoolEndpoint
    from dragoman.agents.model.request import input_modes

    pool = entry.pool
    assert pool is not None  # there is one for each model
    endpoints: list[PoolEndpoint] = []
    for member in pool.members:
        assert member.model is not None
        key, shown = "", member.model.credentials
        if shown is not None and not (key := environ.get(shown.env, "").strip()):
            raise AgentReferenceError(f"agent {entry.id!r}: credentials: the environment has no {shown.env}: set it")
        name = member.name if len(pool.members) > 1 else ""
        endpoints.append(PoolEndpoint(member.model, key, rules, name=name, order=member.order, weight=member.weight))
    profile = replace(
        _profile_with_skill(entry),
        input_modes=input_modes(model.takes),
        output_modes=("text/plain",) if model.schema is None else ("application/json",),
    )
    return ChatAgent(
        override_card(profile, entry),
        model,
        ModelPool(endpoints, pool.strategy, moves=pool.move_models, probe_s=pool.probe_s),
        tools=_tools_of(
            entry.id, model.tools, environ, lambda shown: _credentials_factory(entry, shown, environ), rules
        ),
    )


def _program_agent(entry: AgentEntry, program: Program, environ: Mapping[str, str]) -> Runner:
    """Make an agent from a program. Its card comes from the table; without skills it has one with the agent's id.

    Raises AgentReferenceError if the program, its interpreter, its folder or one of its variables is missing.
    """
    from dragoman.agents.program.agent import ProgramAgent

    for finding in check_program(program, environ):
        if not finding.ok:
            raise AgentReferenceError(f"agent {entry.id!r}: {finding.what}: {finding.fix}")
    return ProgramAgent(
        override_card(_profile_with_skill(entry), entry),
        program,
        environ,
        direct=entry.direct or False,
        direct_wait_s=direct_wait_s(entry),
    )


def _bare_profile(entry: AgentEntry) -> Profile:
    """The card of an agent whose code is not here, without skills."""
    name = entry.name or entry.id
    version = entry.version or "1.0.0"
    return Profile(
        id=entry.id,
        name=name,
        description=entry.description or name,
        version=version,
        skills=(),
        versions=entry_versions(entry),
    )


def _profile_with_skill(entry: AgentEntry) -> Profile:
    """The card with one skill that has the agent's id, unless the table names skills."""
    profile = _bare_profile(entry)
    skill = AgentSkill(id=profile.id, name=profile.name, description=profile.description, tags=())
    return profile if entry.skills else replace(profile, skills=(skill,))


def _credentials_factory(
    entry: AgentEntry, shown: UpstreamCredentials | None, environ: Mapping[str, str]
) -> CredentialsFactory:
    """Return a function that makes the credentials of an upstream from the egress, which does not exist yet."""
    if shown is None or shown.forward:
        return make_no_credentials
    secret = environ.get(shown.env, "").strip()
    if not secret:
        raise AgentReferenceError(f"agent {entry.id!r}: credentials: the environment has no {shown.env}: set it")
    return ConfiguredCredentials(shown, secret).make


def _tools_of(
    agent_id: str,
    entries: Sequence[McpEntry],
    environ: Mapping[str, str],
    make_credentials: _MakeCredentials,
    rules: EgressRules,
) -> Tools | None:
    """Make the tools of the servers in the table; None if it names none. Raises AgentReferenceError."""
    if not entries:
        return None
    from dragoman.agents.mcp.tools import McpGrant, McpTools

    return McpTools(
        [
            McpGrant(
                name=entry.name,
                reach=_reach(agent_id, entry, environ, make_credentials, rules),
                allow=None if entry.allow is None else frozenset(entry.allow),
                approve=entry.approve if isinstance(entry.approve, str) else frozenset(entry.approve),
                at_most_once=(
                    entry.at_most_once if isinstance(entry.at_most_once, str) else frozenset(entry.at_most_once)
                ),
                start_s=entry.start_s,
                call_s=entry.call_s,
                task_s=entry.task_s,
                elicitation=entry.elicitation,
            )
            for entry in entries
        ]
    )


def _reach(
    agent_id: str,
    entry: McpEntry,
    environ: Mapping[str, str],
    make_credentials: _MakeCredentials,
    rules: EgressRules,
) -> "Reach":
    if entry.url:
        from dragoman.agents.mcp.http import HttpReach

        return HttpReach(entry.url, make_credentials(entry.credentials), rules)
    from dragoman.agents.mcp.program import ProgramReach

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
