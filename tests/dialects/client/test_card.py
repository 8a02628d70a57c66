"""Other agents' cards, of any version."""

from typing import Any

import msgspec
import pytest
from hypothesis import given

from dragoman.dialects.cards import hybrid
from dragoman.dialects.client.card import decode_card
from dragoman.dialects.client.scalars import Unfit
from dragoman.dialects.v03.card import card as card_03
from dragoman.model.card import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    AgentSkill,
)
from tests.dialects import spoken


def endpoint(binding: str, version: str, url: str = "https://example.com/agents/echo") -> AgentInterface:
    return AgentInterface(url=url, protocol_binding=binding, protocol_version=version)


OURS = AgentCard(
    name="Echo",
    description="Says it again",
    supported_interfaces=(
        endpoint("JSONRPC", "1.0"),
        endpoint("HTTP+JSON", "1.0"),
        endpoint("JSONRPC", "0.3"),
        endpoint("HTTP+JSON", "0.3"),
    ),
    version="1.2.0",
    capabilities=AgentCapabilities(
        streaming=True,
        push_notifications=False,
        extended_agent_card=True,
        extensions=(AgentExtension(uri="urn:x", description="X", required=True, params={"a": 1}),),
    ),
    default_input_modes=("text/plain",),
    default_output_modes=("text/plain", "application/json"),
    skills=(AgentSkill(id="s", name="S", description="does s", tags=("t",), examples=("e",), input_modes=("a/b",)),),
    provider=AgentProvider(url="https://example.com", organization="Example"),
    documentation_url="https://example.com/docs",
    icon_url="https://example.com/icon.png",
    security_schemes={"key": {"apiKeySecurityScheme": {"location": "header", "name": "x-api-key"}}},
    security_requirements=({"schemes": {"key": {"list": ["a"]}}},),
)


def test_a_card_of_1_0_is_read_whole() -> None:
    assert decode_card(spoken.builtins(OURS)) == OURS


def test_a_hybrid_card_is_read_as_that_of_1_0_that_it_came_from() -> None:
    assert decode_card(spoken.builtins(hybrid(OURS))) == OURS


def test_a_card_of_0_3_is_read_as_one_with_interfaces_of_0_3() -> None:
    old = [each for each in OURS.supported_interfaces if each.protocol_version == "0.3"]
    assert decode_card(spoken.builtins(card_03(OURS))) == msgspec.structs.replace(OURS, supported_interfaces=tuple(old))


def test_interfaces_may_be_an_object_of_urls() -> None:
    found = decode_card({"name": "b", "supportedInterfaces": {"a2a": "https://a2a.example.com/x", "mcp": "https://m"}})
    assert found.supported_interfaces == (endpoint("JSONRPC", "0.3", "https://a2a.example.com/x"),)


def test_what_is_missing_is_empty() -> None:
    found = decode_card({"name": "bare", "skills": [{"name": "only"}], "capabilities": None})
    assert (found.name, found.version, found.supported_interfaces) == ("bare", "", ())
    assert found.skills == (AgentSkill(id="only", name="only", description="", tags=()),)


@given(spoken.values)
def test_any_json_gives_a_card_or_is_refused(value: Any) -> None:
    if isinstance(value, dict):
        msgspec.json.encode(decode_card(value))
    else:
        with pytest.raises(Unfit):
            decode_card(value)


@given(spoken.values)
def test_any_member_may_be_anything(value: Any) -> None:
    whole = spoken.builtins(OURS) | spoken.builtins(card_03(OURS))
    for name in whole:
        msgspec.json.encode(decode_card({**whole, name: value}))
