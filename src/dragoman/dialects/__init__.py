"""Dialects: they decode wire bytes to operations and encode results to wire bytes. Pure, no I/O.

`api` is the shape of a dialect, on the server's side and on the client's. `system` is that of a system: everything
about one kind of server or client as one value. `systems` is the table of all systems, each a package here: `v1` and
`v03` are the official versions, the others are vendors. `resolve` picks the dialect of a request, by rules of
predicates from `requests`. `openai` and `mcp` are protocols beside A2A.

Shared by several dialects: `cards`, `push`, `extensions`, `vendors`, and `client`, the lenient readers of
what other agents answer. `jsonrpc`, `sse`, `json_bounds` and `json_fields` know no dialect.
"""
