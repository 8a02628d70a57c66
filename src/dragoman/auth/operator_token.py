"""The token of a server without authentication: its bearer is an operator, and only the server's own user can read it.

Invariant: its files are made anew with mode 0600, never written through a link, and deleted when the server stops. One
is beside the store, unless that is in memory; the other is in the user's runtime folder, under the server's port.
"""

import logging
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from dragoman.store.path import is_shared, store_path

log = logging.getLogger(__name__)

BYTES = 32

PREFIX = "dgo_"
"""The beginning of every token, by which one of an earlier start is known as such."""

SUFFIX = ".operator"
LOOPBACK = "127.0.0.1"

LOGIN_HEADER = "x-dragoman-login"
"""The login name of whoever sends the token, percent-encoded: the token itself names nobody."""


def new_token() -> str:
    """A fresh token."""
    return f"{PREFIX}{secrets.token_urlsafe(BYTES)}"


def token_path(store: str, port: int) -> Path | None:
    """The file with the token of the server that has `store` open; None for a store that several servers share."""
    if is_shared(store):
        return None
    path = store_path(store)
    return _port_path(port) if path is None else path.with_name(path.name + SUFFIX)


def read_token(store: str, port: int) -> str | None:
    """The token of the server that has `store` open; None if this user may not read it, or if there is none."""
    return _read(token_path(store, port))


def local_server(url: str) -> tuple[str, str] | None:
    """The address and the token of this user's server at `url`; None if that is not 127.0.0.1, or it has no token.

    `localhost` becomes 127.0.0.1 in an address without TLS: on another address of that name a stranger may listen.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None
    if parts.hostname not in (LOOPBACK, "localhost") or parts.username is not None:
        return None
    token = _read(_port_path(port))
    if token is None:
        return None
    place = parts if parts.scheme == "https" else parts._replace(netloc=f"{LOOPBACK}:{port}")
    return place.geturl(), token


@contextmanager
def kept_token(token: str, store: str, host: str, port: int) -> Iterator[None]:
    """Keep the token in its files within the block. Without them, only operators with keys reach the admin API.

    The file under the port is for a server that listens on 127.0.0.1.
    """
    path = token_path(store, port)
    if path is None:
        yield
        return
    paths = dict.fromkeys([path, _port_path(port)] if host in (LOOPBACK, "localhost") else [path])
    for each in paths:
        try:
            _write(each, token)
        except OSError as error:
            # The file under the port saves the operator a word; a system without that folder works without it.
            level = logging.WARNING if each == path else logging.DEBUG
            log.log(level, "the operator's token cannot be written to %s: %s", each, error.strerror)
    try:
        yield
    finally:
        for each in paths:
            if _read(each) == token:  # another server may have begun on the store, or on the port
                with suppress(OSError):
                    each.unlink()


def drop_token(store: str, port: int) -> None:
    """Delete the token of an earlier server, which was killed, on a server that asks callers for keys."""
    for path in (token_path(store, port), _port_path(port)):
        if path is not None:
            with suppress(OSError):
                _check_place(path)
                path.unlink(missing_ok=True)


def _read(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        _check_place(path)
        return path.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _write(path: Path, token: str) -> None:
    """Write the file anew. Raises OSError."""
    if path.parent == _runtime_folder():
        path.parent.mkdir(mode=0o700, exist_ok=True)
    _check_place(path)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(token + "\n")


def _port_path(port: int) -> Path:
    return _runtime_folder() / f"{port}{SUFFIX}"


def _runtime_folder() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "dragoman" if runtime else Path(tempfile.gettempdir()) / f"dragoman-{os.getuid()}"


def _check_place(path: Path) -> None:
    """Raises OSError if the file is in the runtime folder, and somebody else made that, or may write to it."""
    if path.parent != _runtime_folder():
        return
    found = path.parent.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(1, "its folder belongs to somebody else, or others may write to it")
