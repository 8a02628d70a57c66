"""Presents skills as tools: their names, descriptions, inputs and outputs.

Invariant: the name of a tool depends only on its agent, its skill, and whether that is the agent's only one.
"""

import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Raw, Struct

from dragoman.dialects.mcp.param_headers import ParamHeader, UnusableSchema, find_param_headers
from dragoman.model.card import AgentSkill, Profile
from dragoman.model.errors import InvalidParams

NAME_CHARS = 64
"""Longest name of a tool: hosts pass tools to models whose APIs accept no longer one."""

PAGE = 100
"""Tools per page of a list."""

DESCRIPTION_CHARS = 2000

READS_ONLY = "read-only"
"""Tag of a skill that changes nothing, so a host need not ask its user before calling it."""

ONLY_AS_TASK = "task-only"
"""Tag of a skill that takes long: its call is a task at once, and refused to clients of 2026-07-28 without tasks."""

_OTHER = re.compile(r"[^a-zA-Z0-9_-]+", re.ASCII)
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)

INPUT = Raw(
    msgspec.json.encode(
        {
            "type": "object",
            "properties": {
                "message": {
                    "type": "string",
                    "description": "What the agent should do, or the answer to its question, in words. Empty, with "
                    "task_id: wait for that task, and send nothing.",
                },
                "data": {"type": "object", "description": "Structured input, if the agent takes any."},
                "files": {
                    "type": "array",
                    "description": "Files for the agent.",
                    "items": {
                        "type": "object",
                        "properties": {
                            "url": {"type": "string", "description": "Where the file is; or a data: URI with base64."},
                            "name": {"type": "string"},
                            "media_type": {"type": "string"},
                        },
                        "required": ["url"],
                    },
                },
                "context_id": {
                    "type": "string",
                    "description": "Continues an earlier conversation: the context_id of its result.",
                },
                "task_id": {
                    "type": "string",
                    "description": "A task that is input-required or working: the message is the answer to it.",
                },
            },
            "required": ["message"],
            "additionalProperties": False,
        }
    )
)
"""The input schema of every tool."""

_FILE = {
    "type": "object",
    "properties": {
        "uri": {"type": "string", "description": "Its address, or the URI of the resource in the content."},
        "name": {"type": "string"},
        "media_type": {"type": "string"},
        "bytes": {"type": "integer"},
    },
}

OUTPUT = Raw(
    msgspec.json.encode(
        {
            "type": "object",
            "properties": {
                "task_id": {"type": "string"},
                "context_id": {"type": "string"},
                "state": {
                    "type": "string",
                    "description": "completed, failed, rejected, canceled; input-required or auth-required: call again "
                    "with task_id and the answer; submitted or working: it goes on, call again with task_id.",
                },
                "text": {"type": "string", "description": "The text that the agent gave out."},
                "question": {"type": "string", "description": "What it asks, or why it failed."},
                "data": {"type": "array", "description": "The structured values that it gave out."},
                "artifacts": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "artifact_id": {"type": "string"},
                            "name": {"type": "string"},
                            "description": {"type": "string"},
                            "text": {"type": "string", "description": "Only if there are several artifacts."},
                            "files": {"type": "array", "items": _FILE},
                        },
                        "required": ["artifact_id"],
                    },
                },
                "progress": {
                    "type": "object",
                    "properties": {"current": {"type": "integer"}, "total": {"type": "integer"}},
                },
                "usage": {
                    "type": "object",
                    "properties": {
                        "input_tokens": {"type": "integer"},
                        "output_tokens": {"type": "integer"},
                        "total_tokens": {"type": "integer"},
                    },
                },
            },
            "required": ["task_id", "context_id", "state", "text"],
        }
    )
)
"""The output schema of every tool."""


