"""Transports: JSON-RPC and HTTP+JSON with SSE over raw ASGI, cards, health.

Invariant: bytes in, Handler, bytes out; a binding knows no store and no run.
"""
