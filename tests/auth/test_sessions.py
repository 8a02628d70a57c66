"""Sessions of operators: how long they last, and what ends them."""

from collections.abc import AsyncIterator

import pytest

from dragoman.auth.authenticator import Authenticator
from dragoman.auth.sessions import CHECKED_MS, LONGEST_MS, RENEW_MS, UNUSED_MS, OperatorSessions
from dragoman.model.principal import AccessRole, Principal
from dragoman.store.api import Store, StoreFull
from dragoman.store.open import open_store
from tests.kit.places import add_key
from tests.store.cases.bench import SetClock

LOCAL = Principal("operator:local", AccessRole.OPERATOR)
TOKEN = "dgo_some-token"


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
async def store(clock: SetClock) -> AsyncIterator[Store]:
    opened = open_store("memory:", clock)
    await opened.open("here")
    yield opened
    await opened.close()


@pytest.fixture
async def authenticator(store: Store, clock: SetClock) -> Authenticator:
    """It asks nobody for a key until the store has one."""
    found = Authenticator(store.keys, clock, agent_keys={})
    await found.refresh()
    return found


@pytest.fixture
def sessions(store: Store, clock: SetClock, authenticator: Authenticator) -> OperatorSessions:
    return OperatorSessions(store.shared, store.keys, clock, authenticator)


async def operators_key(store: Store, name: str = "ops") -> tuple[str, str]:
    """Store a key of an operator; returns its id and the key."""
    return await add_key(store, name, role=AccessRole.OPERATOR)


async def test_a_session_is_its_operators(sessions: OperatorSessions) -> None:
    secret, begun = await sessions.begin(LOCAL, TOKEN)
    found = await sessions.find(secret)
    assert found == begun
    assert begun.principal == LOCAL
    assert await sessions.find(secret + "x") is None


async def test_the_store_holds_neither_secret_nor_proof(store: Store, sessions: OperatorSessions) -> None:
    secret, begun = await sessions.begin(LOCAL, TOKEN)
    (entry,) = await store.shared.scan("")
    for hidden in (secret, begun.proof, TOKEN):
        assert hidden not in entry.key
        assert hidden.encode() not in entry.value


async def test_another_replica_knows_it_too(
    store: Store, clock: SetClock, sessions: OperatorSessions, authenticator: Authenticator
) -> None:
    secret, begun = await sessions.begin(LOCAL, TOKEN)
    other = OperatorSessions(store.shared, store.keys, clock, authenticator)
    assert await other.find(secret) == begun
    await other.end(secret)
    clock.ms += CHECKED_MS
    assert await sessions.find(secret) is None


async def test_it_ends_at_once_where_it_is_ended(sessions: OperatorSessions) -> None:
    secret, _ = await sessions.begin(LOCAL, TOKEN)
    assert await sessions.find(secret) is not None
    await sessions.end(secret)
    assert await sessions.find(secret) is None


async def test_an_unused_session_ends(clock: SetClock, sessions: OperatorSessions) -> None:
    secret, _ = await sessions.begin(LOCAL, TOKEN)
    clock.ms += UNUSED_MS
    assert await sessions.find(secret) is None


async def test_a_session_in_use_lasts_until_its_longest(clock: SetClock, sessions: OperatorSessions) -> None:
    secret, begun = await sessions.begin(LOCAL, TOKEN)
    steps = LONGEST_MS // (UNUSED_MS // 2)
    for _ in range(steps - 1):
        clock.ms += UNUSED_MS // 2
        assert await sessions.find(secret) == begun
    clock.ms += LONGEST_MS - (steps - 1) * (UNUSED_MS // 2)
    assert await sessions.find(secret) is None


async def test_a_session_is_renewed_seldom(store: Store, clock: SetClock, sessions: OperatorSessions) -> None:
    secret, _ = await sessions.begin(LOCAL, TOKEN)
    await sessions.find(secret)
    (begun,) = await store.shared.scan("")
    clock.ms += RENEW_MS - 1
    await sessions.find(secret)
    (later,) = await store.shared.scan("")
    assert later.left_ms == begun.left_ms - (RENEW_MS - 1)
    clock.ms += 1 + CHECKED_MS
    await sessions.find(secret)
    (renewed,) = await store.shared.scan("")
    assert renewed.left_ms == UNUSED_MS


async def test_a_session_counts_while_the_disk_is_full(
    store: Store, clock: SetClock, sessions: OperatorSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, begun = await sessions.begin(LOCAL, TOKEN)
    renew = store.shared.renew

    async def refuse(*_: object) -> frozenset[str]:
        raise StoreFull

    monkeypatch.setattr(type(store.shared), "renew", refuse)
    assert await sessions.find(secret) == begun
    clock.ms += RENEW_MS
    assert await sessions.find(secret) == begun
    monkeypatch.setattr(type(store.shared), "renew", lambda _, *given: renew(*given))
    clock.ms += CHECKED_MS
    assert await sessions.find(secret) == begun
    (renewed,) = await store.shared.scan("")
    assert renewed.left_ms == UNUSED_MS, "it is renewed as soon as there is space"


async def test_a_session_dies_with_its_key(store: Store, clock: SetClock, sessions: OperatorSessions) -> None:
    key_id, text = await operators_key(store)
    principal = Principal("key:ops", AccessRole.OPERATOR, key=key_id)
    secret, begun = await sessions.begin(principal, text)
    assert await sessions.find(secret) == begun
    await store.keys.revoke(key_id, clock.now_ms())
    clock.ms += CHECKED_MS
    assert await sessions.find(secret) is None


async def test_a_session_of_the_servers_token_dies_when_keys_are_asked_for(
    store: Store, clock: SetClock, sessions: OperatorSessions, authenticator: Authenticator
) -> None:
    of_token, _ = await sessions.begin(LOCAL, TOKEN)
    _, text = await operators_key(store)
    of_key, _ = await sessions.begin(Principal("key:ops", AccessRole.OPERATOR), text)
    clock.ms += 1000
    await authenticator.refresh()
    assert authenticator.required
    assert await sessions.find(of_token) is None
    assert await sessions.find(of_key) is not None


async def test_a_session_that_a_provider_vouches_for_ends_with_its_word(store: Store, clock: SetClock) -> None:
    def sessions_of(provider: str | None) -> OperatorSessions:
        return OperatorSessions(
            store.shared, store.keys, clock, Authenticator(store.keys, clock, agent_keys={}, always=True), provider
        )

    now_ms = clock.now_ms()
    secret, begun = await sessions_of("one").begin_vouched("oidc:ann@one", now_ms + 60_000)
    assert (begun.principal, begun.ends_ms) == (Principal("oidc:ann@one", AccessRole.OPERATOR), now_ms + 60_000)
    assert await sessions_of("one").find(secret) == begun
    assert await sessions_of("another").find(secret) is None
    assert await sessions_of(None).find(secret) is None
    clock.ms += 59_999
    assert await sessions_of("one").find(secret) == begun
    clock.ms += 1
    assert await sessions_of("one").find(secret) is None
    secret, begun = await sessions_of("one").begin_vouched("oidc:ann@one", now_ms + 2 * LONGEST_MS)
    assert begun.ends_ms == clock.now_ms() + LONGEST_MS
