"""Agents as their tables of the configuration describe them.

Invariant: the agent in the user's module stays as it is: a table describes a copy.
"""

import copy
from typing import TypeVar

from dragoman.agents.card_overrides import override_card
from dragoman.config import AgentEntry
from dragoman.engine.api import DIRECT_WAIT_S, Runner
from dragoman.model.card import Profile

R = TypeVar("R", bound=Runner)


def describe_anew(agent: R, profile: Profile) -> R:
    """A copy of an agent that is described by `profile`."""
    copied = copy.copy(agent)
    copied.profile = profile
    return copied


def apply_entry(agent: R, entry: AgentEntry) -> R:
    """Copy `agent` under the id of `entry`. The table's fields override those of the code in its card.

    Raises ValueError if the table names a skill that the agent lacks.
    """
    profile = agent.profile
    known = [skill.id for skill in (*profile.skills, *profile.extended_skills)]
    for skill in entry.skills:
        if skill.id not in known:
            raise ValueError(
                f"agent {entry.id!r}: skill {skill.id!r} is not in the code; there are {', '.join(known) or 'none'}"
            )
    return describe_anew(agent, override_card(profile, entry))


def configure_python(agent: R, entry: AgentEntry) -> R:
    """Copy an agent of Python as its table describes it, and says how it answers.

    Raises ValueError if the table asks for what the agent cannot do.
    """
    served = apply_entry(agent, entry)
    if entry.direct is not None:
        try:
            served.answer_directly(entry.direct, direct_wait_s(entry))
        except TypeError as error:
            raise ValueError(f"agent {entry.id!r}: direct is for agents made with dragoman.Agent: {error}") from error
    for key, value, keep_none in (
        ("checkpointer", entry.checkpointer, served.keep_no_checkpoints),
        ("session", entry.session, served.keep_no_sessions),
    ):
        if value is not None:
            try:
                keep_none()
            except TypeError as error:
                raise ValueError(f"agent {entry.id!r}: {key} {error}") from error
    return served


def bound_agent(agent: Runner, entry: AgentEntry) -> None:
    """Bound the time of an agent, and say who shares its memory, what its code is called and which headers it is given,
    as its table says."""
    if entry.deadline_s is not None:
        agent.limit(entry.deadline_s)
    if entry.lifespan_timeout_s is not None:
        agent.bound_lifespan(entry.lifespan_timeout_s)
    if entry.memory is not None:
        agent.share_memory(entry.memory)
    if entry.steps_version is not None:
        agent.name_steps(entry.steps_version)
    if entry.headers is not None:
        agent.name_headers(entry.headers)
    if entry.credentials is not None:
        agent.forward_credentials(entry.credentials.forward)


def direct_wait_s(entry: AgentEntry) -> float:
    """How long a run with `direct` may take before there is a task."""
    return DIRECT_WAIT_S if entry.direct_wait_s is None else entry.direct_wait_s
