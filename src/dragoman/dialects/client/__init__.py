"""The client's side of all dialects: lenient readers of what other agents answer, and helpers to write calls.

`scalars` decodes an answer and reads its fields, `objects` reads messages, tasks and updates, `answers` the answers of
unary operations, `refusals` errors, and `card` agent cards. `encode` writes paths, queries and bodies.

Invariant: all spellings in use are understood, and any bytes give a value or InvalidAgentResponse.
"""