class Tool(Struct, frozen=True):
    """A skill of an agent, under the name of its tool. `skill` None: the agent names no skills.

    `schema` is that of its own arguments, `headers` are those that repeat some of them (2026-07-28); None: it takes
    `ARGUMENTS`.
    """

    name: str
    agent: str
    skill: AgentSkill | None
    schema: Mapping[str, Any] | None = None
    headers: tuple[ParamHeader, ...] = ()

    @property
    def only_as_task(self) -> bool:
        """Whether a client that may be told of tasks is always told of one."""
        return self.skill is not None and ONLY_AS_TASK in self.skill.tags


def tools(profiles: Mapping[str, Profile], *, extended: bool) -> list[Tool]:
    """List all tools, sorted by name. With `extended` those of the extended cards are included."""
    found: dict[str, Tool] = {}
    for agent, profile in profiles.items():
        several = len(profile.skills) + len(profile.extended_skills) > 1
        skills: Iterable[AgentSkill | None] = (*profile.skills, *(profile.extended_skills if extended else ()))
        for skill in skills if profile.skills or profile.extended_skills else (None,):
            name = name_of(agent, skill.id if skill is not None and several else None)
            schema = None if skill is None else profile.inputs.get(skill.id)
            found.setdefault(name, Tool(name, agent, skill, schema, _headers(schema)))
    return [found[name] for name in sorted(found)]


def _headers(schema: Mapping[str, Any] | None) -> tuple[ParamHeader, ...]:
    try:
        return () if schema is None else find_param_headers(schema)
    except UnusableSchema:  # clients leave the tool out, so nobody sends them
        return ()


def name_of(agent: str, skill: str | None) -> str:
    """Return the name of a tool: `agent`, or `agent__skill` if the agent has several.

    A name with other characters, a long one, or an ambiguous one ends with a hash of both.
    """
    plain = agent if skill is None else f"{agent}__{skill}"
    if _NAME.fullmatch(plain) and "__" not in agent and not agent.endswith("_"):
        return plain
    mark = blake2b(f"{agent}\0{skill or ''}".encode("utf-8", "replace"), digest_size=4).hexdigest()
    return f"{_OTHER.sub('-', plain)[: NAME_CHARS - len(mark) - 1]}-{mark}"


def encode_page(listed: list[Tool], profiles: Mapping[str, Profile], cursor: str | None) -> bytes:
    """Encode the result of `tools/list`: a page of `listed`, which is sorted by name. Raises InvalidParams."""
    return msgspec.json.encode(build_page(listed, profiles, cursor))


def build_page(listed: list[Tool], profiles: Mapping[str, Profile], cursor: str | None) -> dict[str, Any]:
    """Build the result of `tools/list`: a page of `listed`, which is sorted by name. Raises InvalidParams."""
    if cursor is not None and not _NAME.fullmatch(cursor):
        raise InvalidParams("cursor", "must be the nextCursor of an earlier page, or left out")
    rest = listed if cursor is None else [tool for tool in listed if tool.name > cursor]
    page: dict[str, Any] = {"tools": [_encode_tool(tool, profiles[tool.agent]) for tool in rest[:PAGE]]}
    if len(rest) > PAGE:
        page["nextCursor"] = rest[PAGE - 1].name
    return page


def _encode_tool(tool: Tool, profile: Profile) -> dict[str, Any]:
    skill = tool.skill
    title = profile.name
    said = [profile.description]
    if skill is not None:
        if skill.name and skill.name != profile.name and skill.name != skill.id:
            title = f"{profile.name}: {skill.name}"
        if skill.description and skill.description != profile.description:
            said.insert(0, skill.description)
        if skill.examples:
            said.append("Examples: " + " / ".join(skill.examples))
    annotations: dict[str, Any] = {"title": title, "openWorldHint": True}
    if skill is not None and READS_ONLY in skill.tags:
        annotations["readOnlyHint"] = True
    return {
        "name": tool.name,
        "title": title,
        "description": "\n\n".join(text for text in said if text)[:DESCRIPTION_CHARS],
        "inputSchema": INPUT if tool.schema is None else tool.schema,
        "outputSchema": OUTPUT,
        "annotations": annotations,
    }
