"""MCP servers as tools of a model: sessions over HTTP or with a program, and the results that the model reads."""
