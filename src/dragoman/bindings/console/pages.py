"""The files of the console, as `make console` builds them into the package.

Invariant: nothing is served that is not among these files, and no page runs a script, or loads anything, that the
server does not serve itself. All files that are served are of one build.
"""

import gzip
import mimetypes
from collections.abc import Mapping
from fcntl import LOCK_NB, LOCK_SH, flock
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from msgspec import Struct

from dragoman.bindings.http import NOT_SNIFFED, HttpRequest, HttpResponse
from dragoman.bindings.request import Header
from dragoman.model.errors import NotFound

BUILT = "built"
"""The folder with the built files, beside this module. Builds of the wheel contain it; a checkout has to make it."""

LOCK = "built.lock"
"""The file beside that folder that is locked during a build: see `scripts/serve.py`."""

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

BUILDING = b"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta http-equiv="refresh" content="1"><title>Dragoman console</title></head>
<body>
<h1>The console is being built</h1>
<p>This page becomes the console once that is done, in some ten seconds. The server is at work already.</p>
</body>
</html>
"""


class BuiltFile(Struct, frozen=True):
    """A file as it is sent: its bytes and its headers."""

    body: bytes
    headers: tuple[Header, ...]
    tag: bytes


def being_built(folder: Traversable | None = None) -> bool:
    """Whether a build of the pages in a folder, by default that of the package, is under way."""
    folder = folder or files(__package__).joinpath(BUILT)
    if not isinstance(folder, Path):
        return False
    try:
        with folder.with_name(LOCK).open("rb") as lock:
            flock(lock, LOCK_SH | LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass  # nobody has built here, or this file system has no such locks
    return False


class InstalledPages:
    """The pages in a folder, by default that of the package. They are read again once a build has replaced them."""

    def __init__(self, folder: Traversable | None = None) -> None:
        self._folder = folder or files(__package__).joinpath(BUILT)
        self._build: tuple[int, ...] | None = None
        self._pages: Pages | None = None
        self._refresh()

    def answer(self, request: HttpRequest) -> HttpResponse:
        """A file of the newest build, or a page that says why there is none. Raises NotFound for a missing asset."""
        self._refresh()
        pages = self._pages
        if pages is None:
            pages = Pages({}, BUILDING if being_built(self._folder) else UNBUILT)
        return pages.answer(request)

    def _refresh(self) -> None:
        try:
            index = self._folder.joinpath(INDEX)
            stat = index.stat() if isinstance(index, Path) else None
            build = (stat.st_ino, stat.st_mtime_ns) if stat is not None else (int(self._folder.is_dir()),)
            if build != self._build and build != (0,):
                self._pages, self._build = Pages(dict(_walk(self._folder, ""))), build
        except OSError:
            pass  # there is no build, or it is being replaced: the next request sees the new one


class Pages:
    """The built files by their path below `/console`. `built` tells whether there are any."""

    def __init__(self, found: Mapping[str, bytes], excuse: bytes = UNBUILT) -> None:
        """`found` are the contents by relative path, with `index.html` among them. `excuse` is shown if it is empty."""
        self.built = INDEX in found
        self._files = {name: _file(name, body) for name, body in (found or {INDEX: excuse}).items()}
        self._compressed = lru_cache(None)(_compress)  # when it is first asked for: the start of a server need not wait

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
