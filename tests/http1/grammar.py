"""Messages in HTTP/1.1, mostly right, with oddities that two readers might take differently.

A message is a set of pieces by name; an oddity replaces one piece, or adds to it. So a test knows why a message is odd,
and the smallest message that has an oddity is the usual one with that oddity alone.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

BODY = b"0\r\n\r\nGET /inside/out HTTP/1.1\r\nHost: x\r\n\r\n"
"""A body that looks like the end of a body and another request to whoever finds its end too early."""

NONE, LENGTH, CHUNKED = "no body", "Content-Length", "chunked"


class Oddity(NamedTuple):
    """Another form of a piece. `framings` are those of the messages that have the piece."""

    name: str
    piece: str
    form: bytes
    framings: tuple[str, ...] = (NONE, LENGTH, CHUNKED)


USUAL = {
    "before": b"",
    "method": b"POST",
    "first gap": b" ",
    "target": b"/a",
    "second gap": b" ",
    "version": b"HTTP/1.1",
    "start end": b"\r\n",
    "host": b"Host: x\r\n",
    "headers": b"",
    "length": b"Content-Length: 42\r\n",
    "coding": b"Transfer-Encoding: chunked\r\n",
    "head end": b"\r\n",
    "size": b"2a",
    "extension": b"",
    "size end": b"\r\n",
    "data end": b"\r\n",
    "last": b"0",
    "last end": b"\r\n",
    "trailers": b"",
    "end": b"\r\n",
    # The pieces of an answer.
    "answer version": b"HTTP/1.1",
    "status": b"200",
    "status gap": b" ",
    "reason gap": b" ",
    "reason": b"OK",
    "interim": b"",
}

assert len(BODY) == 0x2A == 42


@dataclass
class Built:
    """A message of a framing, with oddities."""

    framing: str
    oddities: list[Oddity] = field(default_factory=list)

    @property
    def pieces(self) -> dict[str, bytes]:
        """The usual pieces, but for those that an oddity replaces; headers come one after the other."""
        headers = b"".join(each.form for each in self.oddities if each.piece == "headers")
        return USUAL | {each.piece: each.form for each in self.oddities} | {"headers": headers}

    def request(self) -> bytes:
        """The bytes of a request."""
        of = self.pieces
        start = of["before"] + of["method"] + of["first gap"] + of["target"] + of["second gap"] + of["version"]
        return start + of["start end"] + of["host"] + self._rest(of)

    def answer(self) -> bytes:
        """The bytes of an answer."""
        of = self.pieces
        start = of["interim"] + of["answer version"] + of["status gap"] + of["status"] + of["reason gap"] + of["reason"]
        return start + of["start end"] + self._rest(of)

    def _rest(self, of: dict[str, bytes]) -> bytes:
        """The headers and the body."""
        match self.framing:
            case "Content-Length":
                return of["headers"] + of["length"] + of["head end"] + BODY
            case "chunked":
                chunk = of["size"] + of["extension"] + of["size end"] + BODY + of["data end"]
                last = of["last"] + of["last end"] + of["trailers"] + of["end"]
                return of["headers"] + of["coding"] + of["head end"] + chunk + last
            case _:
                return of["headers"] + of["head end"]


def _table(piece: str, forms: dict[str, bytes], *framings: str) -> list[Oddity]:
    return [Oddity(name, piece, form, framings or (NONE, LENGTH, CHUNKED)) for name, form in forms.items()]


OF_HEADS = [
    *_table(
        "start end",
        {
            "line feed alone ends the start line": b"\n",
            "carriage return alone ends the start line": b"\r",
            "two carriage returns end the start line": b"\r\r\n",
        },
    ),
    *_table(
        "headers",
        {
            "space before a colon": b"X-A : 1\r\n",
            "tab before a colon": b"X-A\t: 1\r\n",
            "space before a name": b" X-A: 1\r\n",
            "folded value": b"X-A: 1\r\n 2\r\n",
            "folded length": b"Content-Length:\r\n 5\r\n",
            "no colon": b"X-A\r\n",
            "no name": b": 1\r\n",
            "no value": b"X-A:\r\n",
            "no space after a colon": b"X-A:1\r\n",
            "spaces around a value": b"X-A: \t 1 \t \r\n",
            "NUL in a value": b"X-A: 1\x002\r\n",
            "NUL in a name": b"X\x00A: 1\r\n",
            "control character in a value": b"X-A: 1\x012\r\n",
            "delete in a value": b"X-A: 1\x7f2\r\n",
            "carriage return in a value": b"X-A: 1\rX-B: 2\r\n",
            "vertical tab at a value's end": b"X-A: 1\x0b\r\n",
            "bytes above 127 in a value": b"X-A: \xc3\xbc\xff\r\n",
            "bytes above 127 in a name": b"X-\xc3\xbc: 1\r\n",
            "brackets in a name": b"X(A): 1\r\n",
            "underscore in a name": b"Content_Length: 5\r\n",
            "line feed alone ends a header": b"X-A: 1\nX-B: 2\r\n",
            "two carriage returns end a header": b"X-A: 1\r\r\n",
            "asks to close": b"Connection: close\r\n",
            "asks to close among others": b"Connection: x, Close\r\n",
            "names its length as a hop's header": b"Connection: Content-Length\r\n",
            "keeps alive": b"Connection: keep-alive\r\n",
        },
    ),
    *_table("head end", {"line feed alone ends the head": b"\n", "carriage return alone ends the head": b"\r"}),
    *_table(
        "headers",
        {
            "same length twice": b"Content-Length: 42\r\n",
            "other length before": b"Content-Length: 5\r\n",
            "chunked as well": b"Transfer-Encoding: chunked\r\n",
            "unknown coding as well": b"Transfer-Encoding: x\r\n",
            "coding without a value as well": b"Transfer-Encoding:\r\n",
        },
        LENGTH,
    ),
    *_table(
        "headers",
        {
            "length as well": b"Content-Length: 5\r\n",
            "length that is none as well": b"Content-Length: x\r\n",
            "chunked twice": b"Transfer-Encoding: chunked\r\n",
            "identity before": b"Transfer-Encoding: identity\r\n",
            "gzip before": b"Transfer-Encoding: gzip\r\n",
        },
        CHUNKED,
    ),
    *_table(
        "length",
        {
            "length with a plus": b"Content-Length: +42\r\n",
            "length with a minus": b"Content-Length: -42\r\n",
            "length in hexadecimal": b"Content-Length: 0x2a\r\n",
            "length with leading zeros": b"Content-Length: 0042\r\n",
            "length with an underscore": b"Content-Length: 4_2\r\n",
            "length with a space inside": b"Content-Length: 4 2\r\n",
            "length with a space after it": b"Content-Length: 42 \r\n",
            "length with a fraction": b"Content-Length: 42.0\r\n",
            "length with digits of another script": "Content-Length: ٤٢\r\n".encode(),
            "same length as a list": b"Content-Length: 42, 42\r\n",
            "other length as a list": b"Content-Length: 42, 5\r\n",
            "length with a comma": b"Content-Length: 42,\r\n",
            "length without a value": b"Content-Length:\r\n",
            "length beyond 64 bits": b"Content-Length: 18446744073709551658\r\n",
            "length of 30 digits": b"Content-Length: 000000000000000000000000000042\r\n",
            "name of the length in capitals": b"CONTENT-LENGTH: 42\r\n",
        },
        LENGTH,
    ),
    *_table(
        "coding",
        {
            "coding in capitals": b"Transfer-Encoding: CHUNKED\r\n",
            "coding in quotes": b'Transfer-Encoding: "chunked"\r\n',
            "coding with a comma": b"Transfer-Encoding: chunked,\r\n",
            "coding after a comma": b"Transfer-Encoding: , chunked\r\n",
            "coding with a parameter": b"Transfer-Encoding: chunked;q=1\r\n",
            "coding with a space after it": b"Transfer-Encoding: chunked \r\n",
            "coding with a vertical tab": b"Transfer-Encoding: \x0bchunked\r\n",
            "coding with a longer name": b"Transfer-Encoding: xchunked\r\n",
            "identity": b"Transfer-Encoding: identity\r\n",
            "identity, then chunked": b"Transfer-Encoding: identity, chunked\r\n",
            "gzip, then chunked": b"Transfer-Encoding: gzip, chunked\r\n",
            "chunked, then gzip": b"Transfer-Encoding: chunked, gzip\r\n",
            "chunked, then identity": b"Transfer-Encoding: chunked, identity\r\n",
            "chunked twice in a list": b"Transfer-Encoding: chunked, chunked\r\n",
            "coding on a folded line": b"Transfer-Encoding:\r\n chunked\r\n",
        },
        CHUNKED,
    ),
]
"""Oddities that requests and answers may have in their heads."""

OF_CHUNKS = [
    *_table(
        "size",
        {
            "size in capitals": b"2A",
            "size with leading zeros": b"000002a",
            "size with a prefix": b"0x2a",
            "size with a plus": b"+2a",
            "size with a minus": b"-2a",
            "size with an underscore": b"2_a",
            "size after a space": b" 2a",
            "size after an empty line": b"\r\n2a",
            "size without a value": b"",
            "size beyond 64 bits": b"1000000000000002a",
            "size of 20 digits": b"0000000000000000002a",
            "size of 21 digits": b"00000000000000000002a",
        },
        CHUNKED,
    ),
    *_table(
        "extension",
        {
            "extension": b";a=b",
            "extension without a value": b";a",
            "extension in quotes": b';a="b;c"',
            "extension with a space": b"; a=b",
            "extension after a space": b" ;a=b",
            "space after a size": b" ",
            "tab after a size": b"\t",
            "extension with a line feed": b";a\nb",
            "extension with a carriage return": b";a\rb",
            "extension with a NUL": b";a\x00b",
            "extension without a name": b";",
            "extension with a length": b";Content-Length=5",
        },
        CHUNKED,
    ),
    *_table(
        "size end",
        {
            "line feed alone ends a size": b"\n",
            "carriage return alone ends a size": b"\r",
            "two carriage returns end a size": b"\r\r\n",
        },
        CHUNKED,
    ),
    *_table(
        "data end",
        {
            "line feed alone ends a chunk": b"\n",
            "carriage return alone ends a chunk": b"\r",
            "nothing ends a chunk": b"",
            "two bytes that are no line end after a chunk": b"ab",
            "byte between a chunk and its end": b"x\r\n",
        },
        CHUNKED,
    ),
    *_table("last", {"last size of many zeros": b"000", "last size after a minus": b"-0"}, CHUNKED),
    *_table("last end", {"line feed alone ends the last size": b"\n"}, CHUNKED),
    *_table(
        "trailers",
        {
            "trailer": b"X-A: 1\r\n",
            "length as a trailer": b"Content-Length: 5\r\n",
            "coding as a trailer": b"Transfer-Encoding: chunked\r\n",
            "space before a trailer's colon": b"X-A : 1\r\n",
            "folded trailer": b"X-A: 1\r\n 2\r\n",
            "trailer without a colon": b"X-A\r\n",
            "line feed alone ends a trailer": b"X-A: 1\n",
        },
        CHUNKED,
    ),
    *_table("end", {"line feed alone ends the trailers": b"\n"}, CHUNKED),
]
"""Oddities of bodies in chunks."""

OF_REQUESTS = [
    *_table(
        "before",
        {
            "empty line before": b"\r\n",
            "two empty lines before": b"\r\n\r\n",
            "line feed before": b"\n",
            "carriage return before": b"\r",
            "space before": b" ",
        },
    ),
    *_table(
        "method",
        {
            "GET": b"GET",
            "DELETE": b"DELETE",
            "unknown method": b"BREW",
            "method in small letters": b"post",
            "method with a mark": b"PO!ST",
            "method with a bracket": b"PO(ST",
            "no method": b"",
            "method of another protocol": b"SETUP",
            "SOURCE": b"SOURCE",
            "PRI": b"PRI",
        },
    ),
    *_table("first gap", {"two spaces after the method": b"  ", "tab after the method": b"\t"}),
    *_table(
        "target",
        {
            "whole URL": b"http://x/a",
            "whole URL without a path": b"http://x",
            "asterisk": b"*",
            "host as a target": b"x:80",
            "target without a slash": b"a",
            "space in the target": b"/a b",
            "bytes above 127 in the target": b"/\xc3\xbc",
            "NUL in the target": b"/\x00a",
            "delete in the target": b"/\x7fa",
            "fragment in the target": b"/a#b",
            "question mark": b"/?a?b",
            "brackets in the target": b'/{a}|\\^`<>"',
            "no target": b"",
            "other scheme": b"ftp://x/a",
            "user in the target": b"http://u@x/a",
        },
    ),
    *_table("second gap", {"two spaces after the target": b"  ", "tab after the target": b"\t"}),
    *_table(
        "version",
        {
            "HTTP/1.0": b"HTTP/1.0",
            "HTTP/1.2": b"HTTP/1.2",
            "HTTP/2.0": b"HTTP/2.0",
            "HTTP/0.9": b"HTTP/0.9",
            "HTTP/1.10": b"HTTP/1.10",
            "HTTP/01.1": b"HTTP/01.1",
            "version in small letters": b"http/1.1",
            "version of another protocol": b"RTSP/1.0",
            "ICE": b"ICE/1.0",
            "space after the version": b"HTTP/1.1 ",
            "no version": b"",
        },
    ),
    *_table(
        "host",
        {
            "no host": b"",
            "two hosts": b"Host: x\r\nHost: x\r\n",
            "empty host": b"Host:\r\n",
            "host with a space": b"Host: x y\r\n",
            "host with a path": b"Host: x/y\r\n",
            "host with a user": b"Host: u@x\r\n",
            "hosts in a list": b"Host: x, y\r\n",
            "host on a folded line": b"Host:\r\n x\r\n",
            "IPv6 host": b"Host: [::1]:80\r\n",
        },
    ),
    *_table(
        "headers",
        {
            "offers HTTP/2": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n",
            "offers a WebSocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
            "offers without a connection header": b"Upgrade: h2c\r\n",
            "waits to be told to go on": b"Expect: 100-continue\r\n",
            "expects something else": b"Expect: x\r\n",
        },
    ),
    *OF_HEADS,
    *OF_CHUNKS,
]

OF_ANSWERS = [
    *_table(
        "interim",
        {
            "interim answer before": b"HTTP/1.1 100 Continue\r\n\r\n",
            "two interim answers before": b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n",
            "interim answer with a length before": b"HTTP/1.1 100 Continue\r\nContent-Length: 2\r\n\r\n",
            "empty line before an answer": b"\r\n",
            "line feed before an answer": b"\n",
            "answer that changes the protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        },
    ),
    *_table(
        "answer version",
        {
            "answer in HTTP/1.0": b"HTTP/1.0",
            "answer in HTTP/1.2": b"HTTP/1.2",
            "answer in HTTP/2.0": b"HTTP/2.0",
            "answer in HTTP/0.9": b"HTTP/0.9",
            "answer's version in small letters": b"http/1.1",
            "answer of another protocol": b"RTSP/1.0",
            "ICY": b"ICY",
            "answer without a minor version": b"HTTP/1",
        },
    ),
    *_table(
        "status",
        {
            "status 204": b"204",
            "status 304": b"304",
            "status 404": b"404",
            "status 599": b"599",
            "status 600": b"600",
            "status 999": b"999",
            "status 099": b"099",
            "status of two digits": b"20",
            "status of four digits": b"2000",
            "status of letters": b"OK2",
            "status with a plus": b"+20",
            "no status": b"",
        },
    ),
    *_table("status gap", {"two spaces before the status": b"  ", "tab before the status": b"\t"}),
    *_table(
        "reason",
        {
            "empty reason": b"",
            "reason with a tab": b"O\tK",
            "reason above 127": b"\xc3\xbc",
            "reason with a control character": b"O\x01K",
            "reason with a NUL": b"O\x00K",
            "reason with a carriage return": b"O\rK",
        },
    ),
    *_table("reason gap", {"no space after the status": b"", "two spaces after the status": b"  "}),
    *OF_HEADS,
    *OF_CHUNKS,
]
