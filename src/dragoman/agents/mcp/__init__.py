"""Servers of MCP, as tools for a model: sessions over HTTP or with a program, and what the model is told of them."""
