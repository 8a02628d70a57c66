"""The names of MCP: versions, methods, headers, error codes.

Invariant: a name of the protocol is written here, and nowhere else.
"""

LATEST = "2025-11-25"
"""The version that our client asks for, and that our server answers to a client with an unknown version."""

VERSIONS = (LATEST, "2025-06-18", "2025-03-26")
"""Supported versions, newest first: those with streamable HTTP."""

UNSAID = "2025-03-26"
"""The version of an HTTP request that names none (2025-11-25, Transports, Protocol Version Header)."""

SESSION_HEADER = "Mcp-Session-Id"
VERSION_HEADER = "MCP-Protocol-Version"

INITIALIZE = "initialize"
PING = "ping"
TOOLS_LIST = "tools/list"
TOOLS_CALL = "tools/call"
SET_LEVEL = "logging/setLevel"
ELICIT = "elicitation/create"

INITIALIZED = "notifications/initialized"
CANCELLED = "notifications/cancelled"
PROGRESS = "notifications/progress"
TOOLS_CHANGED = "notifications/tools/list_changed"
LOGGED = "notifications/message"

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
