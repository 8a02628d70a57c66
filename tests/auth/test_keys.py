"""API keys: how they look, what is kept of them, and how they are compared."""

import hashlib
import re
import secrets

import pytest
from msgspec.structs import replace

from dragoman.auth.keys import digest_of, id_of, make_key, matches
from dragoman.model.principal import AccessRole
from dragoman.store.keyring import StoredKey, key_state

KEPT = StoredKey(id="aaaaaaaaaaaa", name="n", role=AccessRole.CALLER, agents=None, scopes=None, digest=b"", made_ms=0)


def test_a_key_has_an_id_and_all_the_random_bytes_it_was_given() -> None:
    asked: list[int] = []

    def random(count: int) -> bytes:
        asked.append(count)
        return bytes(range(count))

    key = make_key(random)
    assert key.id == "aaaqeayeauda"
    assert key.text == "dgm_aaaqeayeauda_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
    assert asked == [8, 32]


def test_keys_differ_and_tell_their_ids() -> None:
    keys = [make_key(secrets.token_bytes) for _ in range(500)]
    assert len({key.id for key in keys}) == len({key.text for key in keys}) == 500
    for key in keys:
        assert re.fullmatch(r"dgm_[a-z2-7]{12}_[A-Za-z0-9_-]{43}", key.text)
        assert id_of(key.text) == key.id


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:-1],
        lambda text: text + "A",
        lambda text: text + "\n",
        lambda text: " " + text,
        lambda text: text.replace("dgm_", "dgm-"),
        lambda text: text.upper(),
        lambda text: text[:-1] + "é",
        lambda text: text[:-1] + "+",
        lambda text: "",
    ],
)
def test_what_does_not_look_like_a_key_has_no_id(spoil) -> None:  # type: ignore[no-untyped-def]
    assert id_of(spoil(make_key(secrets.token_bytes).text)) is None


def test_what_is_kept_of_a_key_is_the_hash_of_the_whole_and_only_the_key_matches_it() -> None:
    key, other = make_key(secrets.token_bytes), make_key(secrets.token_bytes)
    digest = digest_of(key.text)
    assert digest == hashlib.sha256(key.text.encode()).digest()
    assert matches(key.text, digest)
    assert not matches(other.text, digest)
    assert not matches(f"dgm_{key.id}_{other.text[-43:]}", digest)
    assert not matches(key.text, digest[:-1])


def test_a_key_counts_until_it_expires_or_is_revoked() -> None:
    assert key_state(KEPT, 1 << 50) == "active"
    ending = replace(KEPT, expires_ms=1000)
    assert [key_state(ending, now) for now in (999, 1000, 1001)] == ["active", "expired", "expired"]
    assert key_state(replace(ending, revoked_ms=1), 999) == "revoked"
    assert key_state(replace(ending, revoked_ms=1), 2000) == "revoked"
