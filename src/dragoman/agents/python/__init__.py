"""Agents made of Python functions.

`agent` has Agent, `context` what a skill sees of its task (Context, SyncContext). `threads` runs plain functions.
"""
