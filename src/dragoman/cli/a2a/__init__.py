"""The client commands: an `a2a-cli` as the A2A project specifies it, on top of `dragoman.client`.

`settings` resolves the options, which `options` declares; `reference` finds the card, `credentials` chooses what the
agent is shown, `session` connects and reports failures. `waiting` waits for tasks. `output` and `text` print. The other
modules are one command or one group of commands each.
"""
