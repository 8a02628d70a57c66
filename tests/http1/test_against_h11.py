"""Dragoman and h11 find the same requests and answers in the same bytes: none is two, no body is longer or shorter.

Where one of them refuses what the other takes, `DIFFERENCES` says why. A difference that is not in it fails, and so
does a row that is no longer true.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.conftest import SOAK
from tests.http1.grammar import CHUNKED, LENGTH, NONE, OF_ANSWERS, OF_REQUESTS, Built, Oddity
from tests.http1.readers import Read, Reading, read_answer, read_answer_h11, read_requests, read_requests_h11

EXAMPLES = 5000 if SOAK else 300
NEXT = b"GET /next HTTP/1.1\r\nHost: x\r\n\r\n"

WE, H11 = "we refuse", "h11 refuses"
EITHER_LENGTH = "RFC 9112 §6.3: equal lengths may be taken for one, or refused. Nothing that is used sends two."
FOLDED = "RFC 9112 §5.2: a server refuses a folded line, or reads it as one; a proxy before it might have read two."
LINE_FEED = "RFC 9112 §2.2: a recipient may take a line feed for the end of a line. It does not have to."
CONTROL = "RFC 9110 §5.5: a recipient refuses CR, LF and NUL in a value; other control characters it may keep."
METHOD = "RFC 9110 §9.1: a method that is not known is refused. h11 leaves that to the application."
HOST = "RFC 9112 §3.2: a request with an invalid Host is refused with 400. h11 leaves that to the application."
EMPTY_LINE = "RFC 9112 §2.2: a server should ignore an empty line before a request."
GAPS = "RFC 9112 §3: a recipient may take any white space between the words of a request line."
TARGET = "RFC 9112 §3.2: a target begins with a slash, or is a whole URL, or an asterisk. h11 leaves that to others."
VERSION = "RFC 9112 §2.3: HTTP/1.1 is served, and HTTP/1.0. h11 leaves it to the application to look."
EXTENSION = "RFC 9112 §7.1.1: an extension has a name; white space before it is an error of the past."
TRAILER = "RFC 9110 §6.5.1: a trailer may not say where a message ends."
BOTH = "RFC 9112 §6.3: a message with both is perhaps an attack, and is refused. h11 takes the coding, as it may."


class Difference(NamedTuple):
    """One reader refuses what the other takes, because the RFC leaves it open or one of them is stricter than it."""

    who: str
    why: str


DIFFERENCES = {
    "empty line before": Difference(H11, EMPTY_LINE),
    "two empty lines before": Difference(H11, EMPTY_LINE),
    "line feed before": Difference(H11, EMPTY_LINE),
    "carriage return before": Difference(H11, EMPTY_LINE),
    "unknown method": Difference(WE, METHOD),
    "method in small letters": Difference(WE, METHOD),
    "method with a mark": Difference(WE, METHOD),
    "method of another protocol": Difference(WE, METHOD),
    "PRI": Difference(WE, METHOD),
    "two spaces after the method": Difference(H11, GAPS),
    "two spaces after the target": Difference(H11, GAPS),
    "host as a target": Difference(WE, TARGET),
    "target without a slash": Difference(WE, TARGET),
    "HTTP/1.2": Difference(WE, VERSION),
    "HTTP/2.0": Difference(WE, VERSION),
    "HTTP/0.9": Difference(WE, VERSION),
    "version of another protocol": Difference(
        H11, "RFC 9112 §2.3: the name is HTTP. Our parser knows RTSP too, and reads its bodies alike (httptools 0.9)."
    ),
    "answer in HTTP/1.2": Difference(WE, VERSION),
    "answer in HTTP/2.0": Difference(WE, VERSION),
    "answer in HTTP/0.9": Difference(WE, VERSION),
    "empty host": Difference(WE, HOST),
    "host with a space": Difference(WE, HOST),
    "host with a path": Difference(WE, HOST),
    "host with a user": Difference(WE, HOST),
    "hosts in a list": Difference(WE, HOST),
    "host on a folded line": Difference(WE, FOLDED),
    "space before a name": Difference(WE, FOLDED),
    "folded value": Difference(WE, FOLDED),
    "folded length": Difference(WE, FOLDED),
    "coding on a folded line": Difference(WE, FOLDED),
    "folded trailer": Difference(WE, FOLDED),
    "line feed alone ends the start line": Difference(WE, LINE_FEED),
    "line feed alone ends a header": Difference(WE, LINE_FEED),
    "line feed alone ends the head": Difference(WE, LINE_FEED),
    "line feed alone ends a trailer": Difference(WE, LINE_FEED),
    "line feed alone ends the trailers": Difference(WE, LINE_FEED),
    "control character in a value": Difference(WE, CONTROL),
    "delete in a value": Difference(WE, CONTROL),
    "reason with a NUL": Difference(H11, "RFC 9112 §4: a client should ignore the reason, which has no NUL."),
    "same length twice": Difference(WE, EITHER_LENGTH),
    "same length as a list": Difference(WE, EITHER_LENGTH),
    "length of 30 digits": Difference(H11, "RFC 9110 §8.6: there is no bound on digits; h11 takes 20 at most."),
    "chunked as well": Difference(WE, BOTH),
    "length as well": Difference(WE, BOTH),
    "coding after a comma": Difference(H11, "RFC 9110 §5.6.1: a recipient ignores empty items of a list."),
    "identity": Difference(
        H11, "RFC 9112 §6.3: without chunked at its end an answer's body lasts until the connection closes."
    ),
    "size of 21 digits": Difference(H11, "RFC 9112 §7.1: there is no bound on digits; h11 takes 20 at most."),
    "extension with a space": Difference(WE, EXTENSION),
    "space after a size": Difference(WE, EXTENSION),
    "tab after a size": Difference(WE, EXTENSION),
    "extension without a name": Difference(WE, EXTENSION),
    "extension with a carriage return": Difference(WE, CONTROL),
    "extension with a NUL": Difference(WE, CONTROL),
    "length as a trailer": Difference(WE, TRAILER),
    "coding as a trailer": Difference(WE, TRAILER),
}
TOGETHER = {("extension", "two carriage returns end a size"): Difference(WE, CONTROL)}
"""Differences of messages that have any oddity of a piece together with another oddity by name."""


def one_by_one(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def messages(oddities: Sequence[Oddity]) -> st.SearchStrategy[Built]:
    """Messages with at most two oddities, most of them with none or one."""

    def with_framing(framing: str) -> st.SearchStrategy[Built]:
        fitting = [each for each in oddities if framing in each.framings]
        return st.lists(st.sampled_from(fitting), max_size=2).map(lambda chosen: Built(framing, chosen))

    return st.sampled_from([NONE, LENGTH, CHUNKED]).flatmap(with_framing)


def of_path(read: Read) -> Read:
    """A request by its path and query: what the application is given of a whole URL, and of a fragment."""
    method, space, url = read.start.partition(b" ")
    if not space:  # an answer
        return read
    path = re.sub(rb"#.*", b"", re.sub(rb"^[a-z]+://[^/]*", b"", url))
    return Read(method + b" " + (path or b"/"), read.body)


def compare(ours: Reading, theirs: Reading, built: Sequence[Built]) -> None:
    """Compare what both took; `built` are the messages in the bytes, in order."""
    mine, other = list(ours.read), [of_path(each) for each in theirs.read]
    both = min(len(mine), len(other))
    assert mine[:both] == other[:both]
    if len(mine) == len(other):
        return
    who = WE if len(mine) < len(other) else H11
    odd = [each for message in built[: both + 1] for each in message.oddities]
    names = {each.name for each in odd}
    rows = [row for name, row in DIFFERENCES.items() if name in names]
    rows += [
        row for (piece, name), row in TOGETHER.items() if name in names and any(each.piece == piece for each in odd)
    ]
    assert who in [row.who for row in rows], f"{who}: {sorted(names)}"


@pytest.mark.parametrize("oddity", OF_REQUESTS, ids=lambda oddity: oddity.name)
def test_a_request_with_one_oddity_is_the_same(oddity: Oddity) -> None:
    for framing in oddity.framings:
        built = Built(framing, [oddity])
        data = built.request() + NEXT
        whole = read_requests([data])
        assert read_requests(one_by_one(data)) == whole
        compare(whole, read_requests_h11([data]), [built])


@pytest.mark.parametrize("oddity", OF_ANSWERS, ids=lambda oddity: oddity.name)
def test_an_answer_with_one_oddity_is_the_same(oddity: Oddity) -> None:
    for framing in oddity.framings:
        built = Built(framing, [oddity])
        whole = read_answer([built.answer()])
        assert read_answer(one_by_one(built.answer())).reading == whole.reading
        compare(whole.reading, read_answer_h11([built.answer()]), [built])


@settings(max_examples=EXAMPLES)
@given(st.lists(messages(OF_REQUESTS), min_size=1, max_size=3), st.integers(1, 40))
@example([Built(LENGTH), Built(CHUNKED), Built(NONE)], 7)
def test_requests_are_the_same(built: list[Built], size: int) -> None:
    data = b"".join(each.request() for each in built) + NEXT
    whole = read_requests([data])
    assert read_requests(one_by_one(data)) == whole
    assert read_requests([data[at : at + size] for at in range(0, len(data), size)]) == whole
    compare(whole, read_requests_h11([data]), built)


@settings(max_examples=EXAMPLES)
@given(messages(OF_ANSWERS), st.integers(1, 40))
def test_answers_are_the_same(built: Built, size: int) -> None:
    data = built.answer()
    whole = read_answer([data])
    assert read_answer(one_by_one(data)).reading == whole.reading
    assert read_answer([data[at : at + size] for at in range(0, len(data), size)]).reading == whole.reading
    compare(whole.reading, read_answer_h11([data]), [built])


@settings(max_examples=EXAMPLES)
@given(messages(OF_ANSWERS), st.sampled_from([b"x", b"\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"]))
def test_no_answer_with_bytes_behind_it_leaves_a_clean_connection(built: Built, behind: bytes) -> None:
    for pieces in ([built.answer() + behind], [built.answer(), behind], one_by_one(built.answer() + behind)):
        assert not read_answer(pieces).clean


@pytest.mark.parametrize("name", DIFFERENCES)
def test_each_difference_is_one(name: str) -> None:
    """One of the two refuses the usual message with this oddity alone, in a request or in an answer."""
    who = set[str]()
    for oddity in OF_REQUESTS + OF_ANSWERS:
        for framing in oddity.framings if oddity.name == name else ():
            request, answer = Built(framing, [oddity]).request() + NEXT, Built(framing, [oddity]).answer()
            for ours, theirs in (
                (read_requests([request]), read_requests_h11([request])),
                (read_answer([answer]).reading, read_answer_h11([answer])),
            ):
                if len(ours.read) != len(theirs.read):
                    who.add(WE if len(ours.read) < len(theirs.read) else H11)
    assert who == {DIFFERENCES[name].who}


def test_oddities_are_named_once() -> None:
    for table in (OF_REQUESTS, OF_ANSWERS):
        assert len({each.name for each in table}) == len(table)
    assert DIFFERENCES.keys() <= {each.name for each in OF_REQUESTS + OF_ANSWERS}
