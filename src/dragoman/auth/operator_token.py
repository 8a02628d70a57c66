"""The token of a server that asks nobody: its bearer is an operator, and only the server's own user can read it.

Invariant: the file is made anew with mode 0600, never written through a link, and deleted when the server stops. It is
beside the store, or in the user's runtime folder for a store in memory.
"""

import logging
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dragoman.store.path import is_shared, store_path

log = logging.getLogger(__name__)

BYTES = 32
SUFFIX = ".operator"


def new_token() -> str:
    """A fresh token."""
    return f"dgo_{secrets.token_urlsafe(BYTES)}"


def token_path(store: str, port: int) -> Path | None:
    """The file with the token of the server that has `store` open; None for a store that several servers share."""
    if is_shared(store):
        return None
    path = store_path(store)
    return _runtime_folder() / f"{port}{SUFFIX}" if path is None else path.with_name(path.name + SUFFIX)


def read_token(store: str, port: int) -> str | None:
    """The token of the server that has `store` open; None if this user may not read it, or if there is none."""
    path = token_path(store, port)
    try:
        return None if path is None else path.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


@contextmanager
def kept_token(token: str, store: str, port: int) -> Iterator[None]:
    """Keep the token in its file within the block. Without the file, only operators with keys reach the admin API."""
    path = token_path(store, port)
    if path is None:
        yield
        return
    try:
        if store_path(store) is None:
            _make_private(path.parent)
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(token + "\n")
    except OSError as error:
        log.warning("the operator's token cannot be written to %s: %s", path, error.strerror)
    try:
        yield
    finally:
        with suppress(OSError, UnicodeDecodeError):
            if path.read_text(encoding="ascii").strip() == token:  # another server may have begun on the store
                path.unlink()


def drop_token(store: str, port: int) -> None:
    """Delete the token of an earlier server, which was killed, on a server that asks callers for keys."""
    if (path := token_path(store, port)) is not None:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _runtime_folder() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "dragoman" if runtime else Path(tempfile.gettempdir()) / f"dragoman-{os.getuid()}"


def _make_private(folder: Path) -> None:
    """Make a folder that is this user's alone. Raises OSError if somebody else made it, or may write to it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(1, "its folder belongs to somebody else, or others may write to it")
