"""A program behind a card, started for each task (docs/agents/command.md).

`agent` has ProgramAgent. `dialogue` is one start of the program on a task. `launcher` and `spawner` are the two sides
of the process that starts programs and ends them with the server.
"""
