"""The commands on a server's store share this: its settings, and the opened store.

Invariant: a command finds the store as `dragoman serve` does, from the same sources in the same order, and opens it
beside the server.
"""

import getpass
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dragoman.cli.arguments import complete_files
from dragoman.cli.command import shared_option
from dragoman.cli.endings import Unusable
from dragoman.config import FILE, FLAG_SOURCE, Config, ConfigError, load
from dragoman.store.path import ALLOWED, hide_password, is_shared, store_path

if TYPE_CHECKING:
    from dragoman.store.api import Store

CONFIG_ENV = "DRAGOMAN_CONFIG"

SERVER = "Server"
"""The section of the help for the options that locate a server or its store."""

T = TypeVar("T")


class StoreUrl(click.ParamType[str]):
    """The URL of a store, as a server's setting names it. With `exists` a store in a file must be there already."""

    name = "url"

    def __init__(self, *, exists: bool) -> None:
        self._exists = exists

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read the URL. Raises BadParameter."""
        url = str(value)
        try:
            path = store_path(url)
        except ValueError:
            self.fail(f"{hide_password(url)!r}: {ALLOWED}", param, ctx)
        if self._exists and path is not None and not _is_there(path):
            raise Unusable(f"there is no store file {path}: name the one that the server uses", ctx)
        return url


def _is_there(path: Path) -> bool:
    """Whether a file is there, or may be there in a folder that this user may not look into."""
    try:
        return path.exists()
    except OSError:
        return True


def config_file(flag: str | None) -> Path | None:
    """The file to read. A file that is named must exist, the default one need not."""
    named = flag or os.environ.get(CONFIG_ENV)
    if named:
        return Path(named)
    return Path(FILE) if Path(FILE).is_file() else None


def store_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that locate the store to `command`, which gets them as `settings_file` and `store`."""
    usual = f"default: {FILE} if it exists"
    flags = (
        shared_option(
            SERVER,
            *("--config", "settings_file"),
            metavar="FILE",
            shell_complete=complete_files,
            help=f"Configuration file of the server.  [{CONFIG_ENV}; {usual}]",
        ),
        shared_option(
            SERVER,
            "--store",
            metavar="URL",
            shell_complete=complete_files,
            help="Store of the server.  [DRAGOMAN_STORE; default: as for `serve`]",
        ),
    )
    for flag in reversed(flags):
        command = flag(command)
    return command


def with_store(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that locate the store to `command`, which is called with the resulting `config`."""

    @wraps(command)
    def configured(settings_file: str | None, store: str | None, **rest: Any) -> Any:
        return command(config=read_config(settings_file, store), **rest)

    return store_flags(configured)


def read_config(file: str | None, store: str | None) -> Config:
    """The settings as `serve` reads them, with the values of the flags. Raises UsageError."""
    flags = {} if store is None else {"store": store}
    try:
        return load(config_file(file), os.environ, flags)
    except ConfigError as error:
        raise config_fault(error) from error


def config_fault(error: ConfigError) -> click.UsageError:
    """The usage error for a setting that cannot be used: the help is of use only if a flag gave it."""
    return click.UsageError(str(error)) if error.source == FLAG_SOURCE else Unusable(str(error))


def at_store(config: Config, work: Callable[["Store"], Awaitable[T]], *, make: bool = False) -> T:
    """Run `work` with the store, opened beside a server that may be running, and return its result.

    With `make` a missing store is created. Ends the command if the store is missing or cannot be opened.
    """
    from dragoman.model.ids import SystemClock
    from dragoman.store.open import check_made, open_store

    async def run() -> T:
        if is_shared(config.store) and not make:
            await check_made(config.store)
        store = open_store(config.store, SystemClock())
        await store.open(None)
        try:
            return await work(store)
        finally:
            await store.close()

    return at_place(config, run, make=make)


def at_place(config: Config, work: Callable[[], Coroutine[Any, Any, T]], *, make: bool = False) -> T:
    """Run `work`, which opens the store itself, and return its result.

    Ends the command if the store is missing, unless `make` is set, or if `work` raises StoreError.
    """
    import asyncio

    from dragoman.store.api import StoreError

    _check_place(config.store, make)
    # The log of a server says what becomes of its callers. A command ends with the error instead.
    logging.getLogger("dragoman.store").addHandler(logging.NullHandler())
    try:
        return asyncio.run(work())
    except StoreError as error:
        raise click.ClickException(str(error)) from error


def login() -> str:
    """The login name of the user who runs the command, or else the user's number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the user has no name, as in a container; OSError from Python 3.13 on
        return str(os.getuid())


def operator() -> str:
    """The principal of the user who runs the command, for the audit trail."""
    from dragoman.model.principal import name_operator

    return name_operator(login())


def _check_place(url: str, make: bool) -> None:
    if is_shared(url):
        return
    path = store_path(url)
    if path is None:
        raise Unusable(
            "store 'memory:' is in its server's own memory, out of reach of commands: give the server a file "
            '(store = "sqlite:///data/dragoman.db"), or, for one key that all callers share, the setting api_key'
        )
    try:
        there = path.exists()
    except OSError as error:
        raise Unusable(f"store file {path}: {error.strerror}: run this as the user the server runs as") from error
    if not make and not there:
        context = click.get_current_context(silent=True)
        reaches = context is not None and any(param.name == "server" for param in context.command.params)
        call = ", or the server itself with --server" if reaches else ""
        raise Unusable(
            f"there is no store file {path} in {Path.cwd()}: run this where the server runs, or name its store with "
            f"--store{call}; the server creates it at its first start, and so does `dragoman keys create`"
        )
