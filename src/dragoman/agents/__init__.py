"""What can stand behind a card: a package for each kind of agent.

`python` functions, a `model`, an agent of another server (`remote`), a `program`, a `worker` process elsewhere, agents
of `frameworks`. `mcp` gives models the tools of MCP servers. The modules beside the packages are shared by several
kinds.
"""
