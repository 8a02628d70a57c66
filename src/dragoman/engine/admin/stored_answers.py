"""The questions that a store answers, with or without a server: their functions, and a desk for commands.

Invariant: a server and a command beside it answer with the same functions.
"""

from collections.abc import Callable

from dragoman.admin import audit, budgets, keys, logs, principals, tasks, usage, webhooks
from dragoman.admin.question import Answer, Given, Question
from dragoman.config.prices import Prices
from dragoman.engine.admin.access import AccessNotes, Operator
from dragoman.engine.admin.answers import Answers, Asked, Functions, bind
from dragoman.engine.admin.budget_report import report_budgets
from dragoman.engine.admin.deliveries import DeliveryAdministration
from dragoman.engine.admin.inspection import Inspector
from dragoman.engine.admin.keys import NO_TEAMS, KeyChanges, Mint, TeamReach
from dragoman.engine.admin.principal_export import PrincipalExporter
from dragoman.engine.admin.records import list_audit
from dragoman.engine.admin.redelivery import Redeliverer
from dragoman.engine.admin.task_recording import TaskRecorder
from dragoman.engine.admin.usage_report import report_usage
from dragoman.engine.key_stops import KeyStops
from dragoman.engine.spending import NO_RULES, SpendingRules
from dragoman.model.errors import A2AError, Unavailable
from dragoman.store.api import Store
from dragoman.store.audit import AuditEntry
from dragoman.store.blobs.api import BlobStore


def stored_answers(
    store: Store,
    inspector: Inspector,
    changes: KeyChanges,
    deliveries: DeliveryAdministration,
    prices: Prices,
    exporter: PrincipalExporter,
    rules: Callable[[], SpendingRules],
) -> Functions:
    """The functions of the questions whose row says that a store answers them."""
    return dict(
        (
            bind(tasks.LIST_TASKS, lambda asked: inspector.list(asked.given)),
            bind(tasks.SHOW_TASK, lambda asked: inspector.show(asked.id)),
            bind(logs.READ_LOG, lambda asked: inspector.log(asked.id, asked.given.after, asked.given.limit)),
            bind(logs.RECORD_TASK, TaskRecorder(store).page),
            bind(keys.LIST_KEYS, changes.list),
            bind(keys.CREATE_KEY, changes.create),
            bind(keys.LIMIT_KEY, changes.limit),
            bind(keys.ROTATE_KEY, changes.rotate),
            bind(keys.REVOKE_KEY, changes.revoke),
            bind(keys.SHOW_BEGUN, changes.began),
            bind(keys.SHOW_KEY, changes.show),
            bind(webhooks.READ_DELIVERIES, deliveries.of_task),
            bind(webhooks.LIST_WEBHOOKS, deliveries.list),
            bind(webhooks.GROUP_WEBHOOKS, deliveries.group),
            bind(webhooks.REDELIVER_WEBHOOKS, deliveries.redeliver),
            bind(webhooks.DELETE_WEBHOOKS, deliveries.drop),
            bind(webhooks.LIST_PAUSED_HOSTS, deliveries.paused),
            bind(webhooks.PAUSE_HOST, deliveries.pause),
            bind(webhooks.RESUME_HOST, deliveries.resume),
            bind(webhooks.SHOW_WEBHOOK, deliveries.show),
            bind(audit.LIST_AUDIT, lambda asked: list_audit(store, asked.given)),
            bind(usage.SHOW_USAGE, lambda asked: report_usage(store, asked.given, prices)),
            bind(budgets.LIST_BUDGETS, lambda asked: report_budgets(store, asked.given, rules(), asked.operator.team)),
            bind(principals.EXPORT_PRINCIPAL, exporter.page),
        )
    )


class StoreDesk:
    """Answers one user of a command from a store that a server may have open besides.

    The store's audit trail has an entry for each read and each change when the answer returns, but for quiet questions.
    A refused read has one, too; a refused act has none, because it changed nothing.
    """

    def __init__(
        self,
        store: Store,
        operator: str,
        mint: Mint,
        sender: Redeliverer,
        prices: Prices,
        blobs: BlobStore | None = None,
        teams: TeamReach = NO_TEAMS,
        rules: SpendingRules = NO_RULES,
    ) -> None:
        """`operator` is the user's principal, and `mint` makes fresh keys. `sender` makes bodies of webhooks again.

        `blobs` has the store's large files, if they are kept elsewhere. `teams` are those that there are,
        `rules` the budgets.
        """
        functions = stored_answers(
            store,
            Inspector(store),
            KeyChanges(store, mint, KeyStops(store.shared, store.clock), teams),
            DeliveryAdministration(store, sender),
            prices,
            PrincipalExporter(store, blobs),
            lambda: rules,
        )
        self._store = store
        self._operator = Operator(operator)
        self._entries: list[AuditEntry] = []
        self._answers = Answers(functions, AccessNotes(self, store.clock))

    def note(self, entry: AuditEntry) -> None:
        """Take an entry for the audit trail."""
        self._entries.append(entry)

    async def answer(self, question: Question[Given, Answer], given: Given, of: str = "") -> Answer:
        """Answer a question about the id `of`. Raises A2AError or StoreError."""
        self._entries.clear()
        try:
            found = await self._answers.answer(question, Asked(self._operator, given, of))
        except Unavailable:  # nor would the store take an entry
            raise
        except A2AError:
            if question.method == "GET" and question.quiet is not True:
                await self._store.audit.write(self._entries)
            raise
        if not question.quiet_about(given, found):
            await self._store.audit.write(self._entries)
        return found
