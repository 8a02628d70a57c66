"""The server that an operator's command is about: one that is named, or the one on the local store.

Invariant: a key is sent to the server that the operator named, and the token of a local server to that one alone.
Neither is ever printed.
"""

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import quote, urlencode

import click
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from dragoman.admin.question import Answer, AnyQuestion, Given, Question
from dragoman.cli.arguments import ServerUrl
from dragoman.cli.command import shared_option
from dragoman.cli.endings import Code, CommandFailed, Unusable
from dragoman.cli.store_commands import SERVER, at_place, at_store, login, operator, with_store
from dragoman.config import Config

if TYPE_CHECKING:
    from dragoman.admin.principals import PrincipalDeletion, PrincipalReport
    from dragoman.admin.tasks import DeletedTask
    from dragoman.net.errors import EgressError
    from dragoman.store.api import Store
    from dragoman.store.blobs.api import BlobStore

SERVER_ENV = "DRAGOMAN_SERVER"
OPERATOR_KEY_ENV = "DRAGOMAN_OPERATOR_KEY"

SHARED_KEY_ENV = "DRAGOMAN_API_KEY"
"""Holds the operator's key if the variable above is not set. `dragoman serve` reads the key that all callers share
there."""

TIMEOUT_S = 60.0
"""How long an answer may take: canceling waits for the agents, which have a grace period."""

T = TypeVar("T")


class Desk(Protocol):
    """Answers the questions of the table: a server by its admin API, or a store."""

    async def answer(self, question: Question[Given, Answer], given: Given, of: str = "") -> Answer:
        """Answer a question about the id `of`. Raises A2AError, or ClickException for a server."""
        ...


class TaskPlace(Struct, frozen=True):
    """The server that is named, or else the local store of `config`."""

    config: Config
    server: str | None

    @property
    def reads_store(self) -> bool:
        """Whether the local store is read, and no server asked. Only a server can tell what it has in memory."""
        return self.server is None and self.config.store != "memory:"

    def ask(self, question: Question[Given, Answer], given: Given, of: str = "") -> Answer:
        """Return the answer to a question about the id `of`. Ends the command if there is none."""
        return finish(lambda: self.at_desk(lambda desk: desk.answer(question, given, of), stored=question.stored))

    def read(self, work: Callable[[Desk], Awaitable[T]]) -> T:
        """Run `work` with what can tell of tasks: a server, or the local store. Ends the command if that fails."""
        return finish(lambda: self.at_desk(work, stored=self.reads_store))

    def at_desk(self, work: Callable[[Desk], Awaitable[T]], *, stored: bool = True, make: bool = False) -> T:
        """Run `work` with the server that is named, else with the local store, and return its result.

        With `stored` False, the question goes to the server that has the local store open, because a store alone cannot
        answer it. With `make` a missing store is created. Ends the command if there is no server or store. Raises
        A2AError.
        """
        if self.server is not None or not stored:
            import asyncio

            return asyncio.run(_await(work(self.client())))
        return at_store(self.config, lambda store: work(_store_desk(store, self.config)), make=make)

    def is_served(self) -> bool:
        """Whether a server has the tasks: one that is named, or one that has the local store open."""
        if not self.reads_store:
            return True
        from dragoman.store.open import is_served

        return at_place(self.config, lambda: is_served(self.config.store))

    def delete(self, task_id: str, *, force: bool) -> "DeletedTask":
        """Delete a task of a store that no server has open. Ends the command if that fails."""
        from dragoman.admin.tasks import DeletedTask
        from dragoman.engine.admin.idle_store import delete_idle

        self._at_idle_store(lambda store: delete_idle(store, operator(), task_id, force=force))
        return DeletedTask(id=task_id)

    def delete_principal(self, wanted: "PrincipalDeletion") -> "PrincipalReport":
        """Delete all data of a principal in a store that no server has open. Ends the command if that fails."""
        from dragoman.engine.admin.idle_store import delete_principal_idle

        blobs = _blobs(self.config)
        return self._at_idle_store(lambda store: delete_principal_idle(store, blobs, operator(), wanted))

    def _at_idle_store(self, work: "Callable[[Store], Awaitable[T]]") -> T:
        """Run `work` with the local store, opened as a server opens it. Ends the command if that fails."""
        from dragoman.model.ids import SystemClock, new_id
        from dragoman.store.open import open_store

        async def run() -> T:
            store = open_store(self.config.store, SystemClock())
            await store.open(f"command-{new_id()}")
            try:
                return await work(store)
            finally:
                await store.close()

        return finish(lambda: at_place(self.config, run))

    def server_client(self) -> "AdminClient | None":
        """The client of the server that is named, or that has noted itself on the local store; None without either.

        A local server may have ended, or may not let this user in.
        """
        if self.server is not None:
            return self.client()
        from dragoman.auth.operator_token import read_token
        from dragoman.store.open import noted_server

        address = noted_server(self.config.store)
        key = read_token(self.config.store, self.config.port) or os.environ.get(OPERATOR_KEY_ENV)
        return None if address is None or key is None else AdminClient(address, key)

    def client(self) -> "AdminClient":
        """The client of the server that is named, or that has the local store open. Ends the command without one."""
        source = OPERATOR_KEY_ENV if os.environ.get(OPERATOR_KEY_ENV) else SHARED_KEY_ENV
        key = os.environ.get(source)
        from dragoman.auth.operator_token import local_server, read_token

        if self.server is not None:
            local = None if key else local_server(self.server)
            server, sent = local or (self.server, key)
            return AdminClient(server.rstrip("/"), sent, None if local else source)
        from dragoman.cli.serve import own_url
        from dragoman.store.open import noted_server
        from dragoman.store.path import is_shared

        token = read_token(self.config.store, self.config.port)
        if not (key or token) and is_shared(self.config.store):
            raise Unusable(
                f"servers on PostgreSQL let nobody in without a key: set {OPERATOR_KEY_ENV} to an operator's "
                f"(dragoman keys create NAME --role operator), and name one of them with --server ({SERVER_ENV})"
            )
        if not (key or token):
            raise Unusable(
                f"no server on this store lets this user in without a key: start it, set {OPERATOR_KEY_ENV} to a key "
                f"of the role operator, or name another server with --server ({SERVER_ENV})"
            )
        here = noted_server(self.config.store) or own_url(self.config)
        return AdminClient(here, token or key, None if token else source)


