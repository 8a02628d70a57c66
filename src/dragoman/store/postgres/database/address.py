"""Address: a URL `postgresql://user@host:5432/database?…`, and the settings of the driver in its query.

Invariant: no message shows the password of a URL.
"""

import getpass
import os
import re
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from msgspec import Struct

from dragoman.store.api import StoreError
from dragoman.store.path import hide_password

SCHEMES = ("postgresql", "postgres")
SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")

DEFAULT_SCHEMA = "dragoman"


class Address(Struct, frozen=True):
    """The location of a database, and how to use it.

    `dsn` is for the driver, without the settings below. It may name several hosts, with commas between them, of which
    one is the primary. `schema` has all tables. `pool_size` is the largest number of
    connections of the pool; a few more serve heartbeats and hints. A statement may take `timeout_s`, and a new
    connection `connect_s`. One that was idle for `idle_s` is not used again, because firewalls drop idle connections
    silently. `statement_cache_size` None: as many as useful, or none behind a pooling proxy.
    """

    dsn: str
    schema: str = DEFAULT_SCHEMA
    pool_size: int = 10
    timeout_s: float = 10.0
    connect_s: float = 5.0
    idle_s: float = 60.0
    statement_cache_size: int | None = None
    application_name: str = "dragoman"

    @property
    def shown(self) -> str:
        """The URL for messages: without password and settings."""
        return hide_password(self.dsn.partition("?")[0])

    @property
    def user(self) -> str:
        """The user in the URL, or else the one that libpq would use."""
        return unquote(urlsplit(self.dsn).username or os.environ.get("PGUSER") or getpass.getuser())

    @property
    def each_dsn(self) -> tuple[str, ...]:
        """One `dsn` for each host that it names."""
        parts = urlsplit(self.dsn)
        user, at, hosts = parts.netloc.rpartition("@")
        return tuple(urlunsplit(parts._replace(netloc=f"{user}{at}{host}")) for host in hosts.split(","))

    @property
    def database(self) -> str:
        """The database that the URL names."""
        return unquote(urlsplit(self.dsn).path.strip("/"))


def parse_address(url: str, lease_s: float | None = None) -> Address:
    """The address that `url` spells. Raises StoreError, naming the fix.

    A statement may not take longer than the lease of a replica, if that is known: nobody would know any more whether
    what it waits for is still its own.

    The query may have `schema`, `pool_size`, `timeout_s`, `connect_s`, `idle_s`, `statement_cache_size`,
    `application_name`, and what libpq knows, like `sslmode` and `sslrootcert`.
    """
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise _bad(url, "use postgresql://user@host:5432/database") from None
    if parts.scheme not in SCHEMES or not parts.path.strip("/"):
        raise _bad(url, "use postgresql://user@host:5432/database")
    given, rest = dict[str, str](), list[tuple[str, str]]()
    for name, value in query:
        if name in Address.__struct_fields__[1:]:
            given[name] = value
        else:
            rest.append((name, value))
    if "," in parts.netloc.rpartition("@")[2] and "target_session_attrs" not in dict(rest):
        rest.append(("target_session_attrs", "primary"))
    dsn = urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(rest), ""))
    schema = given.get("schema", DEFAULT_SCHEMA)
    if SCHEMA.fullmatch(schema) is None or schema.startswith("pg_"):
        raise _bad(url, "schema must be small letters, digits and '_', and not begin with a digit or pg_")
    cache = given.get("statement_cache_size")
    timeout_s = _number(url, given, "timeout_s", 10, 0.1, 600)
    if "timeout_s" in given and lease_s is not None and timeout_s > lease_s:
        raise _bad(url, f"timeout_s must not exceed replica_lease_s, which is {lease_s:g}")
    return Address(
        dsn,
        schema,
        int(_number(url, given, "pool_size", 10, 1, 1000)),
        timeout_s,
        _number(url, given, "connect_s", 5, 0.1, 600),
        _number(url, given, "idle_s", 60, 0.1, 86_400),
        None if cache is None else int(_number(url, given, "statement_cache_size", 0, 0, 10_000)),
        given.get("application_name", "dragoman"),
    )


def _number(url: str, given: dict[str, str], name: str, usual: float, least: float, most: float) -> float:
    text = given.get(name)
    if text is None:
        return usual
    if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text) is None or not least <= float(text) <= most:
        raise _bad(url, f"{name} must be a number from {least:g} to {most:g}")
    return float(text)


def _bad(url: str, fix: str) -> StoreError:
    return StoreError(f"store url {hide_password(url)!r}: {fix}")
