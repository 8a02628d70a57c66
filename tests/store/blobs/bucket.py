"""Two real servers that speak S3, each a process of its own with a bucket `files`.

moto's knows its callers as AWS does and answers ranges; rclone's checks URLs that are signed.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlencode

import aiohttp
import pytest
from msgspec import Struct

ROOT = Path(__file__).parents[3]
BIN = Path(os.environ.get("DRAGOMAN_PEER_S3", ROOT / ".venv-s3")) / "bin"

DEADLINE_S = 60.0
RCLONE_KEY, RCLONE_SECRET = "AKRCLONE", "sk-of-the-test"
POLICY = '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}'
NOBODY = (
    "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/iam/aws4_request, SignedHeaders=host, Signature=0"  # says: IAM
)


class Bucket(Struct, frozen=True):
    """Where a bucket is, and who may use it."""

    endpoint: str
    key: str
    secret: str

    @property
    def files(self) -> str:
        """The setting `files` for it."""
        return f"s3://files/some/prefix?endpoint={self.endpoint}&region=us-east-1"

    def as_owner(self, patch: pytest.MonkeyPatch) -> None:
        """Be who may use it."""
        patch.setenv("AWS_ACCESS_KEY_ID", self.key)
        patch.setenv("AWS_SECRET_ACCESS_KEY", self.secret)


@asynccontextmanager
async def moto() -> AsyncIterator[Bucket]:
    """A bucket of moto's. From the fifth request on it wants to know who asks."""
    async with _running("moto_server", "-H", "127.0.0.1", "-p", "0", INITIAL_NO_AUTH_ACTION_COUNT="4") as endpoint:
        async with aiohttp.ClientSession() as http:

            async def iam(**fields: str) -> str:
                sent = urlencode({**fields, "Version": "2010-05-08"})
                headers = {"Authorization": NOBODY, "Content-Type": "application/x-www-form-urlencoded"}
                async with http.post(f"{endpoint}/", data=sent, headers=headers) as answer:
                    assert answer.status == 200, await answer.text()
                    return await answer.text()

            await iam(Action="CreateUser", UserName="us")
            made = await iam(Action="CreateAccessKey", UserName="us")
            await iam(Action="PutUserPolicy", UserName="us", PolicyName="all", PolicyDocument=POLICY)
            async with http.put(f"{endpoint}/files") as answer:
                assert answer.status == 200
        key, secret = (_only(rf"<{name}>(.*?)</{name}>", made) for name in ("AccessKeyId", "SecretAccessKey"))
        yield Bucket(endpoint, key, secret)


@asynccontextmanager
async def rclone(folder: Path) -> AsyncIterator[Bucket]:
    """A bucket of rclone's, in that folder."""
    (folder / "files").mkdir(parents=True)
    flags = ("--auth-key", f"{RCLONE_KEY},{RCLONE_SECRET}", "--addr", "127.0.0.1:0", "--config", os.devnull)
    async with _running("rclone", "serve", "s3", *flags, str(folder)) as endpoint:
        yield Bucket(endpoint, RCLONE_KEY, RCLONE_SECRET)


@asynccontextmanager
async def _running(name: str, *flags: str, **environment: str) -> AsyncIterator[str]:
    """A process, until the block ends; gives the URL that it says it listens at."""
    if not (BIN / name).exists():
        pytest.skip("no environment .venv-s3: make peers")
    process = await asyncio.create_subprocess_exec(
        str(BIN / name),
        *flags,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    reading: asyncio.Task[None] | None = None
    try:
        async with asyncio.timeout(DEADLINE_S):
            while line := await process.stdout.readline():
                if found := re.search(rb"http://127\.0\.0\.1:[0-9]+", line):
                    break
            else:
                raise AssertionError(f"{name} ended")
        reading = asyncio.create_task(_read(process.stdout))
        yield found[0].decode()
    finally:
        if process.returncode is None:
            process.kill()
        if reading is not None:
            await reading
        await process.communicate()


async def _read(stream: asyncio.StreamReader) -> None:
    while await stream.read(65536):
        pass


def _only(pattern: str, text: str) -> str:
    (found,) = re.findall(pattern, text)
    return str(found)
