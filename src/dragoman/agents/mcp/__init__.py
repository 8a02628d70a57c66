"""MCP servers as tools of a model.

`tools` has McpTools, which are the tools of several servers. `session` is one server and the session with it. A session
goes over a `link`, which `http` and `program` carry out.
"""
