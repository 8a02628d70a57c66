"""An Egress describes the TLS that it agreed on with a server."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dragoman.net.egress import Egress
from dragoman.net.errors import Unreachable
from dragoman.net.tls import ClientTls
from tests.certificates import Authority

DAY_S = 86_400.0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
async def port(authority: Authority) -> AsyncIterator[int]:
    """A server whose certificate is valid for five days."""
    issued = authority.issue()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(issued.cert, issued.key)

    async def read_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
        except ConnectionError:
            pass  # the client aborts what it has only looked at
        finally:
            writer.close()

    async with await asyncio.start_server(read_all, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1]


async def test_the_version_and_the_end_of_the_certificate_are_known(authority: Authority, port: int) -> None:
    egress = Egress(tls=ClientTls(ca_file=str(authority.path)))
    session = await egress.reach(f"https://127.0.0.1:{port}/", timeout_s=60.0)
    assert session is not None
    assert session.version == "TLSv1.3"
    assert session.expires_s is not None
    assert 4 * DAY_S < session.expires_s - time.time() < 5 * DAY_S + 60
    await egress.close()


async def test_a_certificate_that_is_not_verified_has_no_end(port: int) -> None:
    egress = Egress(tls=ClientTls(verify=False))
    session = await egress.reach(f"https://127.0.0.1:{port}/", timeout_s=60.0)
    assert session is not None
    assert session.expires_s is None
    await egress.close()


async def test_a_certificate_that_is_not_trusted_is_the_cause_of_the_error(port: int) -> None:
    egress = Egress()
    with pytest.raises(Unreachable) as caught:
        await egress.reach(f"https://127.0.0.1:{port}/", timeout_s=60.0)
    assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)
    await egress.close()
