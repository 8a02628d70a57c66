"""Cards: the hybrid at the well-known paths, and the pure one of 1.0 (A2A 1.0 §4.4, A2A 0.3 §5.5)."""

import json
from typing import Any

import msgspec
import pytest

from dragoman.dialects import cards, evoai, protoagent, v03, v1
from dragoman.dialects.client.card import decode_card
from dragoman.dialects.v03.card import card as card_03
from dragoman.dialects.v03.card import proto_card as proto_card_03
from dragoman.model.card import AgentCard, AgentExtension, AgentProvider, AgentSkill, Profile
from dragoman.model.operations import GetExtendedCard

PROFILE = Profile(
    id="echo",
    name="Echo",
    description="Says it again",
    version="1.2.3",
    skills=(AgentSkill(id="echo", name="Echo", description="Says it again", tags=("test",), examples=("hi",)),),
    provider=AgentProvider(url="https://example.com", organization="Example"),
    documentation_url="https://example.com/docs",
    icon_url="https://example.com/icon.png",
    extensions=(AgentExtension(uri="urn:example:x", description="X", required=True, params={"a": 1}),),
)
AT = cards.interfaces("http://127.0.0.1:7870", "/agents/echo")

CARD_1_FIELDS = {
    *("name", "description", "supportedInterfaces", "version", "capabilities", "defaultInputModes"),
    *("defaultOutputModes", "skills", "provider", "documentationUrl", "iconUrl", "securitySchemes"),
    *("securityRequirements", "signatures"),
}
REQUIRED_03 = {
    *("protocolVersion", "name", "description", "url", "version", "capabilities", "defaultInputModes"),
    *("defaultOutputModes", "skills"),
}


def well_known(profile: Profile = PROFILE, **more: Any) -> dict[str, Any]:
    """The card for callers who name no version, or the `form` of one."""
    form, offer = more.pop("form", ""), more.get("offer", cards.PLAIN)
    card = cards.card(profile, more.pop("at", AT), **more)
    decoded = json.loads(msgspec.json.encode(cards.well_known(card, form, offer).document))
    assert isinstance(decoded, dict)
    return decoded


@pytest.mark.parametrize(
    ("base", "mount", "rpc", "rest"),
    [
        ("http://h:1", "/", "http://h:1/", "http://h:1"),
        ("http://h:1/", "/", "http://h:1/", "http://h:1"),
        ("https://h/a2a/", "/agents/echo", "https://h/a2a/agents/echo", "https://h/a2a/agents/echo"),
        ("https://h/a2a", "/", "https://h/a2a/", "https://h/a2a"),
    ],
)
def test_every_version_and_binding_of_the_mount_is_named(base: str, mount: str, rpc: str, rest: str) -> None:
    named = [(at.protocol_version, at.protocol_binding, at.url) for at in cards.interfaces(base, mount)]
    assert named == [
        ("1.0", "JSONRPC", rpc),
        ("1.0", "HTTP+JSON", rest),
        ("0.3", "JSONRPC", rpc),
        ("0.3", "HTTP+JSON", rest),
    ]


def test_the_hybrid_has_all_of_the_1_0_card() -> None:
    hybrid = well_known()
    pure = json.loads(msgspec.json.encode(cards.with_modes(cards.card(PROFILE, AT))))
    pure["capabilities"] = hybrid["capabilities"]
    assert {name: hybrid[name] for name in pure} == pure
    assert msgspec.convert(hybrid, AgentCard).supported_interfaces == AT


def test_every_skill_of_the_hybrid_has_modes_which_are_its_own_or_those_of_the_card() -> None:
    own = msgspec.structs.replace(PROFILE.skills[0], id="own", input_modes=("image/png",))
    profile = msgspec.structs.replace(PROFILE, skills=(*PROFILE.skills, own))
    shown = [(skill["inputModes"], skill["outputModes"]) for skill in well_known(profile)["skills"]]
    modes = list(PROFILE.input_modes), list(PROFILE.output_modes)
    assert shown == [modes] * len(PROFILE.skills) + [(["image/png"], modes[1])]


