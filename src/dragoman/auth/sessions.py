"""Sessions: operators who have signed in with a browser, for the console.

Invariant: the store holds the SHA-256 of a session's secret, never the secret, and every replica of a store knows the
same sessions. A session admits nobody whom its key, or the token of a server without authentication, would not admit
now. One that an OpenID provider has vouched for ends when that says, or when the settings name another provider.
"""

import base64
import hashlib
import logging
import secrets
from contextlib import suppress

import msgspec
from msgspec import Struct

from dragoman.auth.authenticator import Authenticator
from dragoman.auth.keys import id_of
from dragoman.model.errors import Unavailable
from dragoman.model.ids import Clock
from dragoman.model.principal import AccessRole, Principal
from dragoman.store.api import StoreError
from dragoman.store.codec import DamagedRow, decode
from dragoman.store.keyring import KeyRing, key_state
from dragoman.store.shared import CONSOLE_SESSIONS, Shared
from dragoman.telemetry.coalescing import about

log = logging.getLogger(__name__)

UNUSED_MS = 12 * 3600 * 1000
"""How long a session lasts without a request."""

LONGEST_MS = 7 * 24 * 3600 * 1000
"""How long a session lasts at most."""

RENEW_MS = 10 * 60 * 1000
"""How often a session in use is renewed in the store."""

CHECKED_MS = 1000
"""How long a session is accepted before the store is asked again. One that has ended may be accepted for as long."""

REMEMBERED = 1000
"""Most sessions that are remembered as checked. More are only checked more often."""

SECRET_BYTES = 32

NO_LOOK_UP = "sessions cannot be looked up at this moment: try again"


BY_PROVIDER = "oidc"
"""The `key` of sessions that an OpenID provider has vouched for. No key has such a short id."""


class _Stored(Struct, frozen=True, array_like=True):
    """A session in the store. `key` is the id of the key it was begun with, empty for the server's own token.

    With `BY_PROVIDER` it is one of the `provider` that was in force then, ends at `ends_ms`, and is of an operator of a
    `team`, or (empty) of the server.
    """

    principal: str
    key: str
    begun_ms: int
    ends_ms: int = 0
    provider: str = ""
    team: str = ""


_SESSIONS = msgspec.json.Decoder(_Stored)


class SignedIn(Struct, frozen=True):
    """A session: its operator, the token that requests which change something must repeat, and its latest end.

    `vouched`: an OpenID provider has vouched for the operator.
    """

    principal: Principal
    proof: str
    ends_ms: int
    vouched: bool = False


class _Checked(Struct, frozen=True):
    session: SignedIn
    at_ms: int
    renewed_ms: int


