"""A model behind a card, reached through any endpoint of chat completions.

`agent` has ChatAgent. `endpoint` is the server that it calls, with its breaker. `request` is what it is asked, `answer`
one answer, from its request to its last token, which `completion` parses. `tool_loop` makes the tool calls in between.
`failures` says how a failed call ends the task.
"""
