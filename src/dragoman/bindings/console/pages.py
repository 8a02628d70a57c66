"""The files of the console, as `make console` builds them into the package.

Invariant: nothing is served that is not among these files, and no page runs a script, or loads anything, that the
server does not serve itself.
"""

import gzip
import mimetypes
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable

from msgspec import Struct

from dragoman.bindings.http import NOT_SNIFFED, HttpRequest, HttpResponse
from dragoman.bindings.request import Header
from dragoman.model.errors import NotFound

BUILT = "built"
"""The folder with the built files, beside this module. Builds of the wheel contain it; a checkout has to make it."""

INDEX = "index.html"

COMPRESSED_MIN = 1024
"""Smaller files are not worth compressing."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data: blob:; media-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types svelte-trusted-html"
)
"""Scripts and styles come from the server's own files, never from markup; Svelte alone may make markup from text."""

SAFETY: tuple[Header, ...] = (
    (b"content-security-policy", POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    NOT_SNIFFED,
)

FOREVER: Header = (b"cache-control", b"public, max-age=31536000, immutable")
"""Names of assets contain a hash of their content."""

ASK_AGAIN: Header = (b"cache-control", b"no-cache")

UNBUILT = b"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>Dragoman console</title></head>
<body>
<h1>The console has not been built</h1>
<p>This server was installed or runs from a checkout without the built pages. Install Node 20.19 or newer, run
<code>make console</code> in the checkout, install from it again if you used <code>pip install</code>, and restart the
server. Packages made by <code>make dist</code> contain the built pages.</p>
<p>The admin API below <code>/admin/v1</code> and the command <code>dragoman admin</code> work without them.</p>
</body>
</html>
"""


class BuiltFile(Struct, frozen=True):
    """A file as it is sent: its bytes and its headers."""

    body: bytes
    headers: tuple[Header, ...]
    tag: bytes


class Pages:
    """The built files by their path below `/console`. `built` tells whether there are any."""

    def __init__(self, found: Mapping[str, bytes]) -> None:
        """`found` are the contents by relative path, with `index.html` among them; empty if nothing was built."""
        self.built = INDEX in found
        self._files = {name: _file(name, body) for name, body in (found or {INDEX: UNBUILT}).items()}
        self._compressed = lru_cache(None)(_compress)  # when it is first asked for: the start of a server need not wait

    @classmethod
    def load(cls) -> "Pages":
        """Read the files in the package."""
        folder = files(__package__).joinpath(BUILT)
        return cls(dict(_walk(folder, "")) if folder.is_dir() else {})

    def answer(self, request: HttpRequest) -> HttpResponse:
        """A file, or the page itself for the path of a view. Raises NotFound for a missing asset."""
        segments = request.route.segments
        name = "/".join(segments)
        file = self._files.get(name)
        if file is None:
            if segments[:1] == ("assets",):
                raise NotFound("no such file of the console")
            file = self._files[INDEX]  # the page finds the view by its URL
        headers = [*file.headers, (b"etag", file.tag), (b"vary", b"Accept-Encoding")]
        if request.headers.get(b"if-none-match") == file.tag:
            return HttpResponse(304, headers, b"")
        body = file.body
        if "gzip" in (item.partition(";")[0] for item in request.items(b"accept-encoding")):
            body = self._compressed(file.body)
            if body is not file.body:
                headers.append((b"content-encoding", b"gzip"))
        return HttpResponse(200, [*headers, (b"content-length", b"%d" % len(body))], body)


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for each in folder.iterdir():
        if each.is_dir():
            found += _walk(each, f"{prefix}{each.name}/")
        else:
            found.append((prefix + each.name, each.read_bytes()))
    return found


def _file(name: str, body: bytes) -> BuiltFile:
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    if kind.startswith("text/") or kind == "application/javascript":
        kind += "; charset=utf-8"
    return BuiltFile(
        body=body,
        headers=((b"content-type", kind.encode()), FOREVER if name.startswith("assets/") else ASK_AGAIN, *SAFETY),
        tag=f'"{sha256(body).hexdigest()[:32]}"'.encode(),
    )


def _compress(body: bytes) -> bytes:
    """Compress a file; it stays as it is if that is not worth it."""
    if len(body) < COMPRESSED_MIN:
        return body
    packed = gzip.compress(body, 9, mtime=0)
    return packed if len(packed) < len(body) else body
