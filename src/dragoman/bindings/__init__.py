"""Transports: JSON-RPC and HTTP+JSON with SSE over raw ASGI, cards, health.

Invariant: a binding decodes bytes, calls a Handler and encodes the result. It knows no store and no run.
"""
