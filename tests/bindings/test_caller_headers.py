"""The headers of a request that agents are given, byte for byte."""

import pytest

from dragoman.bindings.caller_headers import read_headers
from dragoman.bindings.request import Request
from dragoman.model.errors import InvalidParams
from dragoman.model.headers import HEADERS_BYTES_MAX

NAMES = frozenset((b"x-tenant", b"cookie", b"authorization", b"x-api-key"))


def read(*headers: tuple[bytes, bytes]) -> dict[str, str]:
    return dict(read_headers(Request("POST", dict(headers), headers), NAMES).headers)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ([(b"x-tenant", b" acme ")], {"x-tenant": "acme"}),
        ([(b"x-tenant", b"")], {"x-tenant": ""}),
        ([(b"x-tenant", b"a"), (b"x-other", b"o"), (b"x-tenant", b"b")], {"x-tenant": "a, b"}),
        ([(b"cookie", b"a=1"), (b"cookie", b"b=2")], {"cookie": "a=1; b=2"}),
        ([(b"authorization", b"Bearer a"), (b"authorization", b"Bearer b")], {"authorization": "Bearer b"}),
        ([(b"x-api-key", b"")], {}),
        ([(b"x-tenant", "Köln".encode())], {"x-tenant": "Köln"}),
        ([(b"x-tenant", b"K\xf6ln")], {"x-tenant": "Köln"}),
        ([(b"x-tenant", b"a\tb")], {"x-tenant": "a\tb"}),
    ],
)
def test_values_are_read_as_they_are_meant(sent: list[tuple[bytes, bytes]], expected: dict[str, str]) -> None:
    assert read(*sent) == expected


@pytest.mark.parametrize("value", [b"a\rb", b"a\nb", b"a\0b", b"a\r\nx-api-key: stolen", b"a\x7fb", b"a\x1bb"])
def test_a_control_character_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidParams, match=r"headers\.x-tenant.*leave it out"):
        read((b"x-tenant", value))


def test_listed_headers_have_a_bound_in_all_that_credentials_do_not_count_towards() -> None:
    room = HEADERS_BYTES_MAX - len("x-tenant")
    assert read((b"x-tenant", b"t" * room), (b"authorization", b"t" * 9000))
    with pytest.raises(InvalidParams, match="x-tenant have 8193 bytes: agents are given 8192 at most: send less"):
        read((b"x-tenant", b"t" * (room + 1)))
