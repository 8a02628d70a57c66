"""Tokens that `auth login` obtained, each for the agents of one origin (a2a-cli §10.2).

Invariant: the file has mode 0600 from its first byte, and is replaced as a whole. A token goes only to the origin that
it was obtained for. When several commands run at once, one renews an expired token, and the others use it.
"""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dragoman.cli.a2a.failures import Failure
from dragoman.cli.a2a.oauth import REQUEST_TIMEOUT_S, Client, Endpoints, Grant, fetch_by_client_credentials, refresh
from dragoman.cli.a2a.output import warn
from dragoman.client import BearerToken
from dragoman.net.egress import Egress

TOKENS_FILE = Path(".config") / "a2a-cli" / "tokens.json"
"""The file, below the home directory."""

MARGIN_S = 30.0
"""A token is renewed this long before it expires."""

RENEWAL_S, POLL_S = REQUEST_TIMEOUT_S + 5.0, 0.05
"""How long a command waits for another one that renews a token, and how often it looks."""


class StoredLogin(Struct, frozen=True, kw_only=True):
    """A login: its token, and how to renew it. `client.secret` is kept only for client credentials."""

    grant: Grant
    endpoints: Endpoints
    client: Client
    by_client_credentials: bool = False


def load_logins(home: Path | None = None) -> dict[str, StoredLogin]:
    """Read all logins, by origin. A file that others may read, or that is damaged, counts as empty, with a warning."""
    path = (home or Path.home()) / TOKENS_FILE
    try:
        if path.stat().st_mode & 0o077:
            warn(f"{path} can be read by others and is ignored: run `chmod 600 {path}`")
            return {}
        return msgspec.json.decode(path.read_bytes(), type=dict[str, StoredLogin])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        warn(f"{path} cannot be used and is ignored: {getattr(error, 'strerror', None) or 'it is damaged'}")
        return {}


def save_login(origin: str, login: StoredLogin | None, home: Path | None = None) -> None:
    """Store a login for an origin in place of the earlier one; None deletes it. Raises OSError."""
    path = (home or Path.home()) / TOKENS_FILE
    logins = load_logins(home)
    logins.pop(origin, None)
    if login is not None:
        logins[origin] = login
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f"tokens.{os.getpid()}.part")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(logins), indent=2))
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


async def stored_token(origin: str, egress: Egress) -> BearerToken | None:
    """Return the token for an origin, renewed if it has expired; None if there is none that still works."""
    login = (await asyncio.to_thread(load_logins)).get(origin)
    if login is None:
        return None
    if _lasts(login):
        return BearerToken(login.grant.access_token)
    async with _renewing(Path.home() / TOKENS_FILE):
        now = (await asyncio.to_thread(load_logins)).get(origin)
        if now is None:
            return None
        if _lasts(now) or (now.grant != login.grant and now.grant.expires_s > time.time()):  # another has renewed it
            return BearerToken(now.grant.access_token)
        return await _renew(origin, now, egress)


def _lasts(login: StoredLogin) -> bool:
    return login.grant.expires_s - time.time() > MARGIN_S


@asynccontextmanager
async def _renewing(tokens: Path) -> AsyncGenerator[None, None]:
    """Wait until no other command renews a token, for RENEWAL_S at most."""
    try:
        lock = os.open(tokens.with_name("tokens.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        yield  # a folder that cannot be written: no command can store what it has renewed
        return
    try:
        until_s = time.monotonic() + RENEWAL_S
        while time.monotonic() < until_s:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                await asyncio.sleep(POLL_S)
                continue
            break
        yield
    finally:
        os.close(lock)


async def _renew(origin: str, login: StoredLogin, egress: Egress) -> BearerToken | None:
    try:
        if login.by_client_credentials:
            grant = await fetch_by_client_credentials(login.endpoints, login.client, egress)
        elif login.grant.refresh_token:
            grant = await refresh(login.grant, login.endpoints, login.client, egress)
        else:
            warn(f"the login for {origin} has expired: run `dragoman auth login` again")
            return None
    except Failure as failure:
        warn(f"the login for {origin} could not be renewed: {failure.message}; run `dragoman auth login` again")
        return None
    await asyncio.to_thread(save_login, origin, replace(login, grant=grant))
    return BearerToken(grant.access_token)
