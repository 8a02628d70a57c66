"""The jobs of a server, and what is refused while one of them is not running.

Invariant: every job has a row. A job that has failed and waits to be started again refuses what its row says, and
nothing else.
"""

from collections.abc import Mapping
from enum import Enum, auto

from dragoman.telemetry.job_group import JobFailures


class JobEffect(Enum):
    """The requests that are refused while a job is not running: they would wait for it, or go wrong without it."""

    NOTHING = auto()
    UNREADY = auto()
    """`/ready` answers 503, so that work goes to another replica."""
    NO_WEBHOOKS = auto()
    """The registration of a webhook answers 503."""


EFFECTS: Mapping[str, tuple[JobEffect, str]] = {
    "sweep": (JobEffect.NOTHING, "what has outlived its retention stays in the store"),
    "retention": (JobEffect.NOTHING, "nobody says how far behind the sweep is"),
    "budgets": (JobEffect.NOTHING, "operators are not warned that budgets run out; limits hold"),
    "sweep of files": (JobEffect.NOTHING, "the files of deleted tasks stay"),
    "acts of commands": (JobEffect.NOTHING, "the log tells later of commands on the store"),
    "exchange of usage": (JobEffect.NOTHING, "rates and numbers of streams are limited on each replica alone"),
    "words about calls of MCP": (JobEffect.NOTHING, "a call of MCP is not canceled by way of another replica"),
    "leases of workers": (JobEffect.UNREADY, "the tasks of silent workers are not taken from them"),
    "attendance of workers": (JobEffect.NOTHING, "other replicas are not told which workers call this one"),
    "access log": (JobEffect.NOTHING, "lines of the access log wait, and the oldest of too many are dropped"),
    "queues": (JobEffect.UNREADY, "it is not known how long tasks wait to be run"),
    "certificates": (JobEffect.NOTHING, "the certificate of before stays in use"),
    "pulse": (JobEffect.NOTHING, "the console's graphs have a gap"),
    "series": (JobEffect.NOTHING, "the figures over time have a gap"),
    "bulk acts": (JobEffect.NOTHING, "bulk acts wait, and those under way have been interrupted"),
    "hints of changes": (JobEffect.NOTHING, "consoles show changes late"),
    "changes": (JobEffect.NOTHING, "consoles show changes late"),
    "watch of stopped keys": (JobEffect.NOTHING, "streams of a key that an operator stops go on"),
    "stops of keys": (JobEffect.NOTHING, "webhooks and tasks of a key that an operator stops go on"),
    "watch of deletions": (JobEffect.NOTHING, "calls of a principal whose data is being deleted are still admitted"),
    "operators' records": (JobEffect.UNREADY, "it is not heard what operators set on other replicas"),
    "added agents": (JobEffect.NOTHING, "agents that operators add, change or remove stay as they are here"),
    "removed agents": (JobEffect.NOTHING, "the secrets of removed agents stay in the store"),
    "reload": (JobEffect.NOTHING, "the agents stay as they are"),
    "courier": (JobEffect.NO_WEBHOOKS, "webhooks are not called"),
    "claims": (JobEffect.UNREADY, "the tasks of dead replicas, and those that wait to be run, are not taken on"),
    "sleepers": (JobEffect.UNREADY, "tasks that sleep do not wake"),
    "switches": (JobEffect.UNREADY, "what agents do that operators have disabled goes on"),
    "replicas": (JobEffect.UNREADY, "it is not heard that others take this replica for dead"),
    "effects": (JobEffect.UNREADY, "agents' delegations do not begin, and those of ended tasks do not end"),
    "hints": (JobEffect.NOTHING, "what other replicas write is seen by polls alone"),
    "lost effects": (JobEffect.NOTHING, "delegations that a dead replica left behind go on after their deadline"),
    "poll": (JobEffect.UNREADY, "it is not seen what other replicas write to tasks of this one"),
    "tools": (JobEffect.NOTHING, "it is not heard that the tools of an MCP server have changed"),
    "endpoints": (JobEffect.NOTHING, "the endpoints of a model with several are looked at by calls alone"),
    "upstream": (JobEffect.NOTHING, "the card of an agent elsewhere is not read again"),
}
"""The jobs of a server, with what depends on each and what happens while it is not running."""


def refusal(failures: JobFailures, dependent: JobEffect) -> str | None:
    """Why `dependent` is refused at present: the job that is not running; None if it is not refused."""
    for name in sorted(failures.stopped()):
        refused, why = EFFECTS[name.partition(":")[0]]
        if refused is dependent:
            return f"the job {name!r} has failed and is about to be started again: {why} until then"
    return None
