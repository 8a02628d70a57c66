"""The names of MCP: versions, methods, headers, error codes.

Invariant: a name of the protocol is written here, and nowhere else.
"""

LATEST = "2025-11-25"
"""The version that our client asks for, and that our server answers to a client with an unknown version."""

VERSIONS = (LATEST, "2025-06-18", "2025-03-26")
"""Supported versions, newest first: those with streamable HTTP."""

STATELESS = "2026-07-28"
"""The version without sessions: each request says its version and what its client can do."""

SPOKEN = (STATELESS, *VERSIONS)
"""Every version that is spoken, newest first."""

UNSAID = "2025-03-26"
"""The version of an HTTP request that names none (2025-11-25, Transports, Protocol Version Header)."""

SESSION_HEADER = "Mcp-Session-Id"
VERSION_HEADER = "MCP-Protocol-Version"
METHOD_HEADER = "Mcp-Method"
NAME_HEADER = "Mcp-Name"
PARAM_HEADER = "Mcp-Param-"
"""The beginning of the headers that repeat arguments of a tool (2026-07-28, Streamable HTTP, Request Metadata)."""

INITIALIZE = "initialize"
PING = "ping"
TOOLS_LIST = "tools/list"
TOOLS_CALL = "tools/call"
SET_LEVEL = "logging/setLevel"
ELICIT = "elicitation/create"
SAMPLE = "sampling/createMessage"
LIST_ROOTS = "roots/list"
DISCOVER = "server/discover"
LISTEN = "subscriptions/listen"
TASKS_GET = "tasks/get"
TASKS_UPDATE = "tasks/update"
TASKS_CANCEL = "tasks/cancel"

INITIALIZED = "notifications/initialized"
CANCELLED = "notifications/cancelled"
PROGRESS = "notifications/progress"
TOOLS_CHANGED = "notifications/tools/list_changed"
LOGGED = "notifications/message"
LISTENING = "notifications/subscriptions/acknowledged"
TASK_CHANGED = "notifications/tasks"

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022

STATELESS_ERRORS = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION})
"""Errors that only servers of 2026-07-28 and later answer with (2026-07-28, Error Codes)."""

TASKS = "io.modelcontextprotocol/tasks"
"""The extension by which a call may become a task (SEP-2663)."""

META_VERSION = "io.modelcontextprotocol/protocolVersion"
META_CLIENT = "io.modelcontextprotocol/clientInfo"
META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META_LOG_LEVEL = "io.modelcontextprotocol/logLevel"
META_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
META_SERVER = "io.modelcontextprotocol/serverInfo"
"""Members of `_meta` in requests, notifications and results (2026-07-28, General fields)."""

COMPLETE, INPUT_REQUIRED, TASK = "complete", "input_required", "task"
"""The types of results (`resultType`); the last one is of the extension for tasks."""
