"""A model behind a card, reached through any endpoint of chat completions.

`agent` has ChatAgent. `endpoint` is the server that it calls, with its breaker. `answer` is one answer, from its
request to its last token. `tool_loop` makes the tool calls in between.
"""