def test_the_hybrid_has_what_0_3_clients_need() -> None:
    hybrid = well_known()
    assert hybrid.keys() >= REQUIRED_03
    assert hybrid["protocolVersion"] == "0.3.0"
    assert (hybrid["url"], hybrid["preferredTransport"]) == ("http://127.0.0.1:7870/agents/echo", "JSONRPC")
    assert {each["transport"]: each["url"] for each in hybrid["additionalInterfaces"]} == {
        "JSONRPC": "http://127.0.0.1:7870/agents/echo",
        "HTTP+JSON": "http://127.0.0.1:7870/agents/echo",
    }
    assert hybrid["supportsAuthenticatedExtendedCard"] is False
    assert all("tags" in skill for skill in hybrid["skills"])


def test_capabilities_are_those_of_both_versions() -> None:
    assert well_known()["capabilities"] == {
        "streaming": True,
        "pushNotifications": False,
        "extendedAgentCard": False,
        "stateTransitionHistory": False,
        "extensions": [{"uri": "urn:example:x", "description": "X", "required": True, "params": {"a": 1}}],
    }


def test_a_card_says_where_there_are_webhooks() -> None:
    offer = cards.CardOffer(pushes=True)
    assert well_known(offer=offer)["capabilities"]["pushNotifications"] is True
    assert card_03(cards.card(PROFILE, AT, offer))["capabilities"]["pushNotifications"] is True


def test_an_agent_that_does_not_stream_says_so() -> None:
    assert well_known(msgspec.structs.replace(PROFILE, streams=False))["capabilities"]["streaming"] is False


def test_a_mount_without_0_3_has_a_card_without_it() -> None:
    only = well_known(at=cards.interfaces("http://h", "/echo", ("1.0",)))
    assert only.keys() <= CARD_1_FIELDS
    assert {at["protocolVersion"] for at in only["supportedInterfaces"]} == {"1.0"}


def test_a_caller_that_names_0_3_where_it_is_not_served_gets_no_card_of_it() -> None:
    at = cards.interfaces("http://h", "/echo", ("1.0",))
    assert well_known(at=at, form="0.3") == well_known(at=at)


def test_a_mount_without_1_0_does_not_name_it() -> None:
    only = well_known(at=cards.interfaces("http://h", "/echo", ("0.3",)))
    assert only["url"] == "http://h/echo"
    assert {at["protocolVersion"] for at in only["supportedInterfaces"]} == {"0.3"}


def test_the_extended_card_is_pure_in_each_version() -> None:
    card = cards.extended_card(PROFILE, AT, cards.CardOffer(extended=True))
    pure = json.loads(v1.JSONRPC.encode_result(GetExtendedCard(), card))
    assert pure.keys() <= CARD_1_FIELDS
    assert pure["capabilities"]["extendedAgentCard"] is True
    assert "stateTransitionHistory" not in pure["capabilities"]
    for dialect in (v03.JSONRPC, v03.REST):
        old = json.loads(dialect.encode_result(GetExtendedCard(), card))
        assert old.keys() >= REQUIRED_03
        assert "supportedInterfaces" not in old
        assert old["supportsAuthenticatedExtendedCard"] is True


HIDDEN = AgentSkill(id="hidden", name="Hidden", description="For friends", tags=("test",))


def test_only_the_extended_card_has_the_extended_skills() -> None:
    profile = msgspec.structs.replace(PROFILE, extended_skills=(HIDDEN,))
    assert [skill.id for skill in cards.extended_card(profile, AT).skills] == ["echo", "hidden"]
    assert [skill.id for skill in cards.card(profile, AT).skills] == ["echo"]
    assert [skill["id"] for skill in well_known(profile)["skills"]] == ["echo"]


def test_protoagents_extended_card_is_the_public_one_with_more_skills() -> None:
    profile = msgspec.structs.replace(PROFILE, extended_skills=(HIDDEN,))
    offer = cards.CardOffer(extended=True, pushes=True, extensions=protoagent.EXTENSIONS)
    public = json.loads(msgspec.json.encode(cards.hybrid(cards.card(profile, AT, offer), offer)))
    for dialect in (protoagent.JSONRPC, protoagent.REST):
        extended = json.loads(dialect.encode_result(GetExtendedCard(), cards.extended_card(profile, AT, offer)))
        assert list(extended) == list(public)
        assert extended == public | {"skills": [*public["skills"], json.loads(msgspec.json.encode(HIDDEN))]}


