"""The access log: the forms of a line, where lines go, and what becomes of them if they cannot go there."""

import io
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dragoman.telemetry.access_log import PENDING_MAX, Access, AccessLog, format_json, format_text

AT_MS = 1_795_000_000_123


def access(**fields: Any) -> Access:
    known: dict[str, Any] = {
        "remote": "10.0.0.7",
        "principal": "key:ann",
        "binding": "jsonrpc",
        "operation": "SendMessage",
        "status": 200,
        "outcome": "ok",
        "duration_ms": 1.25,
        "bytes_in": 120,
        "bytes_out": 340,
    }
    return Access(**known | fields)


def test_text_has_a_pair_for_each_field_that_is_not_empty() -> None:
    line = format_text(AT_MS, access(agent="echo", task="t1"))
    assert line == (
        "2026-11-18T11:06:40.123Z remote=10.0.0.7 principal=key:ann binding=jsonrpc operation=SendMessage status=200 "
        "outcome=ok duration_ms=1.25 bytes_in=120 bytes_out=340 agent=echo task=t1"
    )


def test_json_has_the_same_fields() -> None:
    line = json.loads(format_json(AT_MS, access(trace="a" * 32, error="Forbidden", replica="2")))
    assert line["time"] == "2026-11-18T11:06:40.123Z"
    assert (line["principal"], line["status"], line["duration_ms"]) == ("key:ann", 200, 1.25)
    assert (line["trace"], line["error"], line["replica"]) == ("a" * 32, "Forbidden", "2")
    assert "task" not in line


@pytest.mark.parametrize("value", ["a b", 'a"b', "a=b", "a\\b", "a\nb\x1b[2J", "ü\u2028x"])
def test_a_value_cannot_forge_a_line_or_a_field(value: str) -> None:
    text = format_text(AT_MS, access(path=value))
    assert len(text.splitlines()) == 1
    assert text.isprintable()
    assert f'path="{value.split(" ")[0][0]}' in text
    assert json.loads(format_json(AT_MS, access(path=value)))["path"] == value
    assert "\n" not in format_json(AT_MS, access(path=value))


def test_a_path_that_is_no_text_is_written_all_the_same() -> None:
    assert json.loads(format_json(AT_MS, access(path="/\udcff")))["path"] == "/\\udcff"
    assert format_text(AT_MS, access(path="/\udcff")).startswith("2026")


async def test_lines_go_to_the_file_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    log = AccessLog("text", str(path))
    log.open()
    for number in range(3):
        log.note(AT_MS, access(task=f"t{number}"))
    await log.flush()
    log.note(AT_MS, access(task="t3", path="/\udcff"))
    await log.close()
    assert [line.split("task=")[1].split()[0] for line in path.read_text().splitlines()] == ["t0", "t1", "t2", "t3"]
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("form", ["text", "json"])
async def test_a_character_that_the_output_cannot_encode_is_escaped(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is strict, and a machine's locale may be Latin-1. An exception here would end the server."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "__stdout__", io.TextIOWrapper(written, encoding="latin-1", errors="strict"))
    log = AccessLog(form, "-")
    log.open()
    log.note(AT_MS, access(path="/ü\U0001f600\udcff"))
    await log.close()
    assert "/ü\\U0001f600" in written.getvalue().decode("latin-1")


async def test_a_file_that_is_moved_away_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "access.log"
    log = AccessLog("json", str(path))
    log.open()
    log.note(AT_MS, access(task="before"))
    await log.flush()
    path.rename(tmp_path / "access.log.1")
    log.note(AT_MS, access(task="after"))
    await log.close()
    assert json.loads((tmp_path / "access.log.1").read_text())["task"] == "before"
    assert json.loads(path.read_text())["task"] == "after"


def descriptors(path: Path) -> int:
    """How many descriptors of this process lead to a file."""
    found = 0
    for name in os.listdir("/dev/fd"):
        try:
            found += os.path.samestat(os.fstat(int(name)), path.stat())
        except OSError:
            pass  # that of the listing itself
    return found


async def test_a_file_that_is_no_longer_written_is_not_held_open(tmp_path: Path) -> None:
    """Each rotation would leave a descriptor, until the server has none for its callers."""
    path, earlier = tmp_path / "access.log", tmp_path / "access.log.1"
    log = AccessLog("json", str(path))
    log.open()
    log.note(AT_MS, access())
    await log.flush()
    path.rename(earlier)
    log.note(AT_MS, access())
    await log.flush()
    assert (descriptors(earlier), descriptors(path)) == (0, 1)
    await log.close()
    assert descriptors(path) == 0


async def test_lines_that_cannot_be_written_are_counted_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = AccessLog("text", str(tmp_path / "access.log"))
    log.open()
    (tmp_path / "access.log").unlink()
    (tmp_path / "access.log").mkdir()
    log.note(AT_MS, access())
    log.note(AT_MS, access())
    await log.flush()
    assert "the access log has a gap: 2 lines cannot be written: " in caplog.text
    (tmp_path / "access.log").rmdir()
    log.note(AT_MS, access(task="t3"))
    await log.close()
    assert "task=t3" in (tmp_path / "access.log").read_text()


async def test_no_more_lines_wait_than_fit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = AccessLog("text", os.devnull)
    log.open()
    caplog.set_level(logging.WARNING)
    line = access()
    for _ in range(PENDING_MAX + 5):
        log.note(AT_MS, line)
    await log.close()
    assert "the access log has a gap: 5 lines could not be written in time" in caplog.text


async def test_lines_go_to_standard_error_and_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    for path, task in ((None, "err"), ("-", "out")):
        log = AccessLog("text", path)
        log.open()
        log.note(AT_MS, access(task=task))
        await log.close()
    shown = capfd.readouterr()
    assert "task=err" in shown.err
    assert "task=out" in shown.out
