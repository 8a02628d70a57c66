"""A program's output is told apart into text and events, however its bytes are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.agents.program.wire import (
    MEANINGS,
    Asks,
    Fails,
    GivesArtifact,
    Mode,
    Progresses,
    SaysData,
    SaysFile,
    SaysText,
    Statement,
    StatementParser,
    Titles,
    UnreadableLine,
    Uses,
    parse_line,
)

LINE_BYTES = 1000


def read(mode: Mode, *pieces: bytes) -> list[Statement]:
    """All that comes out, neighbouring text joined."""
    output = StatementParser(mode, LINE_BYTES)
    out: list[Statement] = []
    for says in [*(says for piece in pieces for says in output.feed(piece)), *output.end()]:
        if isinstance(says, SaysText) and out and isinstance(out[-1], SaysText):
            out[-1] = SaysText(out[-1].text + says.text)
        else:
            out.append(says)
    return out


def test_text_is_text() -> None:
    assert read("auto", b"one\ntwo") == [SaysText("one\ntwo")]


def test_a_line_that_says_something_is_no_text() -> None:
    written = b'before\n{"progress": [1, 3], "text": "a"}\n{"ask": "Which?"}\nafter'
    assert read("auto", written) == [
        SaysText("before\n"),
        Progresses((1, 3), "a"),
        Asks("Which?"),
        SaysText("after"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        b'{"no": "such"}',
        b'{"text": "a", "data": 1}',
        b"{",
        b"{}",
        b'x {"ask": "?"}',
        b' {"ask": "?"}',
        b'[{"ask": "?"}]',
        b'{"ask": "?"} and more',
        b'{"a": ' * 5000,
        b'{"text": "\xff"}',
    ],
)
def test_what_only_looks_like_it_is_text(line: bytes) -> None:
    output = StatementParser("auto", 100_000)
    assert [*output.feed(line + b"\n"), *output.end()] == [SaysText(line.decode(errors="replace") + "\n")]


def test_a_last_line_needs_no_newline() -> None:
    assert read("auto", b'{"fail": "no"}') == [Fails("no")]


def test_text_does_not_wait_for_the_end_of_its_line() -> None:
    output = StatementParser("auto", LINE_BYTES)
    assert list(output.feed(b"Tok")) == [SaysText("Tok")]
    assert list(output.feed(b"en")) == [SaysText("en")]


def test_half_a_character_waits_for_the_other_half() -> None:
    output = StatementParser("text", LINE_BYTES)
    assert list(output.feed("é".encode()[:1])) == []
    assert list(output.feed("é".encode()[1:])) == [SaysText("é")]


def test_half_a_character_at_the_end_is_replaced() -> None:
    assert read("text", b"a\xc3") == [SaysText("a�")]


def test_in_text_everything_is_text() -> None:
    assert read("text", b'{"ask": "?"}\n') == [SaysText('{"ask": "?"}\n')]


def test_in_lines_every_line_says_something() -> None:
    assert read("lines", b'{"text": "a"}\n\n {"data": null}\r\n') == [SaysText("a"), SaysData(None)]
    with pytest.raises(UnreadableLine, match="line 2 is not"):
        read("lines", b'{"text": "a"}\nHello\n')


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (b'{"progress": "half"}', "progress"),
        (b'{"progress": [1, -2]}', "progress"),
        (b'{"usage": {"inptu": 1}}', "inptu"),
        (b'{"file": {"raw": "not base64"}}', "raw"),
        (b'{"artifact": {"parts": []}}', "parts"),
        (b'{"text": 5}', "text"),
        (b'{"artifact": {"id": "", "parts": [{"text": "a"}]}}', "id"),
        (b'{"data": ' + b"[" * 100 + b"]" * 100 + b"}", "data: .*nested deeper"),
    ],
)
def test_a_wrong_value_is_said_with_its_line_and_place(line: bytes, names: str) -> None:
    with pytest.raises(UnreadableLine, match=f"line 2: .*{names}"):
        read("auto", b"a\n" + line + b"\n")


def test_what_came_before_a_wrong_value_is_told_first() -> None:
    told: list[Statement] = []
    with pytest.raises(UnreadableLine):
        for says in StatementParser("auto", LINE_BYTES).feed(b'{"progress": [1, 2]}\ntext\n{"progress": 1}\n'):
            told.append(says)
    assert told == [Progresses((1, 2)), SaysText("text\n")]


def test_a_line_has_a_bound_and_text_has_none() -> None:
    with pytest.raises(UnreadableLine, match="line 1 is longer than max_line_bytes"):
        read("auto", b'{"text": "' + b"a" * LINE_BYTES)
    assert read("auto", b"a" * (3 * LINE_BYTES)) == [SaysText("a" * (3 * LINE_BYTES))]


def test_files_artifacts_and_usage_are_read() -> None:
    file = parse_line(b'{"file": {"raw": "aGk=", "filename": "a.txt", "mediaType": "text/plain"}}')
    assert isinstance(file, SaysFile)
    assert (file.file.part().raw, file.file.part().media_type) == (b"hi", "text/plain")
    artifact = parse_line(b'{"artifact": {"name": "n", "append": true, "parts": [{"text": "t"}, {"data": [1]}]}}')
    assert isinstance(artifact, GivesArtifact)
    assert [piece.part().text for piece in artifact.artifact.parts] == ["t", None]
    assert parse_line(b'{"task_title": "t"}') == Titles("t")
    usage = parse_line(b'{"usage": {"input": 3, "output": 4}}')
    assert isinstance(usage, Uses)


def test_no_two_meanings_share_their_keys() -> None:
    assert all(keys == frozenset(keys) for keys in MEANINGS)
    assert len({frozenset(keys) for keys in MEANINGS}) == len(MEANINGS)


PIECES = st.lists(
    st.sampled_from(
        [b'{"text": "\xc3\xa9"}\n', b'{"ask": 1}', b"\n", b"{", b'{"data": {"a": 1}}\n', "é€🙂".encode(), b"a", b"\xff"]
    )
    | st.binary(max_size=4),
    max_size=12,
)


@given(PIECES, st.sampled_from(["auto", "text"]), st.data())
def test_it_does_not_matter_how_the_bytes_are_cut(pieces: list[bytes], mode: Mode, data: st.DataObject) -> None:
    whole = b"".join(pieces)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    parts = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    by_byte = [whole[at : at + 1] for at in range(len(whole))]
    assert read(mode, *parts) == read(mode, whole) == read(mode, *by_byte)
