"""The Model Context Protocol over streamable HTTP: every skill of every agent is a tool.

`Mcp` answers the requests of sessions, `StatelessMcp` those of 2026-07-28. A `ToolCallStream` is one call in progress;
`SkillTools` are the tools of a caller; `Sessions` has the calls of each session; calls without a session need
`McpSeal` and `PartialAnswers`; `ServerCardPage` describes the server to those who have not connected.
"""

from dragoman.bindings.mcp.card import ServerCardPage
from dragoman.bindings.mcp.endpoint import Mcp
from dragoman.bindings.mcp.partial_answers import PartialAnswers
from dragoman.bindings.mcp.seal import McpSeal
from dragoman.bindings.mcp.sessions import Notifications, Sessions
from dragoman.bindings.mcp.skills import SkillTools
from dragoman.bindings.mcp.stateless import CallTimes, StatelessMcp

__all__ = [
    "CallTimes",
    "Mcp",
    "McpSeal",
    "Notifications",
    "PartialAnswers",
    "ServerCardPage",
    "Sessions",
    "SkillTools",
    "StatelessMcp",
]