class ServerRefusal(CommandFailed):
    """The server refused a request with an HTTP `status`."""

    def __init__(self, message: str, status: int, code: Code = Code.REFUSED) -> None:
        super().__init__(message, code)
        self.status = status


class AdminClient:
    """Calls the admin API of one server. `source` is the variable that the key comes from."""

    def __init__(self, server: str, key: str | None, source: str | None = OPERATOR_KEY_ENV) -> None:
        self.server = server
        self._sent = bool(key)
        self._source = source if key else None
        from dragoman.auth.operator_token import LOGIN_HEADER

        self._headers = {"Accept": "application/json", LOGIN_HEADER: quote(login(), safe="")}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    async def answer(self, question: Question[Given, Answer], given: Given, of: str = "") -> Answer:
        """Ask a question about the id `of`. Raises ClickException."""
        assert question.answer is not None  # a stream is read by `events`
        path = question.place(of)
        if question.has_body:
            return await self._send(question.method, path, given, question.answer)
        query = {} if given is None else to_builtins(given)
        said = {name: str(value).lower() if isinstance(value, bool) else value for name, value in query.items()}
        fields = urlencode({name: value for name, value in said.items() if value not in (None, "")})
        return await self._send(question.method, f"{path}?{fields}" if fields else path, None, question.answer)

    async def _send(self, method: str, path: str, body: object, into: type[T]) -> T:
        import msgspec

        from dragoman.net.egress import Egress
        from dragoman.net.errors import EgressError

        headers = self._headers | ({} if body is None else {"Content-Type": "application/json"})
        sent = None if body is None else msgspec.json.encode(body)
        egress = Egress()
        try:
            reply = await egress.request(
                method, f"{self.server}{path}", timeout_s=TIMEOUT_S, headers=headers, body=sent
            )
        except EgressError as error:
            raise CommandFailed(describe_no_answer(error), Code.UNREACHABLE) from error
        finally:
            await egress.close()
        if not reply.ok:
            raise self._refusal(reply.status, reply.body)
        try:
            return msgspec.json.decode(reply.body, type=into)
        except msgspec.MsgspecError:
            raise click.ClickException(
                f"{self.server}: answers with something else than Dragoman's admin API"
            ) from None

    async def follow(
        self, question: AnyQuestion, of: str, last_id: str, idle_s: float
    ) -> AsyncGenerator[tuple[str, Struct], None]:
        """Read a stream from behind the event `last_id`: the id of each event, if it has one, and what it tells.

        The stream has broken if nothing comes for `idle_s`. Raises ServerRefusal or EgressError.
        """
        import msgspec

        from dragoman.dialects.sse import Parser
        from dragoman.net.egress import Egress

        headers = self._headers | {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        egress, parser = Egress(), Parser()
        try:
            async with egress.stream(
                "GET",
                f"{self.server}{question.place(of)}",
                head_timeout_s=TIMEOUT_S,
                idle_timeout_s=idle_s,
                headers=headers,
            ) as flow:
                if not flow.ok:
                    raise self._refusal(flow.status, await flow.body())
                async for piece in flow.pieces:
                    for event in parser.feed(piece):
                        if event.event in question.events:  # a later version may have others
                            yield event.id, msgspec.json.decode(event.data, type=question.events[event.event])
        finally:
            await egress.close()

    def _refusal(self, status: int, body: bytes) -> ServerRefusal:
        reason = _reason(status, body)
        fix = self._fix(status, reason)
        code = Code.REFUSED if not fix else Code.AUTH_FAILED if self._sent else Code.CREDENTIALS_MISSING
        return ServerRefusal(f"{self.server}: {reason}{fix}", status, code)

    def _fix(self, status: int, reason: str) -> str:
        """The fix for a key that is no operator's; empty for other refusals.

        Such are a 403 that is about the Host, and one that sends the operator of a team to an operator of the server.
        """
        if not (status == 401 or (status == 403 and "operator" in reason and "operator of the server" not in reason)):
            return ""
        wrong = "" if self._source is None else f"the key in {self._source} is no operator's there, "
        one = "one that is" if wrong else "an operator's"
        return f"; {wrong}set {OPERATOR_KEY_ENV} to {one} (dragoman keys create NAME --role operator)"


def describe_no_answer(error: "EgressError") -> str:
    """Why a server gave no answer, and what to check: one question, which names the server."""
    import ssl

    if isinstance(error.__cause__, ssl.SSLCertVerificationError):
        return f"{error}: SSL_CERT_FILE names the file of an authority to trust"
    return f"{str(error).removesuffix(': is it listening there?')}: is the server running?"


def with_server(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags that name the server or the store to `command`, which is called with the resulting `place`."""
    return _placed(
        command,
        envvar=SERVER_ENV,
        help=f"Address of the server.  [{SERVER_ENV}; default: the server that has the store open]",
    )


def with_server_by_flag(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same, but no variable names the server."""
    return _placed(command, help="Address of a running server.  [default: none, the store alone]")


def _placed(command: Callable[..., Any], **server_flag: Any) -> Callable[..., Any]:
    @wraps(command)
    def placed(config: Config, server: str | None, **rest: Any) -> Any:
        return command(place=TaskPlace(config, server), **rest)

    return with_store(shared_option(SERVER, "--server", type=ServerUrl(), metavar="URL", **server_flag)(placed))


def finish(work: Callable[[], T]) -> T:
    """Do `work`. Ends the command for an error of the protocol, such as a task that does not exist."""
    from dragoman.model.errors import A2AError

    try:
        return work()
    except A2AError as error:
        raise CommandFailed(error.message, Code.REFUSED) from error


async def read_pages(
    desk: Desk, question: Question[Given, Answer], query: Given, limit: int | None = None
) -> tuple[list[Any], Any]:
    """The pages of lines that answer a query, each at most as long as it says, `limit` lines in all; all for None.

    Returns the query for what follows as well; None if nothing does.
    """
    found: list[Any] = []
    left = limit
    more: Any = query
    while more is not None and (left is None or left > 0):
        if left is not None:
            more = replace(more, limit=min(more.limit, left))
        answer = await desk.answer(question, more)
        found.append(getattr(answer, question.lines))
        left = None if left is None else left - len(found[-1])
        more = question.next_page(more, answer)
    return found, more


async def _await(work: Awaitable[T]) -> T:
    return await work


def _store_desk(store: "Store", config: Config) -> Desk:
    import secrets
    from functools import partial

    from dragoman.auth.keys import make_key
    from dragoman.dialects.registry import push_forms
    from dragoman.engine.admin.stored_answers import StoreDesk
    from dragoman.engine.spending import spending_rules
    from dragoman.push.announcer import StoredBodies

    mint, sender = partial(make_key, secrets.token_bytes), StoredBodies(push_forms())
    teams = {team.id: team.agents for team in config.teams}
    return StoreDesk(store, operator(), mint, sender, config.prices, _blobs(config), teams, spending_rules(config))


def _blobs(config: Config) -> "BlobStore | None":
    """The place of the store's large files; None if they are in the store."""
    if config.files is None:
        return None
    from dragoman.store.open import blob_store

    return blob_store(config.files)


def _reason(status: int, body: bytes) -> str:
    """Why a server refused, in its own words if it said so."""
    import msgspec

    from dragoman.bindings.openapi.document import ErrorAnswer

    try:
        error = msgspec.json.decode(body, type=ErrorAnswer).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return f"answers with HTTP status {status} and no reason: is it Dragoman's?"
    faults = [
        f"{fault.get('field')}: {fault.get('description')}"
        for detail in error.details
        for fault in detail.get("fieldViolations", ())
    ]
    text = "; ".join(faults) or error.message
    return "".join(sign if sign.isprintable() else "?" for sign in text)
