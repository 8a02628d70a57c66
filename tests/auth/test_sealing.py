"""Sealed secrets: who may open them, and for what."""

import base64
import secrets
from pathlib import Path

import pytest

from dragoman.auth.sealing import NotForThisUse, OtherKey, SealedSecret, SecretKeys, SecretUse, read_secret_keys

KEYS = [bytes([number]) * 32 for number in range(3)]
WORDS = [base64.b64encode(key).decode() for key in KEYS]
SECRET = "s3cr3t-of-the-partner"
USE = SecretUse.of("partner", ["https://b.example:443", "https://a.example:443"])


def keys(*chosen: bytes) -> SecretKeys:
    return SecretKeys(chosen or KEYS[:1], secrets.token_bytes)


def test_a_secret_opens_for_its_agent_and_its_hosts_in_any_order() -> None:
    sealed = keys().seal(SECRET, USE)
    again = SecretUse.of("partner", ["https://a.example:443", "https://b.example:443", "https://a.example:443"])
    assert keys().open_secret(sealed, again) == SECRET
    assert SECRET.encode() not in sealed.sealed


@pytest.mark.parametrize(
    "use",
    [
        SecretUse.of("other", USE.origins),
        SecretUse.of("partner", USE.origins[:1]),
        SecretUse.of("partner", ["https://a.example:443", "https://c.example:443"]),
        SecretUse.of("partner", ["http://a.example:443", "https://b.example:443"]),
        SecretUse.of("partner", ["https://a.example:8443", "https://b.example:443"]),
        SecretUse.of("partner", ["https://a.example:443,https://b.example:443"]),
        SecretUse.of("partner", []),
    ],
)
def test_a_secret_opens_for_nothing_else(use: SecretUse) -> None:
    sealed = keys().seal(SECRET, USE)
    with pytest.raises(NotForThisUse):
        keys().open_secret(sealed, use)


def test_damaged_bytes_open_for_nothing() -> None:
    sealed = keys().seal(SECRET, USE)
    for place in range(len(sealed.sealed)):
        damaged = bytearray(sealed.sealed)
        damaged[place] ^= 1
        with pytest.raises(NotForThisUse):
            keys().open_secret(SealedSecret(sealed.key, sealed.nonce, bytes(damaged)), USE)
    with pytest.raises(NotForThisUse):
        keys().open_secret(SealedSecret(sealed.key, b"", sealed.sealed), USE)


def test_the_first_key_seals_and_all_open() -> None:
    old = keys(KEYS[0]).seal(SECRET, USE)
    both = keys(KEYS[1], KEYS[0])
    assert both.open_secret(old, USE) == SECRET
    assert both.seal(SECRET, USE).key == keys(KEYS[1]).current != old.key
    with pytest.raises(OtherKey) as refused:
        keys(KEYS[1]).open_secret(old, USE)
    assert refused.value.key == old.key


def test_no_two_secrets_are_sealed_alike() -> None:
    sealed = [keys().seal(SECRET, USE) for _ in range(20)]
    assert len({each.nonce for each in sealed}) == len({each.sealed for each in sealed}) == 20


@pytest.mark.parametrize("text", [WORDS[0], f" {WORDS[0]}\n", WORDS[0].rstrip("="), "-_8" + "A" * 40, "+/8" + "A" * 40])
def test_a_key_is_read_in_the_usual_spellings(text: str) -> None:
    assert SecretKeys.parse(text, secrets.token_bytes).current


@pytest.mark.parametrize("text", ["", "sesame", WORDS[0][:-4], WORDS[0] + "AAAA", f"{WORDS[0]},sesame", "é" * 43])
def test_what_is_no_key_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match="must be 32 bytes in base64: `openssl rand -base64 32` prints one") as refused:
        read_secret_keys(text, None, secrets.token_bytes)
    assert str(refused.value).startswith("secret_key (DRAGOMAN_SECRET_KEY) must be")
    assert refused.value.__context__ is None or refused.value.__suppress_context__


def test_several_keys_stand_in_a_file_one_a_line(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"{WORDS[1]}\n{WORDS[0]}\n")
    read = read_secret_keys(None, str(path), secrets.token_bytes)
    assert read is not None
    assert read.current == keys(KEYS[1]).current
    assert read.open_secret(keys(KEYS[0]).seal(SECRET, USE), USE) == SECRET
    assert not any(word in repr(read) for word in WORDS)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"secret_key_file .* cannot be read: .*: name a file that this user may read"):
        read_secret_keys(None, str(tmp_path / "none"), secrets.token_bytes)
    (tmp_path / "odd").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"secret_key_file .* must be 32 bytes in base64"):
        read_secret_keys(None, str(tmp_path / "odd"), secrets.token_bytes)
    with pytest.raises(ValueError, match="leave one of them out"):
        read_secret_keys(WORDS[0], "x", secrets.token_bytes)
    assert read_secret_keys(None, None, secrets.token_bytes) is None