def test_evo_ais_extended_card_says_what_is_so() -> None:
    at = cards.interfaces("http://h", "/api/v1/a2a/echo", ("0.3",))
    card = cards.extended_card(PROFILE, at, cards.CardOffer(pushes=True))
    extended = json.loads(evoai.JSONRPC.encode_result(GetExtendedCard(), card))
    assert extended["extended"] == {
        "agent_id": "echo",
        "available_endpoints": [
            "http://h/api/v1/a2a/echo",
            "http://h/api/v1/a2a/echo/.well-known/agent.json",
        ],
    }
    capabilities = extended["capabilities"]
    assert (capabilities["multiTurnConversations"], capabilities["fileProcessing"]) == (True, True)
    texts = msgspec.structs.replace(card, default_input_modes=("text/plain", "application/json"))
    extended = json.loads(evoai.JSONRPC.encode_result(GetExtendedCard(), texts))
    assert extended["capabilities"]["fileProcessing"] is False
    assert extended.keys() >= REQUIRED_03


def test_what_is_asked_of_callers_is_on_every_card() -> None:
    schemes = {"apiKey": {"apiKeySecurityScheme": {"location": "header", "name": "x-api-key"}}}
    offer = cards.CardOffer(schemes=schemes, requirements=({"schemes": {"apiKey": {"list": []}}},))
    old, new = {"type": "apiKey", "in": "header", "name": "x-api-key"}, schemes["apiKey"]
    hybrid = well_known(offer=offer)
    assert hybrid["securitySchemes"] == {"apiKey": {**old, **new}}
    assert (hybrid["security"], hybrid["securityRequirements"]) == ([{"apiKey": []}], list(offer.requirements))
    assert decode_card(hybrid).security_schemes == schemes
    only_03 = well_known(offer=offer, at=cards.interfaces("http://h", "/echo", ("0.3",)))
    assert (only_03["securitySchemes"], "securityRequirements" in only_03) == ({"apiKey": old}, False)
    assert well_known(offer=offer, form="0.3")["securitySchemes"] == {"apiKey": old}
    for rest, card in ((v03.REST, proto_card_03), (v03.REST_TWICE, proto_card_03), (v03.REST_TWICE_0_3, card_03)):
        extended = cards.extended_card(PROFILE, AT, offer)
        assert json.loads(rest.encode_result(GetExtendedCard(), extended)) == json.loads(json.dumps(card(extended)))
    pure = json.loads(v1.JSONRPC.encode_result(GetExtendedCard(), cards.extended_card(PROFILE, AT, offer)))
    assert (pure["securitySchemes"], pure["securityRequirements"]) == (schemes, list(offer.requirements))


def test_the_protobuf_json_of_0_3_spells_security_as_1_0_does() -> None:
    schemes = {"apiKey": {"apiKeySecurityScheme": {"location": "header", "name": "x-api-key"}}}
    offer = cards.CardOffer(schemes=schemes, requirements=({"schemes": {"apiKey": {"list": []}}},))
    card = proto_card_03(cards.card(PROFILE, AT, offer))
    assert (card["securitySchemes"], card["security"]) == (schemes, list(offer.requirements))
    assert "stateTransitionHistory" not in card["capabilities"]
    assert card.keys() >= REQUIRED_03


@pytest.mark.parametrize(
    ("version", "form"),
    [("1.0", "1.0"), ("1.0.2", "1.0"), (" 1.1 ", "1.0"), ("0.3", "0.3"), ("0.3.0", "0.3")]
    + [(other, "") for other in (None, "", "0.2", "0.30", "1", "10.0", "2.0", "x")],
)
def test_the_version_that_is_named_chooses_the_form(version: str | None, form: str) -> None:
    assert cards.form_of(version) == form


def test_the_form_of_a_version_is_pure() -> None:
    new, old = well_known(form="1.0"), well_known(form="0.3")
    assert new == json.loads(msgspec.json.encode(cards.card(PROFILE, AT)))
    assert old.keys() >= REQUIRED_03
    assert "supportedInterfaces" not in old
    assert "extendedAgentCard" not in old["capabilities"]


def test_security_is_spelled_as_each_version_has_it() -> None:
    card = msgspec.structs.replace(
        cards.card(PROFILE, AT),
        security_schemes={
            "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
            "bearer": {"httpAuthSecurityScheme": {"scheme": "bearer"}},
        },
        security_requirements=({"schemes": {"key": {"list": []}}}, {"schemes": {"bearer": {"list": ["read"]}}}),
    )
    old = card_03(card)
    assert old["securitySchemes"] == {
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        "bearer": {"type": "http", "scheme": "bearer"},
    }
    assert old["security"] == [{"key": []}, {"bearer": ["read"]}]
