"""Agents made of Python functions.

`agent` has Agent. `context` is a skill's view of its task (Context, SyncContext). `threads` runs plain functions.
"""
