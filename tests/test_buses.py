"""The bus for tests: it does what the protocol says, and to each message what its fate is."""

import asyncio

import pytest

from dragoman.bus.api import Hint, HintInbox
from tests.buses import Hub, HubBus
from tests.virtual_time import in_virtual_time


class Ears(HintInbox):
    """A replica on a bus, and what it has heard."""

    def __init__(self, hub: Hub, name: str, *agents: str) -> None:
        super().__init__()
        self.bus: HubBus = hub.bus()
        self.moved: list[Hint] = []
        self.calls = 0
        self.bus.listen(self)
        self.bus.serve(name, agents)

    def put(self, hint: Hint) -> None:
        self.moved.append(hint)

    def put_work(self) -> None:
        self.calls += 1


@pytest.fixture
def hub() -> Hub:
    return Hub()


async def two(hub: Hub) -> tuple[Ears, Ears]:
    one, other = Ears(hub, "one", "echo"), Ears(hub, "other", "echo")
    await one.bus.open()
    await other.bus.open()
    return one, other


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_only_those_who_follow_a_task_hear_of_it_and_never_of_their_own(hub: Hub) -> None:
    one, other = await two(hub)
    other.bus.follow("t")
    one.bus.follow("t")
    one.bus.publish("t", 3, b"page")
    one.bus.publish("u", 3, b"page")
    await settle()
    assert other.moved == [("t", None, None), ("t", 3, b"page")]
    assert one.moved == [("t", None, None)]
    other.bus.unfollow("t")
    one.bus.publish("t", 4)
    await settle()
    assert len(other.moved) == 2


async def test_the_replica_it_is_for_hears_without_following(hub: Hub) -> None:
    one, other = await two(hub)
    one.bus.publish("t", 3, b"x" * 5000, to="other")
    one.bus.tell("other")
    one.bus.tell("nobody")
    one.bus.queued("echo")
    one.bus.queued("else")
    await settle()
    assert other.moved == [("t", 3, None)]
    assert (one.calls, other.calls) == (0, 2)


async def test_signals_reach_those_who_asked_for_their_name(hub: Hub) -> None:
    one, other = Ears(hub, "one"), Ears(hub, "other")
    heard: asyncio.Queue[bytes] = asyncio.Queue()
    other.bus.on_signal("mcp", heard)
    await one.bus.open()
    await other.bus.open()
    one.bus.signal("mcp", b"hello")
    one.bus.signal("else", b"hello")
    await settle()
    assert heard.get_nowait() == b"hello"
    assert heard.empty()
    with pytest.raises(ValueError, match="4096"):
        one.bus.signal("mcp", b"x" * 4097)


@in_virtual_time
async def test_a_message_is_lost_doubled_and_overtaken_as_fate_has_it() -> None:
    fates = iter([(), (0.0, 1.0), (3.0,), (2.0,)])
    hub = Hub(lambda: next(fates))
    one, other = await two(hub)
    other.bus.follow("t")
    await settle()
    for seq in (1, 2, 3, 4):
        one.bus.publish("t", seq)
    await asyncio.sleep(5)
    assert [seq for _, seq, _ in other.moved] == [None, 2, 2, 4, 3]
    hub.down = True
    assert not one.bus.healthy
    one.bus.publish("t", 5)
    await asyncio.sleep(5)
    assert len(other.moved) == 5
