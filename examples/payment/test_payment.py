"""The till charges once, also when its server is killed after the charge and before its answer."""

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from dragoman import TaskState
from dragoman.client import connect
from dragoman.model.task import TERMINAL, Task
from dragoman.testing import run
from examples.payment import payment
from examples.payment.provider import Provider
from tests.kit.processes import ServerProcess
from tests.kit.waiting import until

TILL = Path(payment.__file__)


class Watched(Provider):
    """Keeps what it was asked."""

    def __init__(self, slow_s: float = 0.0) -> None:
        super().__init__(0, slow_s)
        self.asked: list[str] = []
        self.receipts: set[object] = set()

    def charge(self, key: str, amount: float) -> dict[str, object]:
        """Charge, and note it."""
        self.asked.append(key)
        charged = super().charge(key, amount)
        self.receipts.add(charged["receipt"])
        return charged

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def provider() -> Iterator[Watched]:
    with Watched() as watched:
        Thread(target=watched.serve_forever, daemon=True).start()
        yield watched
        watched.shutdown()


async def test_it_charges_and_packs(provider: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payment, "PROVIDER", provider.url)
    ran = await run(payment.agent, "tea for 12.50")
    assert ran.text == "Paid: R1. On its way: parcel for R1."
    assert ran.steps == ["charge", "pack"]


async def test_without_an_amount_nothing_is_charged(provider: Watched) -> None:
    ran = await run(payment.agent, "tea")
    assert ran.state is TaskState.REJECTED
    assert provider.asked == []


async def test_a_kill_between_charge_and_answer_charges_nothing_twice(provider: Watched, tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, str(TILL), "--store", "sqlite:///till.db", "--port", "0")
    provider.slow_s = 60
    try:
        await server.start(PROVIDER=provider.url)
        async with connect(server.url) as till:
            task = await till.send("tea for 12.50", return_immediately=True)
            await until(lambda: bool(provider.asked))
        assert isinstance(task, Task)
        await server.kill()
        provider.slow_s = 0
        await server.start(PROVIDER=provider.url)
        async with connect(server.url) as till:

            async def ended() -> bool:
                return (await till.get(task.id)).status.state in TERMINAL

            await until(ended, pause_s=0.05)
            paid = await till.get(task.id)
    finally:
        await server.kill()
    assert paid.artifacts[0].parts[0].text == "Paid: R1. On its way: parcel for R1."
    assert provider.asked == [f"{task.id}:1"] * 2
    assert provider.receipts == {"R1"}
