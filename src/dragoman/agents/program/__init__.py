"""A program behind a card, started for each task (docs/agents/command.md).

`agent` has ProgramAgent, and the dialogue with one start of its program. `wire` defines what both sides write, which
goes through `pipes`. `launcher` and `spawner` are the two sides of the process that starts programs and ends them with
the server. `executable` finds a program on this machine.
"""
