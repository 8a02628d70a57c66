"""A server whose callers have keys: who they are, and what each of them may do."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from dragoman.model.principal import AccessRole
from tests.kit.places import add_key, beside, sqlite_url
from tests.systems.conftest import Site, site


class Holder(Struct, frozen=True, kw_only=True):
    """Somebody with a key. Holders of one `name` are one principal; `limits` are fields of the key."""

    name: str
    limits: Mapping[str, Any] = MappingProxyType({})


ANNA = {"anna": Holder(name="anna"), "anna again": Holder(name="anna"), "ben": Holder(name="ben")}
"""Two callers, the first with two keys."""

WORKERS = {
    "worker": Holder(name="worker", limits={"role": AccessRole.AGENT, "agents": ("desk",)}),
    "other worker": Holder(name="other-worker", limits={"role": AccessRole.AGENT, "agents": ("other",)}),
}


class House(Struct, frozen=True):
    """A server, and the keys to it by their holders. `store` is where both are kept."""

    site: Site
    keys: Mapping[str, str]
    ids: Mapping[str, str]
    store: str

    def by(self, holder: str) -> Site:
        """The server, for this one."""
        return self.site.by(self.keys[holder])


def secret_of(key: str) -> str:
    """The secret part of a key. The secret is base64url and may itself hold an underscore."""
    _, _, secret = key.split("_", 2)
    return secret


@asynccontextmanager
async def keyed(folder: Path, holders: Mapping[str, Holder], **changes: Any) -> AsyncIterator[House]:
    """A server with these settings, on a store that has a key for each."""
    url = sqlite_url(folder)
    keys: dict[str, str] = {}
    ids: dict[str, str] = {}
    async with beside(url) as store:
        for holder, who in holders.items():
            ids[holder], keys[holder] = await add_key(store, who.name, **who.limits)
    async with site(store=url, **changes) as running:
        yield House(running, keys, ids, url)
