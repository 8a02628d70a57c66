"""The Model Context Protocol over streamable HTTP: every skill of every agent is a tool.

`Mcp` answers the requests; a `ToolCallStream` is one call in progress; `Sessions` has the calls of each session.

Invariant: a call of a tool is a task like any other, and outlives the request.
"""

from dragoman.bindings.mcp.endpoint import Mcp
from dragoman.bindings.mcp.sessions import Notifications, Sessions

__all__ = ["Mcp", "Notifications", "Sessions"]