class OperatorSessions:
    """The sessions in `shared`. Once the `authenticator` asks every caller for a key, the server's token is void.

    `provider` names the OpenID provider in force, with all that it takes to be an operator there; None: there is none.
    """

    def __init__(
        self,
        shared: Shared,
        keys: KeyRing,
        clock: Clock,
        authenticator: Authenticator,
        provider: str | None = None,
    ) -> None:
        self._shared = shared
        self._keys = keys
        self._clock = clock
        self._authenticator = authenticator
        self._provider = provider
        self._checked: dict[bytes, _Checked] = {}

    async def begin(self, principal: Principal, credential: str) -> tuple[str, SignedIn]:
        """Begin a session of an operator who has just sent this credential. Returns the secret for the cookie.

        Raises Unavailable.
        """
        now_ms = self._clock.now_ms()
        return await self._store(_Stored(principal.id, id_of(credential) or "", now_ms), principal, now_ms)

    async def begin_vouched(self, principal_id: str, ends_ms: int, team: str = "") -> tuple[str, SignedIn]:
        """Begin a session of an operator for whom the provider vouches until then. Returns as `begin` does.

        Raises Unavailable.
        """
        now_ms = self._clock.now_ms()
        stored = _Stored(principal_id, BY_PROVIDER, now_ms, ends_ms, self._provider or "", team)
        principal = self._vouched(stored)
        assert principal is not None  # the team is one of those in force
        return await self._store(stored, principal, now_ms)

    async def find(self, secret: str) -> SignedIn | None:
        """The session with this secret; None if there is none, or none any more. Raises Unavailable."""
        digest = hashlib.sha256(secret.encode()).digest()
        now_ms = self._clock.now_ms()
        checked = self._checked.get(digest)
        if checked is not None and 0 <= now_ms - checked.at_ms < CHECKED_MS:
            return checked.session
        try:
            session = await self._look_up(secret, now_ms)
            if session is None:
                self._checked.pop(digest, None)
                return None
        except StoreError as error:
            raise Unavailable(NO_LOOK_UP) from error
        renewed_ms = 0 if checked is None else checked.renewed_ms
        if now_ms - renewed_ms >= RENEW_MS:
            with suppress(StoreError):  # it still counts: a store whose disk is full is when an operator looks at it
                await self._shared.renew((_place(secret),), max(1, min(UNUSED_MS, session.ends_ms - now_ms)))
                renewed_ms = now_ms
        if len(self._checked) >= REMEMBERED:
            self._checked.clear()
        self._checked[digest] = _Checked(session, now_ms, renewed_ms)
        return session

    async def end(self, secret: str) -> None:
        """End a session. Raises Unavailable."""
        self._checked.pop(hashlib.sha256(secret.encode()).digest(), None)
        try:
            await self._shared.delete(_place(secret))
        except StoreError as error:
            raise Unavailable(NO_LOOK_UP) from error

    async def _look_up(self, secret: str, now_ms: int) -> SignedIn | None:
        entry = await self._shared.get(_place(secret))
        if entry is None:
            return None
        try:
            stored = decode(_SESSIONS, entry.value)
        except DamagedRow as error:  # it admits nobody
            log.error("a session of the console cannot be read: %s", error, extra=about("sessions"))
            return None
        principal = None if now_ms >= _ends_ms(stored) else await self._principal(stored, now_ms)
        return None if principal is None else _signed_in(stored, principal, secret)

    async def _store(self, stored: _Stored, principal: Principal, now_ms: int) -> tuple[str, SignedIn]:
        secret = secrets.token_urlsafe(SECRET_BYTES)
        left_ms = max(1, min(UNUSED_MS, _ends_ms(stored) - now_ms))
        try:
            await self._shared.put(_place(secret), msgspec.json.encode(stored), left_ms)
        except StoreError as error:
            raise Unavailable(NO_LOOK_UP) from error
        return secret, _signed_in(stored, principal, secret)

    async def _principal(self, stored: _Stored, now_ms: int) -> Principal | None:
        """The operator whom the credential of a session names, with the team of a key; None if it counts no more."""
        if not stored.key:
            return None if self._authenticator.required else self._vouched(stored)
        if stored.key == BY_PROVIDER:
            return self._vouched(stored) if self._provider is not None and stored.provider == self._provider else None
        key = await self._keys.find(stored.key)
        if key is None or key_state(key, now_ms) != "active":
            return None
        holder = self._authenticator.holder_of(key)
        return holder if holder is not None and holder.operates else None

    def _vouched(self, stored: _Stored) -> Principal | None:
        """The operator of a session that no key was sent for; None if its team is not there any more."""
        operator = Principal(stored.principal, AccessRole.OPERATOR)
        return self._authenticator.join(operator, stored.team) if stored.team else operator


def _ends_ms(stored: _Stored) -> int:
    longest_ms = stored.begun_ms + LONGEST_MS
    return min(longest_ms, stored.ends_ms) if stored.key == BY_PROVIDER else longest_ms


def _signed_in(stored: _Stored, principal: Principal, secret: str) -> SignedIn:
    return SignedIn(principal, _proof(secret), _ends_ms(stored), stored.key == BY_PROVIDER)


def _place(secret: str) -> str:
    return CONSOLE_SESSIONS + hashlib.sha256(secret.encode()).hexdigest()


def _proof(secret: str) -> str:
    """A token that only pages of the server's own origin can know; it reveals nothing of the secret."""
    digest = hashlib.sha256(b"proof of origin\n" + secret.encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
