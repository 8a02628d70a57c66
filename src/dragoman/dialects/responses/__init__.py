"""OpenAI's Responses over tasks, as `openai` 3.57.0 has them in `openai.types.responses`.

A response is one turn of a task: from the caller's message to the agent's next question, or to the end. `turn` has the
events and the response of a turn, `objects` the JSON of both, `decode` the requests.

Invariant: all of it is a pure function of the task's log, so that every replica says the same, and says it again.
"""
