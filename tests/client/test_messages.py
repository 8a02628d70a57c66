"""What a caller may say, and what is no content."""

from typing import Any

import pytest

from dragoman.client.messages import message_of
from dragoman.model.message import Part


@pytest.mark.parametrize("content", ["Hi", Part(text="Hi"), ["Hi"], ("Hi",), [Part(text="Hi")]])
def test_texts_and_parts_are_content(content: Any) -> None:
    assert message_of(content).parts == (Part(text="Hi"),)


@pytest.mark.parametrize("content", [{"size": 5}, [{"size": 5}], ["Look:", {"size": 5}]])
def test_data_is_content_only_as_a_part(content: Any) -> None:
    with pytest.raises(TypeError, match=r"Part\(data=…\)"):
        message_of(content)


@pytest.mark.parametrize("content", [b"bytes", [b"bytes"], 5, [5], None])
def test_anything_else_is_no_content(content: Any) -> None:
    with pytest.raises(TypeError, match="a str, a Part, several of them, or a Message"):
        message_of(content)
