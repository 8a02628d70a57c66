"""The doctor's own webhook hears its call, and no other."""

import asyncio
from urllib.parse import urlsplit

from dragoman.doctor.webhook import open_webhook
from dragoman.net.egress import Egress


async def test_a_webhook_hears_its_call_and_no_other() -> None:
    egress = Egress()
    async with open_webhook("127.0.0.1") as webhook:
        assert webhook is not None
        other = f"http://{urlsplit(webhook.url).netloc}/other"
        assert (await egress.request("POST", other, timeout_s=60, body=b"{}")).status == 404
        assert not await webhook.wait(0)
        assert (await egress.request("POST", webhook.url, timeout_s=60, body=b"{}" * 50_000)).status == 200
        assert await webhook.wait(60)
        _, left = await asyncio.open_connection(urlsplit(webhook.url).hostname, urlsplit(webhook.url).port)
    left.close()
    await egress.close()
