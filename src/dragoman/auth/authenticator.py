"""Authenticator: finds the principal of a request from its headers, by the configured kinds of credentials.

Invariant: all keys and tokens of a request that are valid here name one caller. The first one counts, in the order
`KEY_HEADERS`, bearer token; one that is not valid here may be meant for another server, and counts for nothing beside
one that is. A client certificate counts if there are none of these. The sender of a wrong key cannot tell what is wrong
with it. Only valid credentials are remembered, and those beside a valid one, so that a flood of wrong ones evicts
nothing.
"""

import asyncio
import hashlib
import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dragoman.auth.keys import id_of, matches
from dragoman.model.errors import Unauthorized, Unavailable
from dragoman.model.ids import Clock
from dragoman.model.principal import (
    ANONYMOUS,
    LOCAL_OPERATOR,
    AccessRole,
    Principal,
    Team,
    join_team,
    key_owner,
    reach_of,
)
from dragoman.store.api import StoreError
from dragoman.store.keyring import KeyRing, StoredKey, key_state

if TYPE_CHECKING:  # tokens need a library that takes longer to import than a server may take to start
    from dragoman.auth.certificates import Certificates
    from dragoman.auth.tokens import TokenVerifier

log = logging.getLogger(__name__)

CACHE_BYTES_MAX = 8 * 1024 * 1024
"""Enough for some 8,000 JWTs of 1 KB, or 40,000 API keys."""

ENTRY_BYTES = 200
"""The bytes of an entry beside the credential."""

KEY_HEADERS = (b"x-api-key", b"x-agent-api-key")
"""The headers for a key; the second is BeeOS's. A key may also be sent as a bearer token."""

AUTHORIZATION = b"authorization"

KEY_MS = 1000
"""How long a key is accepted before the store is asked again. A revoked key may be accepted for as long."""

SENT_BYTES_MAX = 16 * 1024
"""The longest credential that is checked."""

KEY_WRONG = "the key is not valid here"

TOKEN_WRONG = "the token is not valid here"

TWO_CALLERS = "the credentials name different callers of this server: send those of one"

NO_LOOK_UP = "keys cannot be looked up at this moment: try again"


class CredentialCache:
    """The principals of credentials, by the exact bytes that were sent, for as long as they may be accepted.

    Bytes are compared only if a hash with a secret seed (SipHash) is equal, so that timing reveals nothing.
    """

    def __init__(self, max_bytes: int = CACHE_BYTES_MAX) -> None:
        self._entries: dict[bytes, tuple[Principal, int, int]] = {}
        self._bytes_left = max_bytes

    def get(self, sent: bytes, now_ms: int) -> Principal | None:
        """The principal of a credential; None if it must be verified anew, also after the clock was set back."""
        entry = self._entries.get(sent)
        return entry[0] if entry is not None and entry[1] <= now_ms < entry[2] else None

    def put(self, sent: bytes, principal: Principal, now_ms: int, until_ms: int) -> None:
        """Accept a credential until `until_ms`. The oldest entries make room."""
        self._remove(sent)
        self._entries[sent] = (principal, now_ms, until_ms)
        self._bytes_left -= len(sent) + ENTRY_BYTES
        while self._bytes_left < 0:
            self._remove(next(iter(self._entries)))

    def _remove(self, sent: bytes) -> None:
        if self._entries.pop(sent, None) is not None:
            self._bytes_left += len(sent) + ENTRY_BYTES

    def __len__(self) -> int:
        return len(self._entries)


