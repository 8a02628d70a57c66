"""The endpoint that a card stands for, and its dialect: one row of the table each."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.client.card import Interface, interfaces

AT = "https://host.example/agent"
CARD = AT + "/.well-known/agent-card.json"


def chosen(card: dict[str, Any], base: str = AT, **more: Any) -> list[tuple[str, str, str]]:
    found = interfaces(card, base + "/.well-known/agent-card.json", base, **more)
    return [(each.url.removeprefix(AT), each.binding, each.dialect) for each in found]


def listed(*entries: tuple[str, str, str]) -> dict[str, Any]:
    return {
        "name": "a",
        "supportedInterfaces": [
            {"url": url, "protocolBinding": binding, "protocolVersion": version} for url, binding, version in entries
        ],
    }


def test_version_1_is_preferred_and_else_the_order_of_the_card_counts() -> None:
    card = listed(
        (AT + "/old", "JSONRPC", "0.3"),
        (AT + "/grpc", "GRPC", "1.0"),
        (AT + "/rest", "HTTP+JSON", "1.0"),
        (AT + "/rpc", "JSONRPC", "1.0.2"),
        (AT + "/odd", "JSONRPC", "one"),
    )
    assert chosen(card) == [
        ("grpcs://host.example:443", "GRPC", "1.0"),
        ("/rest", "HTTP+JSON", "1.0"),
        ("/rpc", "JSONRPC", "1.0"),
        ("/old", "JSONRPC", "0.3"),
    ]
    assert chosen(card, version="0.3") == [("/old", "JSONRPC", "0.3")]
    assert chosen(card, version="0.3", binding="HTTP+JSON") == []
    assert chosen(card, binding="JSONRPC") == [("/rpc", "JSONRPC", "1.0"), ("/old", "JSONRPC", "0.3")]


def test_the_origin_of_the_card_is_preferred_to_others() -> None:
    card = listed(("https://other.example/rpc", "JSONRPC", "1.0"), (AT + "/rpc", "HTTP_JSON", "1.0"))
    assert chosen(card)[0] == ("/rpc", "HTTP+JSON", "1.0")


def test_a_tenant_is_kept() -> None:
    entry = {"url": AT, "protocolBinding": "JSONRPC", "protocolVersion": "1.0", "tenant": "t"}
    assert interfaces({"supportedInterfaces": [entry]}, CARD, AT) == (
        Interface(url=AT, binding="JSONRPC", dialect="1.0", tenant="t"),
    )


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        (
            {
                "url": AT + "/rpc",
                "protocolVersion": "0.3.0",
                "preferredTransport": "HTTP+JSON",
                "additionalInterfaces": [
                    {"url": AT + "/rpc", "transport": "HTTP+JSON"},
                    {"url": AT + "/2", "transport": "JSONRPC"},
                    {"url": AT + "/3", "transport": "GRPC"},
                ],
            },
            [("/rpc", "HTTP+JSON", "0.3"), ("/2", "JSONRPC", "0.3"), ("grpcs://host.example:443", "GRPC", "0.3")],
        ),
        ({"url": AT + "/rpc"}, [("/rpc", "JSONRPC", "0.3")]),
        ({"url": "/rpc", "protocolVersion": "0.2.5"}, [("https://host.example/rpc", "JSONRPC", "0.3")]),
        ({"url": "../x", "protocolVersion": "1.0"}, [("/x", "JSONRPC", "1.0")]),
        # KAOS: the card's own URL is what the host thinks of itself
        (
            {"url": "http://localhost:8000", "protocolVersion": "0.3.0", "supportedProtocols": ["jsonrpc"]},
            [("/", "JSONRPC", "kaos")],
        ),
        ({"url": "http://localhost:8000", "supportedProtocols": []}, []),
        ({"url": AT, "supportedInterfaces": {"a2a": AT + "/7", "mcp": AT}}, [("/7", "JSONRPC", "beeos")]),
        (
            {**listed((AT, "JSONRPC", "1.0")), "url": AT, "securitySchemes": {"agentApiKey": {}, "userJwt": {}}},
            [("", "JSONRPC", "beeos")],
        ),
        (
            {"url": "http://host.example/a2a", "provider": {"organization": "x"}},
            [("http://host.example/a2a", "JSONRPC", "protoagent")],
        ),
        (
            {
                "url": AT + "/rpc",
                "protocolVersion": "0.3.0",
                "capabilities": {"extensions": [{"uri": "https://protolabs.ai/a2a/ext/cost-v1"}]},
            },
            [("/rpc", "JSONRPC", "protoagent")],
        ),
        (
            {"url": "https://host.example/a2a", "protocolVersion": "0.3.0"},
            [("https://host.example/a2a", "JSONRPC", "0.3")],
        ),
        (
            {"url": "https://host.example/api/v1/a2a/7", "version": "1.0.0"},
            [("https://host.example/api/v1/a2a/7", "JSONRPC", "evoai")],
        ),
        ({"name": "a"}, []),
        ({"url": "ftp://host.example/"}, []),
        ({"url": "https://user:secret@host.example/"}, []),
    ],
)
def test_what_a_card_stands_for(card: dict[str, Any], expected: list[tuple[str, str, str]]) -> None:
    assert chosen(card) == expected


@pytest.mark.parametrize(
    ("named", "reached", "used"),
    [
        ("http://0.0.0.0:8000/rpc?x=1", "http://localhost:8000", "http://localhost:8000/rpc?x=1"),
        ("http://localhost:8000", "http://127.0.0.1:8000", "http://127.0.0.1:8000/"),
        ("http://127.0.0.1:8001/", "http://127.0.0.1:8000", "http://127.0.0.1:8001/"),
        ("https://localhost:8000/", "http://127.0.0.1:8000", "https://localhost:8000/"),
        ("http://localhost:8000/", "http://host.example:8000", "http://localhost:8000/"),
    ],
)
def test_another_name_of_this_machine_is_the_place_where_the_card_was(named: str, reached: str, used: str) -> None:
    (found,) = interfaces({"url": named}, f"{reached}/.well-known/agent-card.json", reached)
    assert found.url == used


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just(AT),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["url", "supportedInterfaces", "supportedProtocols", "protocolVersion", "transport", "a2a", "uri"]
            )
            | st.sampled_from(
                ["additionalInterfaces", "capabilities", "extensions", "securitySchemes", "protocolBinding"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["url", "supportedInterfaces", "supportedProtocols", "capabilities"]), JSON))
def test_any_card_gives_endpoints_that_can_be_called_or_none(card: dict[str, Any]) -> None:
    for each in interfaces(card, CARD, AT):
        assert each.to.origin
