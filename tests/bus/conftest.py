"""The servers of the tests of the bus."""

from collections.abc import Iterator

import pytest

from tests.bus.places import Place
from tests.nats import NatsServer


@pytest.fixture(scope="module")
def nats() -> Iterator[NatsServer]:
    with NatsServer() as server:
        yield server


@pytest.fixture(params=["nats", "postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    if request.param == "nats":
        server = request.getfixturevalue("nats")
        return Place(server, server.url, ())
    server = request.getfixturevalue("postgres_server")
    return Place(server, "postgres", (request.getfixturevalue("postgres_url"),))
