"""OpenAI chat completions over tasks: a request becomes a SendMessage, and the agent's output becomes the answer.

Invariant: the content of an answer is text of the agent's output, and nothing else: no progress, no status.
"""
