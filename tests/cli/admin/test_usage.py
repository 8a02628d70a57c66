"""`dragoman admin usage` and `budgets`: the real commands, on a server and on its store."""

import csv
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest

from dragoman import Agent, Context
from dragoman.auth.operator_token import read_token
from dragoman.config import load
from dragoman.server import serving
from dragoman.store.open import note_server
from tests.cli.admin.site import DEADLINE_S, V1, dragoman

FILE = """
port = 0
store = "sqlite:///{folder}/dragoman.db"
shutdown_grace_s = 0.2

[prices]
currency = "EUR"
[prices.models.small]
input_per_million = "0.15"
output_per_million = "0.60"
"""


def agents() -> list[Agent]:
    chat, plain, direct = Agent("chat"), Agent("plain"), Agent("direct", direct=True)

    @chat.skill
    async def talk(ctx: Context) -> str:
        """Use a model."""
        ctx.usage(input=1000, output=10, model="small")
        return "yes"

    @plain.skill
    async def reply(ctx: Context) -> str:
        """Use none."""
        return "yes"

    @direct.skill
    async def answer(ctx: Context) -> str:
        """Use one, and make no task."""
        ctx.usage(input=7, output=3)
        return "yes"

    return [chat, plain, direct]


@asynccontextmanager
async def served(folder: Path, more: str = "") -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    file = folder / "dragoman.toml"
    file.write_text(FILE.format(folder=folder) + more)
    config = load(file, {}, {})
    async with (
        serving(config, agents()) as url,
        aiohttp.ClientSession(url, timeout=aiohttp.ClientTimeout(total=DEADLINE_S)) as http,
    ):
        note_server(config.store, url)
        yield url, http


async def send(http: aiohttp.ClientSession, agent: str) -> None:
    sent: Any = {"message": {"messageId": str(uuid4()), "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
    async with http.post(f"/agents/{agent}/message:send", json=sent, headers=V1) as answer:
        assert answer.status == 200, await answer.text()


async def test_usage_is_told_as_a_table_as_json_and_as_csv_from_here_and_from_afar(tmp_path: Path) -> None:
    async with served(tmp_path) as (url, http):
        for agent in ("chat", "chat", "plain", "direct"):
            await send(http, agent)
        token = read_token(f"sqlite:///{tmp_path}/dragoman.db", 0)
        assert token is not None
        from_afar = ("--server", url)
        for more, environ in (((), {}), (from_afar, {"DRAGOMAN_API_KEY": token})):
            shown = await dragoman(tmp_path, "admin", "usage", *more, **environ)
            assert (shown.status, shown.err) == (0, "These agents report no tokens: plain.\n")
            head, *rows = shown.out.splitlines()
            assert head.split()[-2:] == ["COST", "EUR"]
            told = [(*row.split()[:6], *row.split()[7:]) for row in rows]
            assert told == [
                ("anonymous", "chat", "2", "2", "2000", "20", "-", "0.000312"),
                ("anonymous", "direct", "1", "1", "7", "3", "-", "-"),
                ("anonymous", "plain", "1", "1", "-", "-", "1", "-"),
                ("TOTAL", "-", "4", "4", "2007", "23", "1", "0.000312", "or", "more"),
            ]
            by_model = await dragoman(tmp_path, "admin", "usage", "--by", "model,day", "-o", "json", *more, **environ)
            report = json.loads(by_model.out)
            assert report["currency"] == "EUR"
            assert [(line["model"], line["runs"], line["tasks"], line["input_tokens"]) for line in report["lines"]] == [
                ("small", 2, 2, 2000),
                ("", 2, 1, 7),
            ]
            sheet = await dragoman(tmp_path, "admin", "usage", "--by", "agent", "-o", "csv", *more, **environ)
            lines = list(csv.DictReader(io.StringIO(sheet.out)))
            assert [(line["agent"], line["total_tokens"], line["cost"]) for line in lines] == [
                ("chat", "2020", "0.000312"),
                ("direct", "10", ""),
                ("plain", "", ""),
            ]
    stopped = await dragoman(tmp_path, "admin", "usage", "--by", "agent")
    assert stopped.out.splitlines()[1].split()[:2] == ["chat", "2"]
    past = await dragoman(tmp_path, "admin", "usage", "--until", "2020-01-31", "--since", "2020-01-01")
    assert past == (0, "", "Nothing was used from 2020-01-01 to 2020-01-31.\n")
    trail = await dragoman(tmp_path, "audit", "--json")
    readers = [json.loads(line)["principal"] for line in trail.out.splitlines() if "usage.show" in line]
    # Five reads of the store itself, and three from afar: the server notes those within a minute once.
    assert 6 <= len(readers) <= 8
    assert all(reader.startswith("operator:") for reader in readers)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--by", "colour"), "--by: 'colour': must be some of team, principal, agent, model, upstream, day"),
        (("--since", "soon"), "--since: 'soon': must be a day in UTC, like 2026-11-22"),
        (("--until", "2026-13-01"), "--until: '2026-13-01'"),
        (("--since", "2026-11-22", "--until", "2026-11-21"), "is after --until"),
        (("-o", "xml"), "'xml' is not one of"),
    ],
)
async def test_wrong_input_says_how_to_put_it_right(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    ran = await dragoman(tmp_path, "admin", "usage", *arguments)
    assert (ran.status, words in ran.err) == (2, True), ran.err
    assert len(ran.err.splitlines()) == 1


BUDGETS = """
[[budgets]]
id = "everybody"
tasks = 10

[[budgets]]
id = "soft"
agent = "plain"
money = "1"
mode = "soft"
"""


async def test_budgets_are_told_with_what_is_used_of_each(tmp_path: Path) -> None:
    async with served(tmp_path, BUDGETS) as (_, http):
        await send(http, "plain")
        ran = await dragoman(tmp_path, "admin", "budgets")
        assert ran.status == 0, ran.err
        head, everybody, soft = (line.split() for line in ran.out.splitlines())
    assert head[:10] == ["BUDGET", "KEY", "TEAM", "AGENT", "PER", "OF", "UNIT", "LIMIT", "USED", "RESERVED"]
    assert everybody[:11] == ["everybody", "-", "-", "-", "-", "-", "tasks", "10", "1", "0", "10"]
    assert soft[:8] == ["soft", "-", "-", "plain", "-", "-", "EUR", "1"]
