"""The concepts of A2A as frozen values: tasks, messages, cards, operations, events, errors.

Invariant: nothing here imports any other part of Dragoman, and nothing here does I/O.
"""
