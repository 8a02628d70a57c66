"""A person's conversation with the agent `trip` of `examples/agents.py`, for scripts of several clients."""

WORDS = (("book a trip", "From where?"), ("Lyon", "To where?"), ("Oslo", "Booked: from Lyon to Oslo"))
"""The words of the person, and the beginnings of the agent's answers."""
