"""The targets hold for their seeds and for some changes of them, and would notice a broken property."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.dialects import sse
from tests.fuzz.targets import TARGETS
from tests.soak import times

HERE = Path(__file__).parent
SEEDS = [(name, seed) for name in TARGETS for seed in sorted((HERE / "seeds" / name).iterdir())]


def changed(data: bytes, chance: random.Random) -> Iterator[bytes]:
    """The bytes with one removed, repeated or replaced."""
    for _ in range(times(20, in_soak=2000)):
        at = chance.randrange(len(data) + 1)
        yield data[:at] + chance.choice((b"", data[at : at + 1] * 2, chance.randbytes(1))) + data[at + 1 :]


@pytest.mark.parametrize(("name", "seed"), SEEDS, ids=lambda value: value.name if isinstance(value, Path) else value)
def test_a_target_holds_for_its_seeds(name: str, seed: Path) -> None:
    data, chance = seed.read_bytes(), random.Random(seed.name)
    TARGETS[name](data)
    for each in changed(data, chance):
        TARGETS[name](each)


@pytest.mark.parametrize("name", TARGETS)
def test_each_target_has_seeds_and_a_program(name: str) -> None:
    assert any((HERE / "seeds" / name).iterdir())
    assert f"import {name}\n" in (HERE / f"fuzz_{name}.py").read_text()


def test_a_parser_that_depends_on_the_cut_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = sse.Parser.feed
    monkeypatch.setattr(sse.Parser, "feed", lambda parser, piece: feed(parser, piece) if len(piece) > 1 else [])
    with pytest.raises(AssertionError):
        TARGETS["event_stream"](b"data: 1\n\ndata: 2\n\n")
