"""Checks of agents, each by itself, whatever is wrong with the others; and what a running server reports about them.

Invariant: every declared agent gets its findings within a bounded time. No task is made. Only two public pages of the
server are read; nothing is changed.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from dragoman.cli.entries import make_agent
from dragoman.cli.loader import look_in_working_directory
from dragoman.cli.references import AgentReferenceError, load_reference
from dragoman.client.errors import PeerError
from dragoman.client.http import get_object
from dragoman.config import AgentEntry, Config, ConfigError, ConfigParts, FaultyEntry, agent_id_fault
from dragoman.engine.api import CheckResult, Runner
from dragoman.model.errors import A2AError
from dragoman.net.egress import Egress
from dragoman.net.errors import EgressError

IMPORT_S = 30.0
"""How long the import of an agent may take."""

CHECK_S = 15.0
"""How long a check may take; agents bound theirs to less."""

SETTINGS = ""
"""The id of findings that concern no single agent."""

NAME_ONE = "name one as MODULE:OBJECT or file.py:OBJECT, or in [[agents]] of the file"

AT_HOME = 'move what must not run at import below `if __name__ == "__main__":`'

ANSWER_S = 5.0


class CheckedAgent(Struct):
    """An agent under check: `run` says what it is, `findings` what is known so far; `runner` is None until loaded."""

    id: str
    run: str
    findings: list[CheckResult]
    runner: Runner | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with it."""
        return all(finding.ok for finding in self.findings)


async def load_subjects(
    apart: ConfigParts, references: Sequence[str], chosen: Sequence[str] = (), *, tries: bool = True
) -> list[CheckedAgent]:
    """Load the agents of the file, then those of `references`. If any ids are `chosen`, only these are returned.

    Agents are made one after the other, as a server makes them. With `tries` all of them are checked at once.
    """
    look_in_working_directory()
    every = [CheckedAgent(SETTINGS, "", [_config_finding(error)]) for error in apart.faults]
    for table in apart.tables:
        if not chosen or table.id in chosen:
            every.append(await _load_declared(table))
    taken = {table.id: f"the table {table.id!r} of the file" for table in apart.tables}
    for reference in references:
        every += await _load_referenced(reference, taken)
    if not chosen:
        every += _check_together(apart, every)
    subjects = [subject for subject in every if not chosen or subject.id in (*chosen, SETTINGS)]
    ids = [subject.id for subject in every if subject.id != SETTINGS]
    there = ", ".join(dict.fromkeys([*(table.id for table in apart.tables), *ids]))
    fix = f"there are {there}" if there else f"there are none: {NAME_ONE}"
    for agent_id in chosen:
        if agent_id not in ids:
            subjects.append(CheckedAgent(agent_id, "", [CheckResult(False, "there is no such agent", fix)]))
    if tries:
        for subject in subjects:
            subject.findings += _check_callers(apart.config, subject.runner)
        await asyncio.gather(*(_try(subject, subject.runner) for subject in subjects if subject.runner is not None))
    return subjects


async def ask_server(server: str, subjects: list[CheckedAgent]) -> None:
    """Add what the server at that URL reports about the subjects to their findings."""
    base, egress = server.rstrip("/"), Egress()
    try:
        ready = await get_object(egress, f"{base}/ready", timeout_s=ANSWER_S, headers={})
        served = await get_object(egress, f"{base}/agents?limit=1000", timeout_s=ANSWER_S, headers={})
    except (EgressError, PeerError, A2AError) as error:
        fix = "give the URL on which it listens; GET /ready says why a server is not ready"
        subjects.append(
            CheckedAgent(SETTINGS, server, [CheckResult(False, f"the server cannot be asked: {error}", fix)])
        )
        return
    finally:
        await egress.close()
    degraded, ids = ready.get("degraded"), set(_ids(served.get("agents")))
    for subject in subjects:
        if subject.id in ids:
            why = degraded.get(subject.id) if isinstance(degraded, dict) else None
            if why:
                fix = "start one: dragoman worker" if subject.run == "worker" else "see its own log"
                subject.findings.append(CheckResult(False, f"{base} reports: {why}", fix))
            else:
                subject.findings.append(CheckResult(True, f"{base} serves it"))
        elif subject.id != SETTINGS:
            fix = "reload it (SIGHUP), or start it with this configuration"
            subject.findings.append(CheckResult(False, f"{base} does not serve it", fix))


async def _load_declared(table: AgentEntry | FaultyEntry) -> CheckedAgent:
    if isinstance(table, FaultyEntry):
        return CheckedAgent(table.id, "", [_config_finding(table.error)])
    loaded = await _load_in_thread(table.run, lambda: [make_agent(table)])
    if isinstance(loaded, CheckResult):
        return CheckedAgent(table.id, table.run, [loaded])
    return CheckedAgent(table.id, table.run, [], loaded[0])


