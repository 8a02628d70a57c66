"""A fault in the settings is told at start, in one line that names the fix."""

import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from msgspec.structs import replace

from dragoman.config import Config
from dragoman.server import StartError, serving
from dragoman.testing.agents import echo
from tests.ports import kept_port

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
DEADLINE_S = 120.0


def told(*flags: str, lacks: str = "") -> str:
    """The stderr of `dragoman serve` when it cannot start; without the package `lacks`, if one is given."""
    block = f"sys.modules[{lacks!r}] = None; " if lacks else ""
    program = f"import sys; {block}from dragoman.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "serve", "examples/agents.py", "--port", "0", "--log-level", "error", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 1, done
    return done.stderr


def test_a_store_without_its_driver() -> None:
    assert told("--store", "postgresql://me:secret@127.0.0.1/tasks", lacks="asyncpg") == (
        "dragoman: store 'postgresql://me:…@127.0.0.1/tasks' needs the extra postgres: run pip install "
        "'dragoman[postgres]', or pip install '.[postgres]' in a clone\n"
    )


def test_a_bus_without_its_driver(postgres_url: str) -> None:
    assert told("--store", postgres_url, "--bus", "nats://127.0.0.1:4222", lacks="nats") == (
        "dragoman: bus 'nats://…' needs the extra nats: run pip install 'dragoman[nats]', or pip install "
        "'.[nats]' in a clone\n"
    )


def test_a_database_that_does_not_answer() -> None:
    url = f"postgresql://me@127.0.0.1:{kept_port()}/tasks"
    said = told("--store", url)
    assert said.startswith(f"dragoman: PostgreSQL at {url} cannot be reached (")
    assert said.endswith("): start it, or correct the url\n")
    assert said.count("\n") == 1


def test_a_database_that_is_not_there(postgres_url: str) -> None:
    said = told("--store", postgres_url.rpartition("/")[0] + "/nothing")
    assert "has no database 'nothing': run CREATE DATABASE" in said
    assert said.count("\n") == 1


async def test_a_bus_that_is_down_is_named_and_the_server_starts(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"nats://127.0.0.1:{kept_port()}"
    async with serving(Config(port=0, store=postgres_url, bus=url), [echo]):
        told = [record.getMessage() for record in caplog.records if record.name == "dragoman.bus"]
    assert len(told) == 1
    assert f"bus {url} is down" in told[0]
    assert "asks the store every second" in told[0]


@pytest.mark.parametrize(("host", "shown"), [("0.0.0.0", socket.gethostname()), ("127.0.0.1", "127.0.0.1")])
async def test_a_replica_that_listens_everywhere_is_shown_under_its_machines_name(
    postgres_url: str, host: str, shown: str
) -> None:
    config = Config(port=0, store=postgres_url, host=host, authentication="required")
    async with serving(config, [echo]) as url, aiohttp.ClientSession() as http:
        port = urlsplit(url).port
        async with http.get(f"http://127.0.0.1:{port}/ready") as answer:
            replicas = (await answer.json())["cluster"]["replicas"]
        assert [replica["address"] for replica in replicas] == [f"http://{shown}:{port}"]


async def test_a_folder_for_files_that_others_do_not_see(postgres_url: str, tmp_path: Path) -> None:
    config = Config(port=0, store=postgres_url, files=f"folder:{tmp_path / 'one'}")
    async with serving(config, [echo]), serving(config, [echo]):
        with pytest.raises(StartError, match="is not the folder that the other replicas use"):
            async with serving(replace(config, files=f"folder:{tmp_path / 'other'}"), [echo]):
                pass


async def test_a_replica_without_the_folder_of_the_others_warns(
    postgres_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = Config(port=0, store=postgres_url)
    async with serving(config, [echo]):
        assert "files is not set" not in caplog.text
    async with serving(replace(config, files=f"folder:{tmp_path}"), [echo]):
        assert "files is not set" not in caplog.text
        async with serving(config, [echo]):
            assert "files is not set, and other replicas of this store keep large files in a folder" in caplog.text
