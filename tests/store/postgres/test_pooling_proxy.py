"""Behind a proxy that pools transactions, the driver does the same, since it keeps nothing on a connection."""

from collections.abc import AsyncIterator

import pytest

from dragoman.model.ids import SystemClock
from dragoman.store.open import check_store, copy_store, open_store
from dragoman.store.postgres.database.address import parse_address
from dragoman.store.postgres.database.pool import Pool
from tests.pooling_proxy import PoolingProxy, pooling
from tests.postgres import PostgresServer
from tests.store.cases import test_appends, test_deliveries, test_replicas
from tests.store.cases.bench import Bench, Case, cases_of, new_task

CASES = cases_of(test_appends)[:3] + cases_of(test_replicas) + cases_of(test_deliveries)[:2]


@pytest.fixture
async def proxy(postgres_server: PostgresServer) -> AsyncIterator[PoolingProxy]:
    async with pooling(postgres_server.port) as opened:
        yield opened


@pytest.fixture
def proxied_url(proxy: PoolingProxy, postgres_url: str) -> str:
    return proxy.url_of(postgres_url)


async def test_a_proxy_is_noticed_and_nothing_is_prepared(proxied_url: str, postgres_url: str) -> None:
    for url, proxied in ((proxied_url, True), (postgres_url, False)):
        pool = Pool(parse_address(url))
        await (await pool.connect()).close()
        assert pool.proxied is proxied
        assert await pool.read("SELECT count(*) > 0 FROM pg_prepared_statements") == [(not proxied,)]
        await pool.close()


async def test_each_transaction_may_meet_another_connection(proxied_url: str) -> None:
    pool = Pool(parse_address(f"{proxied_url}?pool_size=1"))
    pids = {(await pool.read("SELECT pg_backend_pid()"))[0][0] for _ in range(6)}
    assert len(pids) > 1, "or this proves nothing"
    async with pool.transaction() as connection:
        within = {await connection.fetchval("SELECT pg_backend_pid()") for _ in range(6)}
    assert len(within) == 1
    await pool.close()


@pytest.mark.parametrize("case", CASES, ids=[case.__name__ for case in CASES])  # type: ignore[attr-defined]
async def test_the_store_conforms(case: Case, used_postgres_url: str, proxy: PoolingProxy) -> None:
    url = proxy.url_of(used_postgres_url)
    await case(Bench(lambda clock: open_store(url, clock), durable=True))


async def test_a_store_is_copied_through_it(proxied_url: str, tmp_path: str) -> None:
    file = f"sqlite:///{tmp_path}/store.db"
    store = open_store(file, SystemClock())
    await store.open("h1")
    await store.create(new_task("t1"))
    await store.close()
    await copy_store(file, proxied_url, lambda progress: None)
    assert await check_store(proxied_url) == []
