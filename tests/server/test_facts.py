"""What operators are told of this server."""

from collections.abc import Sequence
from typing import Any

from dragoman.bindings.streams import Streams
from dragoman.engine.switches import Switches
from dragoman.server.facts import ServedAgents


class Silent:
    """A stream that nobody has to close."""

    async def next(self) -> Sequence[Any] | None:
        return None

    def close(self) -> None: ...


def test_the_open_streams_are_those_that_have_begun_and_not_ended() -> None:
    streams = Streams()
    facts = ServedAgents({}, streams, Switches())
    first, second = Silent(), Silent()
    told = [facts.open_streams()]
    for change, stream in ((streams.enter, first), (streams.enter, second), (streams.leave, first)):
        change(stream, "")
        told.append(facts.open_streams())
    assert told == [0, 1, 2, 1]
