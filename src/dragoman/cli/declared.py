"""From a table `[[agents]]` of the file to its agent, for each kind of `run`.

Invariant: whatever cannot be served is an `AgentReferenceError` that names the agent and the fix.
"""

import copy
import os
from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from dragoman.agents.leases import LEASE_S
from dragoman.agents.upstream import UpstreamAgent
from dragoman.agents.upstream_way import Address, Made
from dragoman.agents.worker import WorkerAgent
from dragoman.cli.references import AgentReferenceError, referenced_as
from dragoman.client import ApiKey, BearerToken, ClientCredentials, Timeouts
from dragoman.config import WORKER, AgentEntry, Upstream, UpstreamCredentials
from dragoman.engine.api import Runner
from dragoman.model.card import AgentProvider, AgentSkill, Profile

R = TypeVar("R", bound=Runner)


def declared(entry: AgentEntry) -> Runner:
    """The agent of a table of the file. Raises AgentReferenceError."""
    if entry.run == WORKER:
        return worker_agent(entry)
    if entry.upstream is not None:
        return upstream_agent(entry, entry.upstream, os.environ)
    return configured(referenced_as(entry.run.removeprefix("python:"), entry.id), entry)


def configured(agent: R, entry: AgentEntry) -> R:
    """A copy of `agent` under the id of `entry`, whose card says what the table says in place of what the code says."""
    served = copy.copy(agent)
    served.profile = said(agent.profile, entry)
    return served


def said(profile: Profile, entry: AgentEntry, *, anew: bool = False) -> Profile:
    """The profile with what the table says in place of what it says itself; `anew`: the table may add skills."""
    said: dict[str, Any] = {
        name: value
        for name in ("name", "description", "version", "icon_url", "documentation_url", "input_modes", "output_modes")
        if (value := getattr(entry, name)) is not None
    }
    if entry.provider is not None:
        said["provider"] = AgentProvider(url=entry.provider.url, organization=entry.provider.organization)
    skills = {skill.id: skill for skill in (*profile.skills, *profile.extended_skills)}
    extended = {skill.id for skill in profile.extended_skills}
    for skill in entry.skills:
        if anew and skill.id not in skills:
            skills[skill.id] = AgentSkill(id=skill.id, name=skill.id, description=skill.id, tags=())
        if skill.id not in skills:
            raise AgentReferenceError(
                f"agent {entry.id!r}: skill {skill.id!r} is not in the code; there are {', '.join(skills) or 'none'}"
            )
        skills[skill.id] = _skill(skills[skill.id], skill)
        if skill.extended is not None:
            (extended.add if skill.extended else extended.discard)(skill.id)
    said["skills"] = tuple(skill for skill in skills.values() if skill.id not in extended)
    said["extended_skills"] = tuple(skill for skill in skills.values() if skill.id in extended)
    return replace(profile, id=entry.id, **said)


def worker_agent(entry: AgentEntry) -> WorkerAgent:
    """An agent that worker processes serve: its card says what the table says, since its code is not here."""
    profile = Profile(
        id=entry.id,
        name=entry.name or entry.id,
        description=entry.description or entry.name or entry.id,
        version=entry.version or "1.0.0",
        skills=tuple(
            _skill(AgentSkill(id=skill.id, name=skill.id, description=skill.id, tags=()), skill)
            for skill in entry.skills
        ),
    )
    bare = WorkerAgent(
        profile, queues=entry.offline == "queue", lease_s=LEASE_S if entry.lease_s is None else entry.lease_s
    )
    return configured(bare, entry)


def upstream_agent(entry: AgentEntry, upstream: Upstream, environ: Mapping[str, str]) -> UpstreamAgent:
    """An agent of another server: its card is that of the other, but for what the table says.

    Raises AgentReferenceError if the environment has no credentials.
    """
    shown = upstream.credentials
    return UpstreamAgent(
        Profile(
            id=entry.id,
            name=entry.name or entry.id,
            description=entry.description or entry.name or entry.id,
            version=entry.version or "1.0.0",
            skills=(),
        ),
        Address(
            url=upstream.url,
            card=upstream.card,
            dialect=upstream.dialect,
            binding=upstream.binding,
            origins=upstream.origins,
            dedupes=upstream.dedupes,
            card_s=upstream.card_s,
            timeouts=Timeouts(answer_s=upstream.answer_s, idle_s=upstream.idle_s, mend_s=upstream.wait_s),
        ),
        said=lambda profile: said(profile, entry, anew=True),
        made=_credentials(entry, shown, environ),
        forwards=shown is not None and shown.forward,
        queues=entry.offline == "queue",
        failures=upstream.failures,
        pause_s=upstream.pause_s,
    )


def _credentials(entry: AgentEntry, shown: UpstreamCredentials | None, environ: Mapping[str, str]) -> Made:
    """What makes the credentials of an upstream, once there is a way out."""
    if shown is None or shown.forward:
        return lambda egress: None
    secret = environ.get(shown.env, "").strip()
    if not secret:
        raise AgentReferenceError(f"agent {entry.id!r}: credentials: the environment has no {shown.env}: set it")
    if shown.token_url is not None and shown.client_id is not None:
        token_url, client_id = shown.token_url, shown.client_id
        return lambda egress: ClientCredentials(
            token_url,
            client_id,
            secret,
            egress=egress,
            scope=shown.scope,
            audience=shown.audience,
            method=shown.method,
        )
    return lambda egress: BearerToken(secret) if shown.header is None else ApiKey(secret, shown.header)


def _skill(skill: AgentSkill, entry: Any) -> AgentSkill:
    said = {
        name: value
        for name in AgentSkill.__struct_fields__
        if name in entry.__struct_fields__ and (value := getattr(entry, name)) is not None
    }
    return replace(skill, **said)