async def _load_referenced(reference: str, taken: dict[str, str]) -> list[CheckedAgent]:
    made = await _load_in_thread(reference, lambda: load_reference(reference))
    if isinstance(made, CheckResult):
        return [CheckedAgent(reference, reference, [made])]
    subjects = []
    for runner in made:
        subject = CheckedAgent(runner.profile.id, reference, [], runner)
        if fault := agent_id_fault(subject.id):
            subject.findings.append(CheckResult(False, f"its id {subject.id!r} cannot be served", f"it {fault}"))
        if subject.id in taken:
            fix = "change one of them: ID=MODULE:OBJECT gives an agent another id"
            subject.findings.append(CheckResult(False, f"{taken[subject.id]} has the id {subject.id!r}, too", fix))
        taken[subject.id] = reference
        subjects.append(subject)
    return subjects


def _check_together(apart: ConfigParts, every: Sequence[CheckedAgent]) -> Iterable[CheckedAgent]:
    """The findings about all agents together."""
    ids = [subject.id for subject in every if subject.id != SETTINGS]
    if not every and apart.config is not None and apart.config.begins_empty:
        yield CheckedAgent(SETTINGS, "", [CheckResult(True, "operators add all agents")])
    elif not every:
        yield CheckedAgent(SETTINGS, "", [CheckResult(False, "there are no agents", NAME_ONE)])
    elif apart.config is not None and (default := apart.config.default) is not None and default not in ids:
        fix = f"name one of {', '.join(ids)}"
        yield CheckedAgent(SETTINGS, "", [CheckResult(False, f"default = {default!r}: there is no such agent", fix)])


def _check_callers(config: Config | None, runner: Runner | None) -> Iterable[CheckResult]:
    """The finding about an agent that is called in its callers' names, on a server whose callers have no tokens."""
    if config is None or runner is None or not runner.traits.exchanges or config.jwt_issuer is not None:
        return
    if config.api_key or config.client_cert_header or config.authentication == "required":
        what = "it is called in the names of callers, who come here with keys or certificates, which are no tokens"
        fix = "set jwt_issuer and jwt_audience, so that callers can come with tokens of your issuer"
        yield CheckResult(False, what, fix)
    else:
        yield CheckResult(True, "callers need no token here: a task whose caller sends none asks for it")


async def _load_in_thread(what: str, made: Callable[[], list[Runner]]) -> list[Runner] | CheckResult:
    """Call `made` in its own daemon thread, because a user's module may block for ever while it is imported."""
    loop = asyncio.get_running_loop()
    loading: asyncio.Future[list[Runner] | CheckResult] = loop.create_future()

    def tell(outcome: list[Runner] | CheckResult) -> None:
        if not loading.done():
            loading.set_result(outcome)

    def load() -> None:
        outcome = _call_loader(what, made)
        with suppress(RuntimeError):  # the loop is closed, so nobody waits for the outcome
            loop.call_soon_threadsafe(tell, outcome)

    threading.Thread(target=load, daemon=True, name=f"import {what}").start()
    try:
        async with asyncio.timeout(IMPORT_S):
            return await loading
    except TimeoutError:
        return CheckResult(False, f"{what}: importing it takes longer than {IMPORT_S:g} s", AT_HOME)


def _call_loader(what: str, made: Callable[[], list[Runner]]) -> list[Runner] | CheckResult:
    try:
        return made()
    except AgentReferenceError as error:
        return CheckResult(False, error.what, error.fix) if error.fix else _split_message(str(error))
    except ConfigError as error:
        return _config_finding(error)
    except Exception as error:  # noqa: BLE001  a user's object may raise anything when it is inspected
        return CheckResult(False, f"{what}: {type(error).__name__}: {error}", "fix its module")
    except BaseException as error:  # noqa: BLE001  SystemExit, the panic of an extension …
        return CheckResult(False, f"{what}: importing it ends the process ({type(error).__name__})", AT_HOME)


async def _try(subject: CheckedAgent, runner: Runner) -> None:
    """Say what a server would open for the agent, which is not opened here, and run the agent's own check."""
    for lifespan in runner.lifespans():
        within = f"within {runner.lifespan_timeout_s:g} s"
        subject.findings.append(CheckResult(True, f"a server or a worker opens {lifespan.name} first, {within}"))
    try:
        async with asyncio.timeout(CHECK_S):
            async for finding in runner.check():
                subject.findings.append(finding)
    except TimeoutError:
        subject.findings.append(CheckResult(False, f"the check did not finish within {CHECK_S:g} s", "try again"))
    except Exception as error:  # noqa: BLE001  the agent may be of a user's own class
        fix = "its method `check` must raise nothing"
        subject.findings.append(CheckResult(False, f"its check failed with {type(error).__name__}: {error}", fix))


def _config_finding(error: ConfigError) -> CheckResult:
    return CheckResult(False, str(error).removesuffix(error.allowed).rstrip(": "), error.allowed)


def _split_message(said: str) -> CheckResult:
    """Split a message into what is wrong and, if it has one, the fix."""
    if " failed with " in said:  # an error text of the user's module has no such form
        return CheckResult(False, said, "fix that in the module")
    for between, at_least in (("; ", 1), (": ", 2)):
        if said.count(between) >= at_least:
            what, _, fix = said.rpartition(between)
            return CheckResult(False, what, fix)
    return CheckResult(False, said, "name one that is there")


def _ids(agents: Any) -> Iterable[str]:
    for agent in agents if isinstance(agents, list) else ():
        if isinstance(agent, dict) and isinstance(agent.get("id"), str):
            yield agent["id"]
