"""Operators' questions that a command answers from a store, without a server."""

from functools import partial
from secrets import token_bytes

import pytest

from dragoman.admin.audit import LIST_AUDIT, AuditQuery
from dragoman.admin.keys import CREATE_KEY, LIST_KEYS, SHOW_KEY, KeyQuery, KeyRequest
from dragoman.admin.logs import READ_LOG, LogQuery
from dragoman.admin.table import QUESTIONS
from dragoman.admin.tasks import SHOW_TASK
from dragoman.admin.webhooks import SHOW_WEBHOOK
from dragoman.auth.keys import make_key
from dragoman.config import Prices
from dragoman.engine.admin.deliveries import DeliveryAdministration
from dragoman.engine.admin.inspection import Inspector
from dragoman.engine.admin.keys import KeyChanges
from dragoman.engine.admin.principal_export import PrincipalExporter
from dragoman.engine.admin.redelivery import NoRedeliverer
from dragoman.engine.admin.stored_answers import StoreDesk, stored_answers
from dragoman.engine.key_stops import KeyStops
from dragoman.engine.spending import SpendingRules
from dragoman.model.errors import NotFound, TaskNotFound
from dragoman.model.principal import AccessRole
from dragoman.store.api import Store
from dragoman.store.audit import AuditFilter

mint = partial(make_key, token_bytes)


async def test_a_store_answers_exactly_the_rows_that_say_so(store: Store) -> None:
    keys = KeyChanges(store, mint, KeyStops(store.shared, store.clock))
    inspector, webhooks = Inspector(store), DeliveryAdministration(store)
    functions = stored_answers(store, inspector, keys, webhooks, Prices(), PrincipalExporter(store), SpendingRules)
    assert set(functions) == {question.name for question in QUESTIONS if question.stored}


async def test_what_a_user_read_or_changed_is_in_the_trail_but_for_quiet_questions(store: Store) -> None:
    desk = StoreDesk(store, "operator:root", mint, NoRedeliverer(), Prices())
    issued = await desk.answer(CREATE_KEY, KeyRequest(name="ann", force=True))
    await desk.answer(LIST_KEYS, KeyQuery())
    await desk.answer(SHOW_KEY, None, issued.key.id)
    with pytest.raises(NotFound):
        await desk.answer(SHOW_KEY, None, "nobody")
    with pytest.raises(NotFound):
        await desk.answer(SHOW_WEBHOOK, None, "nothing")
    entries = (await store.audit.page(AuditFilter(), 10)).entries
    assert [(each.principal, each.action, each.subject, each.reason) for each in entries] == [
        ("operator:root", "keys.create", issued.key.id, ""),
        ("operator:root", "keys.show", issued.key.id, ""),
        ("operator:root", "keys.show", "nobody", "NotFound"),
    ]
    changes = await desk.answer(LIST_AUDIT, AuditQuery(reads=False))
    assert [(each.action, each.reason) for each in changes.entries] == [("keys.create", ""), ("keys.show", "NotFound")]


async def test_keys_are_found_by_an_agent_that_they_reach(store: Store) -> None:
    teams = {"open": None, "narrow": ("sum",)}
    desk = StoreDesk(store, "operator:root", mint, NoRedeliverer(), Prices(), teams=teams)
    for name, agents, team in (
        ("all", None, ""),
        ("echo", ("echo",), ""),
        ("both", ("sum", "echo"), "open"),
        ("kept-out", None, "narrow"),
    ):
        await desk.answer(CREATE_KEY, KeyRequest(name=name, agents=agents, team=team, force=True))
    await desk.answer(CREATE_KEY, KeyRequest(name="scrape", role=AccessRole.MONITOR))

    async def reaching(agent: str) -> list[str]:
        return [key.name for key in (await desk.answer(LIST_KEYS, KeyQuery(agent=agent))).keys]

    assert await reaching("echo") == ["all", "echo", "both"]
    assert await reaching("sum") == ["all", "both", "kept-out"]


async def test_who_looks_for_a_task_that_is_not_there_is_in_the_trail(store: Store) -> None:
    desk = StoreDesk(store, "operator:root", mint, NoRedeliverer(), Prices())
    for question, given in ((SHOW_TASK, None), (READ_LOG, LogQuery())):
        with pytest.raises(TaskNotFound):
            await desk.answer(question, given, "gone")
    entries = (await store.audit.page(AuditFilter(), 10)).entries
    assert [(each.action, each.task_id, each.allowed, each.reason) for each in entries] == [
        ("tasks.show", "gone", False, "TaskNotFound"),
        ("tasks.log", "gone", False, "TaskNotFound"),
    ]
