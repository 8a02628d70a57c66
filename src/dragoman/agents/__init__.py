"""The kinds of agent that a card can describe, one package for each.

`python` is for functions, `model` for language models, `remote` for agents of other servers, `program` for programs,
`worker` for processes elsewhere, `frameworks` for agents of frameworks. `mcp` gives models the tools of MCP servers.
The modules beside the packages are shared by several kinds.
"""
