"""The client commands: an `a2a-cli` as the A2A project specifies it, on top of `dragoman.client`.

`commands` has a module for each command, or group of commands. Here is what they share: `settings` resolves the
options, which `options` declares; `reference` finds the card, `credentials` chooses what the agent is shown, `session`
connects and reports failures, `login` obtains tokens. `message` sends, and `waiting` waits for tasks. `output`, `text`
and `view` print.
"""
