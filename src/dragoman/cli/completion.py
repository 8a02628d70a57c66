"""Completion of names in a shell: how names become answers. `a2a` and `admin` know agents, tasks, keys and hosts.

Invariant: a name that nobody tells is left out: no completion fails, and none prints anything but its answers.
"""

from collections.abc import Callable, Iterable

from click.shell_completion import CompletionItem

ASK_S = 2.0
"""How long a server or a store is asked for names, while somebody waits at a prompt."""

NAMES_MAX = 100
"""Most names that are asked for, the newest ones first."""

Name = tuple[str, str]
"""A name, and what a shell shows beside it."""


def offer(names: Iterable[Name], incomplete: str) -> list[CompletionItem[str]]:
    """The answers for the names that begin so, each once."""
    from dragoman.cli.tables import printable

    fit = {name: about for name, about in names if name.startswith(incomplete) and name.isprintable()}
    return [CompletionItem(name, help=" ".join(printable(about).split()) or None) for name, about in fit.items()]


def quietly(names: Callable[[], Iterable[Name]]) -> Iterable[Name]:
    """The names, or none if they cannot be told, whatever the reason. Nothing is printed."""
    import contextlib
    import io
    import logging

    silenced = logging.root.manager.disable
    logging.disable()
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            return list(names())
    except (Exception, SystemExit):  # noqa: BLE001  a prompt shows no error: the command itself will
        return ()
    finally:
        logging.disable(silenced)
