"""The adapters of frameworks: each module makes an agent of one framework's objects.

`runs` makes the agent, and has what a run of each framework has in common: its pauses for the caller and its replay
after a restart. `calls` reports its tool calls and asks for approval, `model_tokens` divides its tokens among its
models, `conversation` turns a task's messages into plain pieces. An executor of the official A2A SDK is an agent of
another server: `a2a_sdk` is that server for it.

Invariant: an adapter imports only what the object's program has already imported of the framework. `agents.adapters`
finds the one that fits.
"""
