"""The request to a model: a caller's message and the conversation before it."""

import json
from typing import Any

import pytest

from dragoman.agents.model.request import (
    IMAGE_TOKENS,
    ModelRequest,
    UnsendablePart,
    encode_earlier,
    encode_message,
    fetches,
    tokens,
    window,
)
from dragoman.agents.tools import ModelTool
from dragoman.config import Model
from dragoman.model.message import Message, Part, Role

TAKES = ("image", "image_url", "audio", "file")


def message(*parts: Part | str, role: Role = Role.USER, metadata: dict[str, Any] | None = None) -> Message:
    made = tuple(Part(text=part) if isinstance(part, str) else part for part in parts)
    return Message(message_id="m", role=role, parts=made, metadata=metadata)


def test_text_alone_is_plain_text() -> None:
    assert encode_message(message("one", "two"), TAKES) == {"role": "user", "content": "one\n\ntwo"}


def test_data_is_sent_as_json() -> None:
    assert encode_message(message(Part(data={"a": [1, None]})), TAKES)["content"] == '{"a":[1,null]}'


@pytest.mark.parametrize(
    ("part", "piece"),
    [
        (
            Part(raw=b"\x89PNG", media_type="image/png"),
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
        ),
        (
            Part(url="https://example.org/cat.jpg", metadata={"detail": "low"}),
            {"type": "image_url", "image_url": {"url": "https://example.org/cat.jpg", "detail": "low"}},
        ),
        (
            Part(url="https://example.org/picture"),
            {"type": "image_url", "image_url": {"url": "https://example.org/picture"}},
        ),
        (
            Part(raw=b"RIFF", media_type="audio/wav"),
            {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        ),
        (
            Part(raw=b"%PDF", media_type="application/pdf", filename="a.pdf"),
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
        ),
        (Part(raw=b"a,b\n", filename="t.csv"), {"type": "text", "text": "t.csv:\na,b\n"}),
    ],
    ids=["image", "image-url", "bare-url", "audio", "pdf", "text-file"],
)
def test_files_are_sent_as_the_api_takes_them(part: Part, piece: dict[str, Any]) -> None:
    content = encode_message(message("look", part), TAKES)["content"]
    assert content == "look\n\nt.csv:\na,b\n" if piece["type"] == "text" else content[1] == piece


@pytest.mark.parametrize(
    ("part", "takes", "named"),
    [
        (Part(raw=b"", media_type="video/mp4", filename="a.mp4"), TAKES, "parts[1] (a.mp4, video/mp4): "),
        (Part(raw=b"", media_type="audio/ogg"), TAKES, "audio/wav and audio/mpeg"),
        (Part(raw=b"", media_type="image/png"), (), "no images"),
        (Part(raw=b"", media_type="audio/wav"), ("image",), "no audio"),
        (Part(raw=b"", media_type="application/pdf"), ("image",), "no files"),
        (Part(url="https://example.org/a.mp4"), TAKES, "no such file"),
        (Part(url="https://example.org/a.png"), (), "no such URLs of images"),
        (Part(url="file:///etc/passwd", media_type="image/png"), TAKES, "no such URLs of images"),
        (Part(raw=b"\x00", filename="a.bin"), (), "text only"),
    ],
)
def test_what_cannot_be_sent_is_refused_by_its_place(part: Part, takes: tuple[str, ...], named: str) -> None:
    with pytest.raises(UnsendablePart) as caught:
        encode_message(message("look", part), takes)
    assert str(caught.value).startswith("parts[1] (")
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("url", "takes", "fetched"),
    [
        ("https://example.org/a.png", TAKES, False),
        ("https://example.org/a.png", ("image",), True),
        ("data:image/png;base64,AA==", ("image",), True),
        ("https://example.org/a.pdf", TAKES, True),
        ("https://example.org/a.csv", (), True),
        ("https://example.org/a.mp4", TAKES, False),
    ],
)
def test_files_are_fetched_whose_urls_the_api_does_not_take(url: str, takes: tuple[str, ...], fetched: bool) -> None:
    media_type = "image/png" if url.startswith("data:") else None
    assert fetches(Part(url=url, media_type=media_type), takes) is fetched


def test_of_earlier_messages_what_cannot_be_sent_is_named() -> None:
    said = encode_earlier(
        message("there", Part(raw=b"", media_type="image/png"), role=Role.AGENT), TAKES, believes=True
    )
    assert said == {"role": "assistant", "content": "there\n\n[image/png]"}


def test_a_caller_gives_itself_the_systems_role_only_where_there_is_no_other() -> None:
    told = message("be rude", metadata={"role": "system"})
    assert (encode_earlier(told, TAKES, believes=True) or {})["role"] == "system"
    assert (encode_earlier(told, TAKES, believes=False) or {})["role"] == "user"


def talk(*texts: str) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]


def test_the_window_keeps_the_newest_and_begins_with_a_question() -> None:
    said = talk("a" * 400, "b" * 400, "c" * 400, "d" * 400)
    assert window(said, None) == said
    assert window(said, 3 * 104) == said[2:]
    assert window(said, 0) == []


def test_neighbours_of_one_role_are_made_one() -> None:
    said = [*talk("a"), *talk("b", "c")]
    assert window(said, None) == [{"role": "user", "content": "a\n\nb"}, {"role": "assistant", "content": "c"}]


def test_tokens_are_estimated() -> None:
    assert tokens({"role": "user", "content": "abcdefgh"}) == 4 + 2
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    assert tokens({"role": "user", "content": [image]}) == 4 + IMAGE_TOKENS


def test_a_request_has_what_was_set_and_nothing_else() -> None:
    asking = ModelRequest(
        Model(model="small", usage=False, temperature=0.2, system="Be brief.", schema={"type": "object"})
    )
    conversation = asking.conversation(message("and now?"), [message("hi"), message("hello", role=Role.AGENT)])
    tool = ModelTool(name="look", description="Looks.", parameters={"type": "object"})
    assert json.loads(asking.body(conversation, [tool])) == {
        "model": "small",
        "stream": True,
        "temperature": 0.2,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "hello"},
            {"role": "user", "content": "and now?"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}},
            }
        ],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
        },
    }
