"""Another agent's card as the profile of ours."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.agents.remote.card import BYTES_MAX, DEPTH_MAX, SKILLS_MAX, profile_of, untold_text
from dragoman.model.card import AgentSkill, Profile

OURS = Profile(id="partner", name="Ours", description="Says little", version="1", skills=())


def test_a_card_of_1_0_is_taken_over_but_for_where_it_is_and_who_may_call() -> None:
    card = {
        "name": "Weather",
        "description": "Forecasts",
        "version": "3.2",
        "supportedInterfaces": [{"url": "https://host/a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": False, "extensions": [{"uri": "https://e/x", "required": True}]},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["application/json"],
        "skills": [{"id": "f", "name": "F", "description": "d", "tags": ["t"], "examples": ["e"]}],
        "securitySchemes": {"key": {"apiKeySecurityScheme": {"name": "x-api-key", "location": "header"}}},
        "signatures": [{"protected": "a", "signature": "b"}],
    }
    profile = profile_of(card, OURS)
    assert (profile.id, profile.name, profile.version, profile.streams) == ("partner", "Weather", "3.2", True)
    assert profile.skills == (AgentSkill(id="f", name="F", description="d", tags=("t",), examples=("e",)),)
    assert (profile.input_modes, profile.output_modes) == (("text/plain",), ("application/json",))
    assert [extension.uri for extension in profile.extensions] == ["https://e/x"]
    assert "host" not in repr(profile)


def test_kinds_of_parts_in_place_of_media_types_are_understood() -> None:
    profile = profile_of({"name": "old", "defaultInputModes": ["text", "file", "data"]}, OURS)
    assert profile.input_modes == ("text/plain", "*/*", "application/json")


def test_text_is_taken_whatever_the_card_says_and_nothing_else_is_added() -> None:
    card = {
        "name": "FastA2A",
        "defaultInputModes": ["application/json"],
        "skills": [
            {"id": "json", "inputModes": ["application/json"]},
            {"id": "any"},
            {"id": "t", "inputModes": ["text"]},
        ],
    }
    profile = profile_of(card, OURS)
    assert profile.input_modes == ("application/json", "text/plain")
    modes = {skill.id: skill.input_modes for skill in profile.skills}
    assert modes == {"json": ("application/json", "text/plain"), "any": (), "t": ("text/plain",)}
    assert untold_text(card) == ("application/json",)
    assert untold_text({"defaultInputModes": ["text"]}) == untold_text({}) == ()


@pytest.mark.parametrize("card", [{}, {"name": 3, "skills": "none"}, {"skills": [{}, {"id": ""}, 7]}])
def test_what_a_card_does_not_say_is_as_the_file_says(card: dict[str, Any]) -> None:
    profile = profile_of(card, OURS)
    assert (profile.id, profile.description, profile.skills) == ("partner", "Says little", ())


def test_a_skill_is_taken_once_and_not_too_many() -> None:
    card = {"name": "x", "skills": [{"id": f"s{number % 500}"} for number in range(1000)]}
    assert len({skill.id for skill in profile_of(card, OURS).skills}) == SKILLS_MAX


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "immoderate",
    [
        {"description": "d" * BYTES_MAX},
        {"capabilities": {"extensions": [{"uri": "https://e/x", "params": {"deep": nested(DEPTH_MAX)}}]}},
        {"capabilities": {"extensions": [{"uri": "https://e/x", "params": {"deep": nested(900)}}]}},
    ],
)
def test_a_card_that_would_be_a_burden_to_our_callers_is_not_taken_over(immoderate: dict[str, Any]) -> None:
    assert profile_of({"name": "Theirs", **immoderate}, OURS) == OURS


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
KEYS = st.sampled_from(["name", "description", "skills", "capabilities", "provider", "defaultInputModes", "version"])


@given(st.dictionaries(KEYS, VALUES))
def test_any_object_gives_a_profile(card: dict[str, Any]) -> None:
    assert profile_of(card, OURS).id == "partner"
