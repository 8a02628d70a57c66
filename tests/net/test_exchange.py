"""HTTP/1.1 without a network: the bytes of the request; answers that come whole, byte by byte, or as an enemy likes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.net.errors import BadUrl
from dragoman.net.exchange import HEAD_BYTES_MAX, HttpAnswer, NotHttp, Want, encode_request
from dragoman.net.target import Target, target

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def read(*pieces: bytes, body_max: int = 100) -> HttpAnswer:
    answer = HttpAnswer(body_max)
    for piece in pieces:
        answer.receive(piece)
    return answer


def one_by_one(answer: bytes) -> list[bytes]:
    return [bytes([byte]) for byte in answer]


# -- requests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "line", "host"),
    [
        ("http://example.org", "POST / HTTP/1.1", "example.org"),
        ("http://Example.org:80/a?b=c", "POST /a?b=c HTTP/1.1", "example.org"),
        ("https://example.org:443/", "POST / HTTP/1.1", "example.org"),
        ("https://example.org:80/", "POST / HTTP/1.1", "example.org:80"),
        ("http://example.org:8080//x", "POST //x HTTP/1.1", "example.org:8080"),
        ("http://example.org.:8080/?", "POST / HTTP/1.1", "example.org:8080"),
        ("http://[2001:db8::1]/", "POST / HTTP/1.1", "[2001:db8::1]"),
        ("https://[2001:db8::1]:8443/", "POST / HTTP/1.1", "[2001:db8::1]:8443"),
        ("http://192.0.2.1:81?x", "POST /?x HTTP/1.1", "192.0.2.1:81"),
    ],
)
def test_the_path_and_the_host_are_written_as_the_url_says(url: str, line: str, host: str) -> None:
    lines = encode_request(target(url), {}, b"").decode().split("\r\n")
    assert lines[:2] == [line, f"Host: {host}"]


def test_a_request_has_its_headers_and_its_length_and_asks_for_plain_bytes() -> None:
    head, _, body = encode_request(target("http://a/"), {"x-a": "b ü", "x-c": ""}, b"12345").partition(b"\r\n\r\n")
    assert body == b"12345"
    lines = head.decode().split("\r\n")[2:]
    assert lines[0].startswith("User-Agent: dragoman/")
    assert lines[1:] == ["Accept: */*", "Accept-Encoding: identity", "Content-Length: 5", "x-a: b ü", "x-c: "]


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [("GET", None, None), ("DELETE", None, None), ("GET", b"", b"0"), ("PUT", None, b"0"), ("POST", b"12", b"2")],
)
def test_a_length_is_said_where_there_is_or_could_be_a_body(
    method: str, body: bytes | None, length: bytes | None
) -> None:
    head, _, sent = encode_request(target("http://a/"), {}, body, method).partition(b"\r\n\r\n")
    assert head.startswith(f"{method} / HTTP/1.1\r\n".encode())
    assert sent == (body or b"")
    assert (b"Content-Length: %b" % (length or b"") in head) == (length is not None)


@pytest.mark.parametrize("method", ["", "GET /x HTTP/1.1\r\nX:", "get", "PO ST"])
def test_a_method_that_is_none_is_not_written(method: str) -> None:
    with pytest.raises(BadUrl):
        encode_request(target("http://a/"), {}, None, method)


def test_what_is_said_of_every_request_is_said_once() -> None:
    said = {"ACCEPT": "text/plain", "User-agent": "x", "accept-encoding": "identity", "x-accept": "y"}
    lines = encode_request(target("http://a/"), said, None, "GET").decode().split("\r\n")[2:-2]
    assert lines == [f"{name}: {value}" for name, value in said.items()]


@pytest.mark.parametrize("value", ["b\r\nX-C: d", "b\n", "\r", "b\0c", "\x7f", "\x1b[0m", "\ud800"])
def test_a_value_that_would_be_more_than_one_line_is_not_written(value: str) -> None:
    with pytest.raises(BadUrl, match="a header"):
        encode_request(target("http://a/"), {"x-a": "b", "x-b": value}, b"")


@pytest.mark.parametrize(
    "name", ["", "x-a\r\nx-b", "x-a\n", "x-a\nx-b", "x a", "x-a:", "x-a: b", "x(a)", "ü", "x\0", " a"]
)
def test_a_name_that_is_none_is_not_written(name: str) -> None:
    with pytest.raises(BadUrl, match="a name"):
        encode_request(target("http://a/"), {"x-a": "b", name: "c"}, b"")


@pytest.mark.parametrize(
    "name", ["host", "Content-Length", "TRANSFER-ENCODING", "connection", "upgrade", "expect", "te"]
)
def test_what_says_how_the_call_is_made_is_not_for_the_caller(name: str) -> None:
    with pytest.raises(BadUrl, match="a name"):
        encode_request(target("http://a/"), {name: "1"}, b"")
    encode_request(target("http://a/"), {f"{name}-x": "1", f"x-{name}": "1"}, b"")


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://a/x y", "a"),
        ("http://a/x\r\nX-A: b", "a"),
        ("http://a/\x00", "a"),
        ("http://a/ü", "a"),
        ("http://a", "a"),
        ("http://a/", "a\r\nX-A: b"),
        ("http://a/", "a b"),
        ("http://a/", "ü"),
        ("http://a/", ""),
    ],
)
def test_a_target_that_nobody_checked_is_checked_before_it_is_written(url: str, host: str) -> None:
    with pytest.raises(BadUrl):
        encode_request(Target(url=url, scheme="http", host=host, port=80, origin="x"), {}, b"")


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3))
def test_a_request_has_the_lines_it_was_given_or_is_refused(headers: dict[str, str]) -> None:
    try:
        written = encode_request(target("http://a/"), headers, b"{}")
    except BadUrl:
        return
    head, _, body = written.partition(b"\r\n\r\n")
    assert body == b"{}"
    lines = head.split(b"\r\n")[6:]
    assert lines == [f"{name}: {value}".encode() for name, value in headers.items()]
    assert b"\n" not in b"".join(lines)


# -- answers -----------------------------------------------------------------------------------------------------------

CLEAN = [
    pytest.param(OK, 200, b"ok", id="length"),
    pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", id="nothing"),
    pytest.param(b"HTTP/1.1 500\r\nContent-Length: 0\r\n\r\n", 500, b"", id="no reason"),
    pytest.param(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n", 200, b"ok", id="chunks"
    ),
    pytest.param(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nok\r\n0\r\nRetry-After: 9\r\n\r\n",
        200,
        b"ok",
        id="trailers",
    ),
    pytest.param(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 E\r\nRetry-After: 9\r\n\r\n" + OK, 200, b"ok", id="interim"
    ),
    pytest.param(b"HTTP/1.1 410 Gone\r\nX-A:\r\nContent-Length:0\r\n\r\n", 410, b"", id="no spaces"),
]
"""Whole answers after which the connection may be used again."""

LAST = [
    pytest.param(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", id="says close"),
    pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", id="1.0"),
    pytest.param(b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", id="1.0 that would keep"),
    pytest.param(b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", id="1.0 in chunks"),
    pytest.param(OK + b"\r\n", id="an empty line after it"),
    pytest.param(OK + b"H", id="a byte after it"),
    pytest.param(OK + OK, id="two"),
    pytest.param(OK + b"HTTP/1.1 500 X\r\nRetry-After: 1\r\nContent-Length: 3\r\n\r\nbad", id="two that differ"),
    pytest.param(OK + b"HTTP/1.1 101 X\r\n\r\n", id="another protocol after it"),
    pytest.param(OK + b"\0\0\0", id="garbage after it"),
]
"""Whole answers of 200 and `ok` after which it may not."""


@pytest.mark.parametrize(("answer", "status", "body"), CLEAN)
def test_an_answer_is_read_whole_and_byte_by_byte(answer: bytes, status: int, body: bytes) -> None:
    whole, by_bytes = read(answer), read(*one_by_one(answer))
    for read_so in (whole, by_bytes, *[read(answer, body_max=1000) for _ in range(2)]):  # known bytes are not parsed
        assert (read_so.status, read_so.body, read_so.over, read_so.clean) == (status, body, True, True)
        assert (read_so.headers, read_so.held, read_so.whole) == (whole.headers, len(body), True)
        assert "retry-after" not in read_so.headers


def test_an_answer_of_known_bytes_shares_nothing_with_the_one_before() -> None:
    first = read(OK, body_max=1000)
    first.headers["retry-after"] = "1"
    assert first.take() == b"ok"
    again = read(OK, body_max=1000)
    assert (again.headers, again.body) == ({"content-length": "2"}, b"ok")
    again.receive(b"H")
    assert not again.clean
    assert read(OK, body_max=1000).clean


@pytest.mark.parametrize(("answer", "status", "body"), CLEAN)
def test_an_answer_is_over_with_its_last_byte_and_not_before(answer: bytes, status: int, body: bytes) -> None:
    for end in range(len(answer)):
        assert not read(answer[:end]).over
        assert not read(answer[:end]).clean


@pytest.mark.parametrize("answer", LAST)
def test_what_leaves_anything_behind_is_an_answer_and_the_last_one(answer: bytes) -> None:
    for pieces in ([answer], one_by_one(answer), [answer[:-1], answer[-1:]]):
        read_so = read(*pieces, body_max=1000)
        assert (read_so.status, read_so.body, read_so.over, read_so.clean) == (200, b"ok", True, False)
        assert "retry-after" not in read_so.headers


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nok", b"ok", id="until the connection ends"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok", b"ok", id="is_compressed"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", b"0\r\n\r\n", id="coded as nobody knows"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", b"ok", id="too short"),
    ],
)
def test_an_answer_without_an_end_has_its_status_and_what_came(answer: bytes, body: bytes) -> None:
    for pieces in ([answer], one_by_one(answer)):
        read_so = read(*pieces)
        assert (read_so.status, read_so.body, read_so.over, read_so.clean) == (200, body, False, False)


def test_a_body_that_breaks_the_rules_does_not_undo_the_status() -> None:
    answer = read(b"HTTP/1.1 202 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"zzz\r\n")
    assert (answer.status, answer.over, answer.clean) == (202, True, False)


def test_headers_are_in_lower_case_and_the_last_of_a_name_counts() -> None:
    answer = read(b"HTTP/1.1 503 X\r\nRETRY-After: 1\r\nretry-after: \xff2\r\nContent-Length: 0\r\n\r\n")
    assert answer.headers == {"retry-after": "ÿ2", "content-length": "0"}


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\r\n" + OK,
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"POST / HTTP/1.1\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"RTSP/1.0 200 OK\r\n\r\n",
        b"ICE/1.0 200 OK\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/0.9 200 OK\r\n\r\n",
        b"HTTP/1.1 000 X\r\n\r\n",
        b"HTTP/1.1 99 X\r\n\r\n",
        b"HTTP/1.1 2000 X\r\n\r\n",
        b"HTTP/1.1 -200 X\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX A: b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: b\rX: c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: \0\r\n\r\n",
    ],
)
def test_what_is_no_answer_is_told_from_one(answer: bytes) -> None:
    for pieces in ([answer], one_by_one(answer)):
        with pytest.raises(NotHttp):
            read(*pieces)


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 ", b"HTTP/1.1 200 OK\r\n" + b"X"])
def test_a_head_has_a_limit(start: bytes) -> None:
    fits = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: "
    fits += b"a" * (HEAD_BYTES_MAX - len(fits) - 4) + b"\r\n\r\n"
    assert len(fits) == HEAD_BYTES_MAX
    assert read(fits + b"ok").clean
    with pytest.raises(NotHttp):
        read(fits[:-4] + b"a\r\n\r\nok")
    with pytest.raises(NotHttp):
        read(start + b"a" * HEAD_BYTES_MAX)
    with pytest.raises(NotHttp):
        read(start, *[b"a" * 1000] * 66)


def test_interim_answers_without_end_have_the_same_limit() -> None:
    with pytest.raises(NotHttp):
        read(*[b"HTTP/1.1 102 Processing\r\n\r\n"] * 3000)


def test_of_a_body_so_much_is_kept_and_so_much_more_is_read() -> None:
    fits = read(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n", *[b"x" * 1000] * 60, body_max=1500)
    assert (fits.body, fits.clean) == (b"x" * 1500, True)
    large = read(b"HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n", *[b"x" * 1000] * 66, body_max=1500)
    assert (large.body, large.over, large.clean) == (b"x" * 1500, True, False)


def test_what_comes_after_an_answer_is_over_spoils_it() -> None:
    answer = read(OK)
    assert answer.clean
    answer.receive(b"\r\n")
    assert (answer.clean, answer.status) == (False, 200)


# -- answers of which the body counts ----------------------------------------------------------------------------------

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"


@pytest.mark.parametrize("want", [Want.ALL, Want.PIECES])
@pytest.mark.parametrize(("answer", "status", "body"), CLEAN)
def test_a_whole_answer_is_whole_for_whoever_wants_its_body(
    answer: bytes, status: int, body: bytes, want: Want
) -> None:
    for pieces in ([answer], one_by_one(answer)):
        got = HttpAnswer(100, want)
        for piece in pieces:
            assert not got.whole
            got.receive(piece)
        assert (got.status, got.body, got.over, got.whole, got.clean) == (status, body, True, True, True)


def test_the_end_of_the_connection_is_the_end_of_a_body_that_has_no_other_and_of_no_other_body() -> None:
    for head, whole in (
        (b"HTTP/1.1 200 OK\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n", False),
        (b"HTTP/1.1 200 OK\r\nX-A: b\r\n", False),
    ):
        answer = HttpAnswer(100, Want.ALL)
        answer.receive(head + (b"ok" if head.endswith((b"\n\r\n", b"3\r\n")) else b""))
        answer.end()
        assert (answer.whole, answer.over, answer.clean) == (whole, whole, False)


def test_a_body_that_breaks_the_rules_is_over_and_not_whole() -> None:
    for want in (Want.ALL, Want.PIECES):
        answer = HttpAnswer(100, want)
        answer.receive(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\nzzz\r\n")
        answer.end()
        assert (answer.status, answer.over, answer.whole, answer.clean) == (200, True, False, False)


def test_a_body_that_is_too_large_is_given_up_at_once_where_its_length_is_said() -> None:
    told, found, fits = HttpAnswer(1, Want.ALL), HttpAnswer(1, Want.ALL), HttpAnswer(2, Want.ALL)
    told.receive(HEAD)
    found.receive(b"HTTP/1.1 200 OK\r\n\r\nab")
    fits.receive(HEAD + b"ok")
    assert [(each.large, each.over, each.whole) for each in (told, found, fits)] == [
        (True, True, False),
        (True, True, False),
        (False, True, True),
    ]


@pytest.mark.parametrize("header", [b"Content-Encoding: gzip", b"Transfer-Encoding: gzip, chunked"])
def test_a_body_that_is_compressed_is_given_up(header: bytes) -> None:
    answer = HttpAnswer(100, Want.ALL)
    answer.receive(b"HTTP/1.1 200 OK\r\n" + header + b"\r\n\r\n")
    assert (answer.is_compressed, answer.over, answer.clean) == (True, True, False)


@pytest.mark.parametrize("want", list(Want))
@pytest.mark.parametrize(("after", "clean"), [(b"", True), (b"ok", False)])
def test_the_answer_to_head_has_no_body_whatever_it_says(want: Want, after: bytes, clean: bool) -> None:
    for pieces in ([HEAD + after], one_by_one(HEAD + after)):
        answer = HttpAnswer(100, want, method="HEAD")
        for piece in pieces:
            answer.receive(piece)
        assert (answer.status, answer.body, answer.whole, answer.clean) == (200, b"", True, clean)


@pytest.mark.parametrize("status", [204, 304])
def test_answers_that_have_no_body_are_over_with_their_head(status: int) -> None:
    answer = HttpAnswer(100, Want.ALL)
    answer.receive(b"HTTP/1.1 %d X\r\nContent-Length: 5\r\n\r\n" % status)
    assert (answer.status, answer.whole, answer.clean) == (status, True, True)


def test_what_is_taken_of_an_answer_in_pieces_is_held_no_longer() -> None:
    answer = HttpAnswer(want=Want.PIECES)
    answer.receive(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n")
    assert (answer.held, answer.take(), answer.held, answer.take()) == (2, b"ab", 0, b"")
    answer.receive(b"1\r\nc\r\n0\r\n\r\n")
    assert (answer.take(), answer.whole, answer.clean) == (b"c", True, True)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked",
        b"HTTP/1.1 404 N\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\nX-a: 2",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip",
        b"HTTP/1.1 200 OK\r\nContent-Length: 25",
        b"HTTP/1.1 204 N\r\nTransfer-Encoding: chunked",
        b"HTTP/1.1 103 E\r\nTransfer-Encoding: chunked",
        b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nUpgrade: x\r\nConnection: upgrade",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: " + b"a" * 1024,
    ],
)
@pytest.mark.parametrize(
    "body",
    [
        b"2\r\nok\r\n3;x=y\r\nabc\r\n0\r\nX-A: 9\r\n\r\n",
        b"2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n",
        b"z\r\n",
        b"2\r\no",
    ],
)
def test_a_head_that_is_known_is_read_as_it_was(head: bytes, body: bytes) -> None:
    data = head + b"\r\n\r\n" + body
    found = []
    for cut in (one_by_one(data), [data], [data], [data[:-1], data[-1:]]):
        answer = HttpAnswer(want=Want.PIECES)
        try:
            for piece in cut:
                answer.receive(piece)
        except NotHttp:
            found.append(None)
        else:
            found.append(
                (answer.status, answer.headers, answer.body, answer.held, answer.over, answer.whole, answer.clean)
            )
    assert found == [found[0]] * 4


def test_answers_of_one_head_share_nothing() -> None:
    data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
    for _ in range(2):
        answer = HttpAnswer(want=Want.PIECES)
        answer.receive(data)
        assert (answer.headers, answer.take(), answer.clean) == ({"transfer-encoding": "chunked"}, b"a", True)
        answer.headers["retry-after"] = "1"


PIECES = st.binary(max_size=20) | st.sampled_from(
    [
        OK,
        OK[:-1],
        b"\r\n",
        b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.0 301 X\r\n",
        b"HTTP/1.1 100 C\r\n\r\n",
        b"HTTP/1.1 101 X\r\n\r\n",
        b"HTTP/1.1 204 N\r\n\r\n",
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"Upgrade: x\r\nConnection: upgrade\r\n",
        b"0\r\n\r\n",
        b"3\r\nabc\r\n",
    ]
)


@given(st.lists(PIECES, max_size=8), st.sampled_from([Want.ALL, Want.PIECES]), st.sampled_from(["GET", "HEAD"]))
def test_what_is_whole_does_not_depend_on_how_it_was_cut(pieces: list[bytes], want: Want, method: str) -> None:
    data = b"".join(pieces)
    found = set()
    for cut in ([data], pieces, one_by_one(data)):
        answer = HttpAnswer(100, want, method=method)
        try:
            for piece in cut:
                if piece:
                    answer.receive(piece)
            answer.end()
        except NotHttp:
            assert not answer.whole
        assert answer.over or not answer.whole
        assert answer.whole or not answer.clean
        found.add((answer.whole, answer.clean, answer.body if answer.whole else b""))
    assert len(found) == 1


@given(st.lists(PIECES, max_size=8), st.sampled_from([100, 1000]))
def test_any_bytes_are_an_answer_or_none_however_they_are_cut(pieces: list[bytes], body_max: int) -> None:
    data = b"".join(pieces)
    found = []
    for cut in ([data], pieces, one_by_one(data)):
        answer = HttpAnswer(body_max)
        try:
            for piece in cut:
                if piece:
                    answer.receive(piece)
        except NotHttp:
            found.append((0, b"", False))
            assert not answer.clean
        else:
            assert answer.over or not answer.clean
            assert 200 <= answer.status <= 999 or not answer.over
            found.append((answer.status, answer.body, answer.clean))
    assert len({each[0] for each in found if each[0]}) <= 1
    assert len({each[2] for each in found}) == 1, "how it was cut decided whether the connection is kept"
