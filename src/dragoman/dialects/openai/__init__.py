"""OpenAI chat completions over tasks: a request becomes a SendMessage, what the agent gives out becomes the answer.

Invariant: the content of an answer is text that the agent gave out, and nothing else: no progress, no status.
"""
