"""What A2A is about, as frozen values: tasks, messages, cards, operations, events, errors.

Invariant: nothing here imports anything else of Dragoman, and nothing here does I/O.
"""
