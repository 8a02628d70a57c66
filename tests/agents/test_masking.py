"""Secrets are taken out of an upstream's words."""

import pytest

from dragoman.agents.masking import Masking, secrets_in
from dragoman.model.message import Artifact, Part

KEY = "upstream-key-123456"


@pytest.mark.parametrize(
    ("headers", "secrets"),
    [
        ({"x-api-key": KEY}, {KEY}),
        ({"Authorization": f"Bearer {KEY}"}, {KEY}),
        ({"Authorization": "Basic dXM6c2VjcmV0LXdvcmQ="}, {"dXM6c2VjcmV0LXdvcmQ=", "us:secret-word", "secret-word"}),
        ({"Authorization": "Basic §"}, {"§"}),
        ({"Authorization": "Basic dXM6!c2Vj"}, {"dXM6!c2Vj"}),
    ],
)
def test_the_secret_of_a_header_is_known_without_its_scheme(headers: dict[str, str], secrets: set[str]) -> None:
    assert secrets_in(headers) == secrets


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"the key {KEY} is wrong", "the key *** is wrong"),
        (f"{KEY}{KEY}", "******"),
        ("cut in the middle of upstream-key-12…", "cut in the middle of ***…"),
        ("the upstream key", "the upstream key"),
        ("upstream", "upstream"),
    ],
)
def test_a_secret_is_masked_also_where_its_end_was_cut_off(text: str, left: str) -> None:
    assert Masking([KEY]).text(text) == left


def test_a_secret_that_chunks_cut_in_pieces_is_masked_from_where_it_is_recognised() -> None:
    masking = Masking([KEY])
    assert masking.after("the upstream-key-", "123456 is wrong") == "*** is wrong"
    assert masking.after("the upstream-key-12", "34") == "***"
    assert masking.after("uupstream-key-12", "3456!") == "***!"
    assert masking.after("the up", "stream") == "stream"
    assert masking.after("the upstream-key-", "99") == "99"
    assert masking.after("", KEY) == KEY


TOKENS = ("eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOi-caller-of-this.signed", "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOi-issued.signature")
"""Two tokens of one issuer, which begin alike."""


@pytest.mark.parametrize("token", TOKENS)
def test_of_tokens_that_begin_alike_each_is_masked_to_its_end(token: str) -> None:
    masking = Masking(TOKENS)
    assert masking.text(f"you showed {token}.") == "you showed ***."
    for cut in range(1, len(token)):
        before, rest = token[:cut], f"{token[cut:]}."
        said = masking.text(before) + masking.text(masking.after(before, rest))
        assert said == (before if cut < 24 else "***") + "***."


def test_in_urls_and_json_it_is_spelled_otherwise() -> None:
    masking = Masking(['a/b"c\\d+e'])
    assert masking.text("https://host/?key=a%2Fb%22c%5Cd%2Be") == "https://host/?key=***"
    assert masking.text('{"key": "a/b\\"c\\\\d+e"}') == '{"key": "***"}'


def test_all_of_an_artifact_is_looked_at() -> None:
    masking = Masking([KEY])
    parts = (
        Part(text=KEY),
        Part(data={KEY: [KEY, 1, None]}),
        Part(raw=b"-" + KEY.encode(), filename=KEY),
        Part(url=f"https://host/{KEY}", metadata={"a": KEY}),
    )
    masked = masking.artifact(Artifact(artifact_id="a", parts=parts, name=KEY, metadata={"a": {"b": KEY}}))
    assert KEY not in repr(masked)
    assert masked.parts[2].raw == b"-***"
    assert masked.parts[1].data == {"***": ["***", 1, None]}


def test_what_holds_none_is_the_same_object() -> None:
    artifact = Artifact(artifact_id="a", parts=(Part(text="x"), Part(data=None), Part(raw=b"\0\xff")), name="n")
    for masking in (Masking([KEY]), Masking([]), Masking(["abc"])):
        assert masking.artifact(artifact).parts is artifact.parts
