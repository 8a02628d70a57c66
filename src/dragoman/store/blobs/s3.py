"""A bucket that speaks S3 as a blob store: `prefix/<task>/<digest>`.

Invariant: no other module imports the driver, obstore: Rust's object_store, with hardly a dependency.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from dragoman.store.blobs.api import OTHERS, OWNER, PIECE_BYTES, TASK_ID, BlobAddress, BlobError, BlobMissing

if TYPE_CHECKING:
    from obstore import ObjectMeta

T = TypeVar("T")

THREADS = 16
"""Most concurrent calls; further ones wait."""

CONNECT_TIMEOUT_S = 5.0
CALL_TIMEOUT_S = 120.0
"""The timeout of one request, also of one part of a large upload or download."""

RETRY_FOR = timedelta(seconds=20)
RETRIES_MAX = 4
"""The driver's retries. Its own default is three minutes, which is long for a caller who waits."""

DELETE_AT_ONCE = 1000
"""The most objects that S3 deletes in one request (DeleteObjects)."""


class S3Blobs:
    """The BlobStore protocol on a bucket. `files` is like `s3://bucket/prefix?endpoint=https://…&region=…`.

    The credentials come from the environment (AWS_ACCESS_KEY_ID …), or from the machine's role.
    """

    def __init__(self, files: str) -> None:
        url = urlsplit(files)
        options = dict(parse_qsl(url.query))
        self._shown = f"s3://{url.netloc}{url.path}"
        self._prefix = unquote(url.path).strip("/")
        given: dict[str, Any] = {}
        if (endpoint := options.get("endpoint")) is not None:
            given["endpoint"] = endpoint.rstrip("/")
        if (region := options.get("region")) is not None:
            given["region"] = region
        if options.get("path_style") == "false":
            given["virtual_hosted_style_request"] = True
        self._threads = ThreadPoolExecutor(THREADS, "dragoman-s3")
        self._store = S3Store(
            url.netloc,
            prefix=self._prefix or None,
            client_options={
                "allow_http": endpoint is not None and endpoint.startswith("http://"),
                "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
                "timeout": timedelta(seconds=CALL_TIMEOUT_S),
            },
            retry_config={"max_retries": RETRIES_MAX, "retry_timeout": RETRY_FOR},
            **given,
        )

    async def open(self, owner: str = "") -> None:
        """Write into the bucket. Raises BlobError, naming the settings to check."""

        def attempt() -> str:
            try:
                found = bytes(obstore.get(self._store, OWNER).bytes()).decode(errors="replace")
            except FileNotFoundError:
                found = ""
            obstore.put(self._store, OWNER, (found or owner).encode(), use_multipart=False)
            return found

        try:
            found = await self._done(attempt)
        except (BaseError, OSError) as error:
            raise BlobError(
                f"files {self._shown!r} cannot be written to: {_why(error)}. Look at the bucket's name, at endpoint "
                "and region, and at AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            ) from error
        if found not in ("", owner):
            raise BlobError(f"files {self._shown!r} {OTHERS}")

    async def close(self) -> None:
        """Refuse further calls. Those under way end, or time out."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def put(self, place: BlobAddress, content: bytes) -> None:
        """See the protocol."""
        with _translate_errors(place):
            await self._done(obstore.put, self._store, str(place), content)

    async def get(self, place: BlobAddress) -> bytes:
        """See the protocol."""
        with _translate_errors(place):
            return await self._done(lambda: bytes(obstore.get(self._store, str(place)).bytes()))

    async def size(self, place: BlobAddress) -> int:
        """See the protocol."""
        with _translate_errors(place):
            return (await self._done(obstore.head, self._store, str(place)))["size"]

    async def pieces(self, place: BlobAddress, start: int, stop: int) -> AsyncGenerator[bytes, None]:
        """See the protocol. If a request ends early, as it may for a slow reader, another one goes on from there."""
        with _translate_errors(place):
            while start < stop:
                before = start
                try:
                    stream = await self._done(self._opened, place, start, stop)
                    while start < stop and (piece := await self._done(next, stream, None)) is not None:
                        start += len(piece)
                        yield bytes(piece)
                except (BaseError, OSError):
                    if start == before:
                        raise
                if start == before:
                    raise BlobError(f"file {place} is shorter than it was")

    def _opened(self, place: BlobAddress, start: int, stop: int) -> Iterator[bytes]:
        found = obstore.get(self._store, str(place), options={"range": (start, stop)})
        return iter(found.stream(min_chunk_size=PIECE_BYTES))

    async def elsewhere(self, place: BlobAddress, expires_s: float) -> str | None:
        """A URL of the bucket, signed by the driver."""
        with _translate_errors(place):
            return await self._done(lambda: obstore.sign(self._store, "GET", str(place), timedelta(seconds=expires_s)))

    async def tasks(self, before_ms: int) -> AsyncIterator[str]:
        """See the protocol. Objects are listed in the order of their names, so that those of a task come in a row."""
        task_id, newest_ms = "", 0.0
        pages = iter(obstore.list(self._store))
        while (page := await self._listed(pages)) is not None:
            for each in page:
                owner = each["path"].partition("/")[0]
                if owner != task_id:
                    if task_id and newest_ms < before_ms:
                        yield task_id
                    task_id, newest_ms = owner if TASK_ID.fullmatch(owner) else "", 0.0
                newest_ms = max(newest_ms, each["last_modified"].timestamp() * 1000)
        if task_id and newest_ms < before_ms:
            yield task_id

    async def _listed(self, pages: "Iterator[Sequence[ObjectMeta]]") -> "Sequence[ObjectMeta] | None":
        try:
            return await self._done(next, pages, None)
        except (BaseError, OSError) as error:
            raise BlobError(f"{self._shown} cannot be listed: {_why(error)}") from error

    async def delete(self, task_id: str) -> None:
        """See the protocol."""

        def remove() -> None:
            for found in obstore.list(self._store, prefix=task_id, chunk_size=DELETE_AT_ONCE):
                obstore.delete(self._store, [each["path"] for each in found])

        try:
            await self._done(remove)
        except (BaseError, OSError) as error:
            raise BlobError(f"the files of task {task_id} cannot be deleted: {_why(error)}") from error

    async def _done(self, call: Callable[..., T], *given: Any) -> T:
        """Call the driver on one of our threads, so that none of the driver's threads needs the interpreter afterwards.

        The driver's own coroutines end on a thread of its runtime, which kills a process that is exiting (issue 40 of
        pyo3-async-runtimes, open as of 2026).
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: call(*given))


@contextmanager
def _translate_errors(place: BlobAddress) -> Iterator[None]:
    """Raise the driver's errors as those of the protocol."""
    try:
        yield
    except FileNotFoundError as error:
        raise BlobMissing(f"there is no file {place}") from error
    except (BaseError, OSError) as error:
        raise BlobError(f"file {place}: {_why(error)}") from error


def _why(error: Exception) -> str:
    """The first line of the driver's message, which is many lines long."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
