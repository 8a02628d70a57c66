"""A model behind a card, by any endpoint of chat completions.

`agent` has ChatAgent, `endpoint` the place it asks and the breaker before it, `answer` one answer from its request to
its last token, `tool_loop` the calls of tools in between.
"""
