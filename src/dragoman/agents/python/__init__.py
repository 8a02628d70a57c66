"""Agents made of Python functions.

`agent` has Agent, with its skills. `context` is a skill's view of its task, Context, with what `ask` returns.
`delegation` streams the output of other agents. `threads` runs plain functions, which get a SyncContext.
"""