class Authenticator:
    """Authenticates callers. `keys` are the store's, `shared` is one key for all callers, `agent_keys` are by agent.

    The bearer of `operator_token` is an operator, without authentication being required of others. With `admin_works`
    the shared key, tokens of the role `admin`, and keys of that role that were made when it still was a worker's
    (`StoredKey.works_as_admin`) keep the rights of a worker. A key of a team counts only if that is one of `teams`.

    Without `always`, authentication is required as soon as there is a way to do it: once the store has ever had a key,
    or if anything else is given. Keys of agents alone require it only for calls to these agents.
    """

    def __init__(
        self,
        keys: KeyRing | None,
        clock: Clock,
        *,
        shared: str | None = None,
        agent_keys: Mapping[str, str],
        tokens: "TokenVerifier | None" = None,
        certificates: "Certificates | None" = None,
        always: bool = False,
        operator_token: str | None = None,
        admin_works: bool = False,
        teams: Collection[Team] = (),
    ) -> None:
        self._keys = keys
        self._teams = {team.id: team for team in teams}
        self._clock = clock
        self.keyed_agents = frozenset(agent_keys)
        """The agents that have keys of their own, so that their callers must authenticate."""
        self._tokens = tokens
        self._certificates = certificates
        self._fixed = always or shared is not None or tokens is not None or certificates is not None
        self._asks = self._fixed or bool(agent_keys)
        self._shared = shared is not None
        self._operators = _index_operator(operator_token)
        self._admin_works = admin_works
        self._warned = False
        """Whether a token of the role `admin` was warned of."""
        self._common = _index_shared(shared, admin_works) | self._operators
        self._configured = _index_keys(agent_keys) | self._common
        self._keyed = False
        self._unsure = keys is not None
        """Whether the store could not say whether it has a key. That must not let anybody in without authentication."""
        self._looked_ms = -KEY_MS
        self._looking = asyncio.Lock()
        self._teamless: set[str] = set()
        """The keys that were warned of, because their team is not in the file."""
        self._seen = {name: CredentialCache() for name in (*KEY_HEADERS, AUTHORIZATION)}
        self._strange = CredentialCache()
        """The invalid credentials that came beside a valid one, for as long as a key is believed."""

    def replace_agent_keys(self, agent_keys: Mapping[str, str]) -> None:
        """Replace all keys of agents."""
        self.keyed_agents = frozenset(agent_keys)
        self._asks = self._fixed or bool(agent_keys)
        self._configured = _index_keys(agent_keys) | self._common
        self._seen = {name: CredentialCache() for name in self._seen}
        self._strange = CredentialCache()

    @property
    def required(self) -> bool:
        """Whether every caller must authenticate, as of the last `refresh`. Once there was a key, this stays true.

        It is also true while the store cannot say whether it has a key.
        """
        return self._fixed or self._has_keys

    async def refresh(self) -> None:
        """Learn whether the store ever had a key, or cannot say: at most once a second, until it had one."""
        if self._keys is None or self._keyed or self._looked(self._clock.now_ms()):
            return
        async with self._looking:
            if self._keyed or self._looked(self._clock.now_ms()):
                return
            try:
                self._keyed, self._unsure = await self._keys.any(), False
            except StoreError:
                self._unsure = True
            self._looked_ms = self._clock.now_ms()

    def required_for(self, agent: str) -> bool:
        """Whether callers of this agent must authenticate."""
        return self.required or agent in self.keyed_agents

    def known(self, headers: Mapping[bytes, bytes], peer: str | None) -> Principal | None:
        """The caller, if that needs no look-up; None means to call `identify`. `peer` is the address of the socket."""
        now_ms = self._clock.now_ms()
        if not (self._asks or self._keyed or self._unsure):
            return ANONYMOUS if self._keys is None or self._looked(now_ms) else None
        found: Principal | None = None
        strange = False
        for name, seen in self._seen.items():
            if sent := headers.get(name):
                principal = seen.get(sent, now_ms)
                if principal is None:
                    if self._strange.get(sent, now_ms) is None:
                        return None
                    strange = True
                elif found is None:
                    found = principal
                elif principal.id != found.id:
                    return None
        if found is None and not strange and self._certificates is not None:
            return self._certificates.principal(headers, peer)
        return found

    async def identify(self, headers: Mapping[bytes, bytes], peer: str | None) -> Principal:
        """Identify the caller: `ANONYMOUS` if nobody must authenticate, or if only agents have keys and none was sent.

        Raises Unauthorized, or Unavailable if the store or the issuer of tokens cannot be asked.
        """
        await self.refresh()
        principal = await self.recognise(headers, peer)
        if principal is not ANONYMOUS or not self.required:
            return principal
        if self._unsure and not self._fixed:
            raise Unavailable(NO_LOOK_UP)
        raise Unauthorized(f"this server asks who is calling: {self._ways()}", missing=True)

    async def recognise(self, headers: Mapping[bytes, bytes], peer: str | None) -> Principal:
        """Identify a caller who asks for something public: `ANONYMOUS` if there are no credentials.

        Raises Unauthorized, or Unavailable if the store or the issuer of tokens cannot be asked.
        """
        if (principal := self.known(headers, peer)) is not None:
            return principal
        return await self._read_credentials(headers, peer) or ANONYMOUS

    async def _read_credentials(self, headers: Mapping[bytes, bytes], peer: str | None) -> Principal | None:
        """The caller that the credentials name; None if there are none.

        Raises Unauthorized if none of them is valid, or if they name different callers; Unavailable if none is valid
        and one cannot be looked up.
        """
        named: list[Principal] = []
        wrong: Unauthorized | Unavailable | None = None
        strange: list[bytes] = []
        for name, seen in self._seen.items():
            if not (raw := headers.get(name)):
                continue
            if not (secret := _secret(name, raw)):
                strange.append(raw)
                continue
            try:
                named.append(await self._verify(name, raw, secret, seen))
            except Unauthorized as error:
                wrong = wrong or error
                strange.append(raw)
            except Unavailable as error:
                wrong = wrong or error
        if not named:
            if wrong is not None:
                raise wrong
            return None if self._certificates is None else self._certificates.principal(headers, peer)
        if any(principal.id != named[0].id for principal in named):
            raise Unauthorized(TWO_CALLERS)
        now_ms = self._clock.now_ms()
        for raw in strange:
            self._strange.put(raw, ANONYMOUS, now_ms, now_ms + KEY_MS)
        return named[0]

    def operator(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        """The operator whose token was sent, for a server without authentication; None if there is none."""
        for name in (*KEY_HEADERS, AUTHORIZATION):
            if (raw := headers.get(name)) and (secret := _secret(name, raw)):
                return self._operators.get(hashlib.sha256(secret).digest())
        return None

    def schemes(self, agent: str = "") -> Mapping[str, Any]:
        """The security schemes for all callers, or for those of one agent, as in an A2A 1.0 card (§4.5); may be empty.

        Any one of them suffices. Their number may grow while the server runs, when the first key is made.
        """
        schemes: dict[str, Any] = {}
        own = agent in self.keyed_agents
        if not (self.required or own):
            return schemes
        keyed = own or self._takes_keys()
        if keyed:
            schemes["apiKey"] = {"apiKeySecurityScheme": {"location": "header", "name": KEY_HEADERS[0].decode()}}
        if keyed or self._tokens is not None:
            bearer = {"scheme": "Bearer"}
            if not keyed:
                bearer["bearerFormat"] = "JWT"
            schemes["bearer"] = {"httpAuthSecurityScheme": bearer}
        if self._tokens is not None:
            schemes["openIdConnect"] = {"openIdConnectSecurityScheme": {"openIdConnectUrl": self._tokens.discovery_url}}
        if self._certificates is not None:
            schemes["mtls"] = {"mtlsSecurityScheme": {"description": "A client certificate, verified by the proxy"}}
        return schemes

    def requirements(self, agent: str = "") -> tuple[dict[str, Any], ...]:
        """The schemes as alternatives (A2A 1.0 §4.4.1, `securityRequirements`)."""
        return tuple({"schemes": {name: {"list": []}}} for name in self.schemes(agent))

    async def _verify(self, name: bytes, raw: bytes, secret: bytes, seen: CredentialCache) -> Principal:
        """Verify a credential and return its principal. Raises Unauthorized or Unavailable."""
        if len(raw) > SENT_BYTES_MAX:
            raise Unauthorized(KEY_WRONG)
        now_ms = self._clock.now_ms()
        until_ms = now_ms + KEY_MS
        # Looked up by digest: the time taken depends on the digest, and does not reveal how much of the key was right.
        principal = self._configured.get(hashlib.sha256(secret).digest())
        if principal is None and (key := await self._key(secret, now_ms)) is not None:
            principal = self._admit_holder(key)
            until_ms = until_ms if key.expires_ms is None else min(until_ms, key.expires_ms)
        if principal is None and name == AUTHORIZATION and self._tokens is not None and secret.count(b".") == 2:
            principal, until_ms = await self._tokens.verify(secret)
            if self._admin_works and principal.role is AccessRole.ADMIN:
                principal = self._let_work(principal)
        if principal is None:
            raise Unauthorized(TOKEN_WRONG if self._tokens is not None and not self._takes_keys() else KEY_WRONG)
        seen.put(raw, principal, now_ms, until_ms)
        return principal

    def _let_work(self, principal: Principal) -> Principal:
        """Give a token of the role `admin` the rights of a worker, and warn of the first one: no start knows of any."""
        if not self._warned:
            self._warned = True
            log.warning(
                "a token of the role admin, of %s, may run workers, which lease and complete the tasks of all callers: "
                "let workers' tokens have the role agent and those of monitoring the role monitor, then set "
                "admin_runs_workers = false",
                principal.id,
            )
        return replace(principal, works=True)

    def holder_of(self, key: StoredKey) -> Principal | None:
        """The principal of a key; None if its team is not in the file, so that nobody knows what it may reach."""
        holder = Principal(
            key_owner(key.name, ""),
            key.role,
            reach_of(key.role, key.agents),
            None if key.scopes is None else frozenset(key.scopes),
            key.limits,
            key.id,
            self._admin_works and key.works_as_admin,
            key.one_person,
        )
        return self.join(holder, key.team) if key.team else holder

    def join(self, principal: Principal, team_id: str) -> Principal | None:
        """The principal as a member of a team; None if that is not in the file."""
        team = self._teams.get(team_id)
        return None if team is None else join_team(principal, team)

    def _admit_holder(self, key: StoredKey) -> Principal | None:
        """As `holder_of`, and warns once of a key whose team is not in the file."""
        holder = self.holder_of(key)
        if holder is None and key.id not in self._teamless:
            self._teamless.add(key.id)
            log.warning(
                "key %s of %s is refused: it is of the team %s, and no [[teams]] in the configuration has that id: "
                "add the table, or revoke the key",
                key.id,
                key.name,
                key.team,
            )
        return holder

    async def _key(self, secret: bytes, now_ms: int) -> StoredKey | None:
        """The stored key with this secret, if it is active now."""
        text = secret.decode("latin-1")
        if self._keys is None or (key_id := id_of(text)) is None:
            return None
        try:
            key = await self._keys.find(key_id)
        except StoreError as error:
            raise Unavailable(NO_LOOK_UP) from error
        if key is None or not matches(text, key.digest) or key_state(key, now_ms) != "active":
            return None
        return key

    @property
    def _has_keys(self) -> bool:
        """Whether the store ever had a key, or could not say."""
        return self._keyed or self._unsure

    def _looked(self, now_ms: int) -> bool:
        """Whether the store was asked less than a second ago."""
        return 0 <= now_ms - self._looked_ms < KEY_MS

    def _takes_keys(self) -> bool:
        """Whether to offer keys: there are some, or one can be made because the server has no other kind."""
        only = self._tokens is None and self._certificates is None
        return self._shared or only or self._has_keys

    def _ways(self) -> str:
        ways = ["an API key as x-api-key or as bearer token"] if self._takes_keys() else []
        if self._tokens is not None:
            ways.append(f"a JWT of {self._tokens.issuer} as bearer token")
        if self._certificates is not None:
            ways.append("a client certificate")
        return "send " + ", or ".join(ways)


def _index_keys(agent_keys: Mapping[str, str]) -> dict[bytes, Principal]:
    """The principals of agents' keys, by digest. Agents with the same key have the same principal."""
    principals: dict[str, Principal] = {}
    for key in dict.fromkeys(agent_keys.values()):
        agents = [agent for agent, own in agent_keys.items() if own == key]
        principals[key] = Principal(f"agent-key:{agents[0]}", AccessRole.AGENT, frozenset(agents))
    return {digest: principal for key, principal in principals.items() for digest in _digests(key)}


def _index_shared(shared: str | None, works: bool) -> dict[bytes, Principal]:
    """The principal of the shared key, by digest."""
    if shared is None:
        return {}
    return dict.fromkeys(_digests(shared), Principal("shared", AccessRole.ADMIN, works=works))


def _index_operator(token: str | None) -> dict[bytes, Principal]:
    """The operator of this machine, by the digest of the token."""
    if token is None:
        return {}
    return {hashlib.sha256(token.encode()).digest(): Principal(LOCAL_OPERATOR, AccessRole.OPERATOR)}


def _digests(key: str) -> set[bytes]:
    """The digests of what clients send for a key: beyond ASCII UTF-8, or Latin-1, the charset that headers once had."""
    spellings = {key.encode()}
    try:
        spellings.add(key.encode("latin-1"))
    except UnicodeEncodeError:
        pass  # not in Latin-1, so nobody can send it that way
    return {hashlib.sha256(spelled).digest() for spelled in spellings}


def _secret(name: bytes, raw: bytes) -> bytes:
    """The credential in a header's value; empty if there is none, as in `Authorization: Basic …`."""
    if name != AUTHORIZATION:
        return raw.strip()
    scheme, _, token = raw.strip().partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""
