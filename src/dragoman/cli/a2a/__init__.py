"""The client commands: an `a2a-cli` as the A2A project specifies it, on top of `dragoman.client`.

`settings` resolves the options, which `options` declares; `reference` finds the card, `credentials` chooses what the
agent is shown, `session` connects and reports failures. `waiting` waits for tasks. `output` and `text` print. The other
modules are one command or one group of commands each.
"""

import click


def add_commands(main: click.Group) -> None:
    """Add the client commands to the program."""
    from dragoman.cli.a2a.auth import auth
    from dragoman.cli.a2a.card import card
    from dragoman.cli.a2a.chat import chat
    from dragoman.cli.a2a.config import config
    from dragoman.cli.a2a.demo_server import demo_server
    from dragoman.cli.a2a.help import completion, help_
    from dragoman.cli.a2a.receive import receive
    from dragoman.cli.a2a.send import send
    from dragoman.cli.a2a.skill import skill
    from dragoman.cli.a2a.task import task
    from dragoman.cli.a2a.watch import watch

    commands = (auth, card, chat, send, task, watch, receive, config, demo_server, skill, completion, help_)
    for command in commands:
        main.add_command(command)
