"""Transports: from the bytes of a request to a call of the engine, and back.

`Request` (request.py) is a request without its transport, and `make_call` (calls.py) turns it into a call, once
`Callers` (callers.py) knows who sends it. HTTP is one transport: `Listener` accepts connections, http1 parses the
requests on them, `App` finds the endpoint in `Routes`, and http.py reads bodies and sends answers. The endpoints are
A2A's own (a2a.py), chat completions (openai.py), MCP (mcp), workers, the admin API (admin), the
console, descriptions of the paths (openapi), cards, files, monitoring and the home page. streams.py encodes a task's
events as SSE. The other transport is grpc. `RemoteAgents` (remote) carries exchanges with agents of other servers.

Invariant: a binding decodes bytes, calls a Handler and encodes the result. It knows no store and no run.
"""
