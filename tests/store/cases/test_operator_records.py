"""Operators' records: versions that are expected, a short history, and revisions that miss nothing.

Invariant: a case uses nothing but the Store protocol.
"""

import asyncio

import pytest
from msgspec.structs import replace

from dragoman.store.api import RecordChanged
from dragoman.store.operator_records import BODY_BYTES_MAX, KEPT_VERSIONS, OperatorRecord
from tests.store.cases.bench import START_MS, Bench


def record(record_id: str, version: int, body: bytes | None, revision: int, kind: str = "switch") -> OperatorRecord:
    return OperatorRecord(kind=kind, id=record_id, version=version, body=body, changed_ms=START_MS, revision=revision)


async def test_a_record_is_found_as_it_was_put(bench: Bench) -> None:
    async with bench.store() as store:
        records = store.operator_records
        assert await records.find_record("switch", "echo") is None
        assert await records.read_records() == ()
        odd = "a\\b\0c/ü"
        first = await records.put_record("switch", odd, b"\x00one", version=0)
        assert first == record(odd, 1, b"\x00one", 1)
        assert await records.find_record("switch", odd) == first
        assert await records.find_record("agent", odd) is None
        assert await records.put_record("agent", odd, b"", version=0) == record(odd, 1, b"", 2, "agent")


async def test_a_version_that_is_not_expected_is_refused_and_writes_nothing(bench: Bench) -> None:
    async with bench.store() as store:
        records = store.operator_records
        await records.put_record("switch", "echo", b"1", version=0)
        for wrong in (0, 2):
            with pytest.raises(RecordChanged) as refused:
                await records.put_record("switch", "echo", b"2", version=wrong)
            assert refused.value.version == 1
        with pytest.raises(RecordChanged) as refused:
            await records.put_record("switch", "none", b"2", version=3)
        assert refused.value.version == 0
        second = await records.put_record("switch", "echo", b"2", version=1)
        assert await records.read_records() == (record("echo", 1, b"1", 1), second)
        assert await records.put_record("switch", "echo", b"3") == record("echo", 3, b"3", 3)


async def test_a_record_that_was_removed_goes_on_with_its_versions(bench: Bench) -> None:
    async with bench.store() as store:
        records = store.operator_records
        await records.put_record("switch", "echo", b"1")
        removed = await records.put_record("switch", "echo", None, version=1)
        assert await records.find_record("switch", "echo") == removed == record("echo", 2, None, 2)
        with pytest.raises(RecordChanged):
            await records.put_record("switch", "echo", b"again", version=0)
        assert await records.put_record("switch", "echo", b"again", version=2) == record("echo", 3, b"again", 3)


async def test_the_last_ten_versions_are_kept(bench: Bench) -> None:
    async with bench.store() as store:
        records = store.operator_records
        other = await records.put_record("switch", "other", b"0")
        for number in range(1, 14):
            await records.put_record("switch", "echo", b"%d" % number)
        kept = await records.list_versions("switch", "echo")
        assert [each.version for each in kept] == list(range(13, 13 - KEPT_VERSIONS, -1))
        assert [each.body for each in kept[:2]] == [b"13", b"12"]
        assert await records.list_versions("switch", "other") == (other,)


async def test_a_reader_gets_what_is_behind_a_revision_in_order(bench: Bench) -> None:
    async with bench.store() as store:
        records = store.operator_records
        written = [await records.put_record(kind, "a", b"x") for kind in ("switch", "agent", "switch")]
        assert [each.revision for each in written] == [1, 2, 3]
        for at, each in enumerate(written):
            assert await records.read_records(each.revision) == tuple(written[at:])
        assert await records.read_records(4) == ()


async def test_a_version_is_rewritten_unless_it_has_changed(bench: Bench) -> None:
    async with bench.store() as store:
        records = store.operator_records
        first = await records.put_record("agent", "echo", b"1")
        second = await records.put_record("agent", "echo", b"2")
        assert await records.rewrite_record(first, b"one")
        assert not await records.rewrite_record(first, b"uno")
        assert await records.list_versions("agent", "echo") == (second, replace(first, body=b"one"))
        assert (await records.read_records())[-1] == second


async def test_records_survive_a_restart(bench: Bench) -> None:
    async with bench.store() as store:
        written = await store.operator_records.put_record("switch", "echo", b"off")
    if bench.durable:
        async with bench.store("h2") as store:
            assert await store.operator_records.find_record("switch", "echo") == written


async def test_writes_of_one_moment_are_all_made_and_a_reader_misses_none(bench: Bench) -> None:
    """Whoever reads meanwhile sees a prefix of the revisions, without a gap."""
    async with bench.store() as store:
        records = store.operator_records

        async def write(number: int) -> None:
            await records.put_record("switch", f"a{number % 3}", b"%d" % number)

        writing = asyncio.gather(*(write(number) for number in range(20)))
        seen: list[int] = []
        while not writing.done():
            seen += [each.revision for each in await records.read_records(len(seen) + 1)]
            assert seen == list(range(1, len(seen) + 1))
        await writing
        assert max(each.revision for each in await records.read_records()) == 20


async def test_one_of_those_who_expect_the_same_version_writes(bench: Bench) -> None:
    async with bench.store() as store:
        tries = [store.operator_records.put_record("switch", "echo", b"%d" % each, version=0) for each in range(5)]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        assert sorted(type(each).__name__ for each in outcomes) == ["OperatorRecord"] + 4 * ["RecordChanged"]


async def test_a_body_that_is_too_large_is_refused(bench: Bench) -> None:
    async with bench.store() as store:
        with pytest.raises(ValueError, match=f"there may be {BODY_BYTES_MAX}"):
            await store.operator_records.put_record("switch", "echo", b"x" * (BODY_BYTES_MAX + 1))
