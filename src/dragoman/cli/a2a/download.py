"""`dragoman task download`: save the artifacts of a task as files (a2a-cli §5.1).

Invariant: nothing is written outside the folder, whatever names the agent gives, and no file is overwritten unless the
user says so. A file that the agent only names by URL is fetched from public addresses, or from the agent itself.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from mimetypes import guess_extension
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import UNSET, Struct

from dragoman.cli.a2a.failures import Failure
from dragoman.cli.a2a.output import Output, warn
from dragoman.cli.a2a.reference import origin_of
from dragoman.cli.a2a.session import CommandSession
from dragoman.cli.a2a.text import field, identity_lines, json_text
from dragoman.cli.endings import Code
from dragoman.client.http import HttpClient
from dragoman.model.message import Artifact, Part
from dragoman.model.task import Task
from dragoman.net.address import Guard, Resolver
from dragoman.net.egress import Egress
from dragoman.net.errors import EgressError

FETCH_TIMEOUT_S = 300.0

FETCH_BYTES_MAX = 1024 * 1024 * 1024

NAME_LENGTH_MAX = 150
"""The longest name of a file; most file systems take 255 bytes, and a number may follow."""

_UNFIT = re.compile(r"[^\w.+@=,() -]+")
"""The characters that are replaced in names: separators, control characters, and those that shells interpret."""


class Saved(Struct, frozen=True, kw_only=True):
    """A part that was saved."""

    artifact: str
    path: str
    size: int


async def download_task(session: CommandSession, task: Task, folder: Path, *, overwrite: bool) -> None:
    """Save every part of every artifact, and print where. Raises Failure if one cannot be saved."""
    await asyncio.to_thread(_make_folder, folder)
    taken: set[str] = set()
    saved: list[Saved] = []
    async for artifact, name, content in _contents(session, task):
        path = folder / _free_name(name, taken)
        await asyncio.to_thread(_write, path, content, overwrite)
        saved.append(Saved(artifact=artifact, path=str(path), size=len(content)))
    _report(session.output, task, saved)


async def _contents(session: CommandSession, task: Task) -> AsyncIterator[tuple[str, str, bytes]]:
    for artifact in task.artifacts:
        label = artifact.name or artifact.artifact_id
        for part, name in _named_parts(artifact, label):
            if part.text is not None:
                yield label, name, part.text.encode("utf-8", "surrogatepass")
            elif part.raw is not None:
                yield label, name, part.raw
            elif part.data is not UNSET:
                yield label, name, json_text(part.data).encode() + b"\n"
            elif part.url is not None:
                yield label, name, await _fetch(session, part.url)


def _named_parts(artifact: Artifact, label: str) -> Iterator[tuple[Part, str]]:
    """Yield the parts with their names. Chunks of text that follow each other are one text."""
    texts: list[str] = []
    for part in artifact.parts:
        if part.text is not None and part.filename is None:
            texts.append(part.text)
            continue
        if texts:
            yield Part(text="".join(texts)), f"{label}.txt"
            texts = []
        yield part, part.filename or f"{label}{_extension(part)}"
    if texts:
        yield Part(text="".join(texts)), label if Path(label).suffix else f"{label}.txt"


def _extension(part: Part) -> str:
    if part.data is not UNSET:
        return ".json"
    if part.text is not None:
        return ".txt"
    guessed = guess_extension(part.media_type or "") or Path(urlsplit(part.url or "").path).suffix
    return guessed or ".bin"


def _free_name(name: str, taken: set[str]) -> str:
    """Return a plain name of this folder that no part of this task has yet."""
    plain = _UNFIT.sub("_", name.replace("\\", "/").rpartition("/")[2]).strip(" .") or "file"
    stem, suffix = os.path.splitext(plain)
    stem, suffix = stem[:NAME_LENGTH_MAX], suffix[:20]
    number, free = 1, f"{stem}{suffix}"
    while free.lower() in taken:  # some file systems ignore case
        number += 1
        free = f"{stem}-{number}{suffix}"
    taken.add(free.lower())
    return free


async def _fetch(session: CommandSession, url: str) -> bytes:
    """Fetch a file that an artifact names. The agent's own origin may be anywhere; others must be public."""
    own = origin_of(url) == origin_of(session.connection.interface.url)
    resolver = Resolver()
    egress: HttpClient
    egress = pool = (
        Egress(max_answer_bytes=FETCH_BYTES_MAX)
        if own
        else Egress(Guard(), max_answer_bytes=FETCH_BYTES_MAX, resolver=resolver)
    )
    try:
        reply = await egress.request("GET", url, timeout_s=FETCH_TIMEOUT_S)
    except EgressError as error:
        raise Failure(Code.UNREACHABLE, f"the file cannot be fetched: {error}") from error
    finally:
        await pool.close()
        await resolver.close()
    if not reply.ok:
        raise Failure(Code.UNREACHABLE, f"{url} answered with HTTP status {reply.status}, expected 200")
    return reply.body


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(Code.USAGE, f"{folder}: {error.strerror}", hint="name a folder with --dir") from error


def _write(path: Path, content: bytes, overwrite: bool) -> None:
    """Write a file whole or not at all. A link that is there is replaced, not followed."""
    if not overwrite and os.path.lexists(path):
        raise Failure(Code.USAGE, f"{path} exists already", hint="give --overwrite, or another folder with --dir")
    part = path.with_name(f".{path.name}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise Failure(Code.INTERNAL, f"{path}: {error.strerror}", hint="check the folder and its free space") from error


def _report(output: Output, task: Task, saved: Sequence[Saved]) -> None:
    if not saved:
        warn("the task has no artifacts")
    lines = list(identity_lines(task.id, task.context_id, task.status.state))
    lines += [field("Saved", f"{each.path} ({each.size} bytes)") for each in saved]
    files = [{"artifact": each.artifact, "path": each.path, "size": each.size} for each in saved]
    value = {"id": task.id, "contextId": task.context_id, "state": task.status.state, "files": files}
    output.value(value, lines)
