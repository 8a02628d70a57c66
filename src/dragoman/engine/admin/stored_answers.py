"""The questions that a store answers, with or without a server: their functions, and a desk for commands.

Invariant: a server and a command beside it answer with the same functions.
"""

from dragoman.admin.audit import LIST_AUDIT
from dragoman.admin.keys import CREATE_KEY, LIMIT_KEY, LIST_KEYS, REVOKE_KEY, ROTATE_KEY, SHOW_BEGUN, SHOW_KEY
from dragoman.admin.logs import READ_LOG
from dragoman.admin.question import Answer, Given, Question
from dragoman.admin.tasks import LIST_TASKS, SHOW_TASK
from dragoman.admin.usage import SHOW_USAGE
from dragoman.admin.webhooks import (
    DELETE_WEBHOOKS,
    LIST_PAUSED_HOSTS,
    LIST_WEBHOOKS,
    PAUSE_HOST,
    READ_DELIVERIES,
    REDELIVER_WEBHOOKS,
    RESUME_HOST,
    SHOW_WEBHOOK,
)
from dragoman.config.prices import Prices
from dragoman.engine.admin.access import AccessNotes, Operator
from dragoman.engine.admin.answers import Answers, Asked, Functions, bind
from dragoman.engine.admin.deliveries import DeliveryAdministration
from dragoman.engine.admin.inspection import Inspector
from dragoman.engine.admin.keys import KeyChanges, Mint
from dragoman.engine.admin.records import Records
from dragoman.engine.admin.redelivery import Render
from dragoman.engine.admin.usage_report import UsageReporter
from dragoman.engine.key_stops import KeyStops
from dragoman.store.api import Store
from dragoman.store.audit import AuditEntry


def stored_answers(
    store: Store, inspector: Inspector, keys: KeyChanges, webhooks: DeliveryAdministration, prices: Prices
) -> Functions:
    """The functions of the questions whose row says that a store answers them."""
    records, usage = Records(store), UsageReporter(store, store.clock, prices)
    return dict(
        (
            bind(
                LIST_TASKS,
                lambda asked: inspector.list(asked.given, asked.given.limit, asked.given.cursor, asked.given.order),
            ),
            bind(SHOW_TASK, lambda asked: inspector.show(asked.id)),
            bind(READ_LOG, lambda asked: inspector.log(asked.id, asked.given.after, asked.given.limit)),
            bind(LIST_KEYS, keys.list),
            bind(CREATE_KEY, keys.create),
            bind(LIMIT_KEY, keys.limit),
            bind(ROTATE_KEY, keys.rotate),
            bind(REVOKE_KEY, keys.revoke),
            bind(SHOW_BEGUN, keys.began),
            bind(SHOW_KEY, keys.show),
            bind(READ_DELIVERIES, webhooks.of_task),
            bind(LIST_WEBHOOKS, webhooks.list),
            bind(REDELIVER_WEBHOOKS, webhooks.redeliver),
            bind(DELETE_WEBHOOKS, webhooks.drop),
            bind(LIST_PAUSED_HOSTS, webhooks.paused),
            bind(PAUSE_HOST, webhooks.pause),
            bind(RESUME_HOST, webhooks.resume),
            bind(SHOW_WEBHOOK, webhooks.show),
            bind(LIST_AUDIT, records.audit),
            bind(SHOW_USAGE, lambda asked: usage.report(asked.given)),
        )
    )


class StoreDesk:
    """Answers one user of a command from a store that a server may have open besides.

    What the user has read or changed is in the store's audit trail when the answer returns, but for quiet questions.
    A refusal is not: it told the user nothing that the store's owner would not read in it.
    """

    def __init__(self, store: Store, operator: str, mint: Mint, render: Render, prices: Prices) -> None:
        """`operator` is the user's principal, and `mint` makes fresh keys. `render` makes bodies of webhooks again."""
        clock = store.clock
        functions = stored_answers(
            store,
            Inspector(store, clock),
            KeyChanges(store, clock, mint, KeyStops(store.shared, clock)),
            DeliveryAdministration(store, clock, render),
            prices,
        )
        self._store = store
        self._operator = Operator(operator)
        self._entries: list[AuditEntry] = []
        self._answers = Answers(functions, AccessNotes(self, clock))

    def note(self, entry: AuditEntry) -> None:
        """Take an entry for the audit trail."""
        self._entries.append(entry)

    async def answer(self, question: Question[Given, Answer], given: Given, of: str = "") -> Answer:
        """Answer a question about the id `of`. Raises A2AError or StoreError."""
        self._entries.clear()
        found = await self._answers.answer(question, Asked(self._operator, given, of))
        if not question.quiet_about(given, found):
            await self._store.audit.write(self._entries)
        return found
