"""Whatever agents, callers and other servers send, the console shows it as text, and goes on working."""

import json
import re
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from playwright.async_api import Browser, Locator, expect

from tests.console.browser import DRAWN, WIDE, console
from tests.console.hostile import LONG, LONG_NAME, NAMES, PAYLOADS
from tests.console.site import Site, moment, open_task, replay, timeline
from tests.net.peer import listening, says

MARKUP = "script, iframe, object, embed, style, link, form, base, meta, [onerror], [onload], [onclick], [srcdoc]"
"""Elements and attributes that the console never makes of content."""

HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)
"""Characters that are not seen, or that turn the text beside them."""

pytestmark = [pytest.mark.slow, pytest.mark.peer]


TOLD = """shown => [shown.innerText, ...[...shown.querySelectorAll("[title], [aria-label]")].flatMap(
    (each) => [each.getAttribute("title") ?? "", each.ariaLabel ?? ""])]"""
"""All that an element says: its text, and that of its titles and labels."""


async def check_harmless(shown: Locator, forms: int = 0) -> None:
    """Check that content became no markup, that links lead to the web, and that no text hides anything.

    `forms` are the console's own.
    """
    assert await shown.locator(MARKUP).count() == forms
    links = await shown.locator("a").evaluate_all("links => links.map((link) => link.protocol)")
    assert set(links) <= {"http:", "https:", "mailto:"}
    assert [text for text in await shown.evaluate(TOLD) if HIDDEN.search(text)] == []
    await shown.page.evaluate(DRAWN)
    assert await shown.page.evaluate("() => document.documentElement.scrollWidth") <= WIDE["width"]


HIDING = "ab\u202ec\x1b[31m\u200b\r\n\tde\x00\u2066\u00ad\N{TAG LATIN SMALL LETTER A}\u2028f"
SHOWN = "ab‹U+202E›c‹U+001B›[31m‹U+200B›\n\tde‹U+0000›‹U+2066›‹U+00AD›‹U+E0061›‹U+2028›f"

SELECTED = """code => { getSelection().selectAllChildren(code); return getSelection().toString(); }"""


async def test_texts_show_what_is_hidden_in_them_and_are_copied_as_they_are_shown(
    browser: Browser, used_site: Site
) -> None:
    context = "c\x1b[201~\n\u202e"
    task = await used_site.send(
        "echo", {"text": HIDING}, {"text": HIDING, "mediaType": "text/x-shell"}, {"data": HIDING}, context=context
    )
    await used_site.send("echo", {"text": "a family 👩\u200d👩\u200d👧, and نوشته\u200cها"}, context=context)
    async with console(browser, used_site.url, used_site.token) as (page, _):
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await open_task(page, used_site, task)
        code = moment(page).get_by_role("article").first.locator("pre code")
        await expect(code).to_have_text(SHOWN, use_inner_text=True)
        assert await code.evaluate(SELECTED) == SHOWN
        main = page.get_by_role("main")
        await check_harmless(main)
        await page.get_by_role("tab", name="The wire").click()
        frames = page.get_by_role("region", name="Frames by dialect")
        artifact = frames.get_by_role("rowgroup").filter(has=page.get_by_text("artifact", exact=True))
        await artifact.first.get_by_role("button", name="frame").first.click()
        await expect(frames).to_contain_text("ab\\u202ec\\u001b[31m\\u200b")
        await expect(frames).to_contain_text("\\udb40\\udc61")
        await check_harmless(main)
        for path in ("/tasks", "/conversations", "", "/audit", "/usage"):
            await page.goto(f"{used_site.url}/console{path}")
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
            if path == "/tasks":
                await expect(main).to_contain_text("a family 👩\u200d👩\u200d👧, and نوشته\u200cها")
            if path in ("/tasks", ""):
                await expect(main).to_contain_text("abc[31m de")
            if path == "/conversations":
                await expect(main).to_contain_text("ab‹U+202E›c‹U+001B›[31m‹U+200B› de")
            await check_harmless(main)
        await page.goto(f"{used_site.url}/console/conversations")
        await page.get_by_role("link", name="ab‹U+202E›c").first.click()
        await page.get_by_role("button", name="Copy the context's id").click()
        assert await page.evaluate("() => navigator.clipboard.readText()") == "c‹U+001B›[201~‹U+000A›‹U+202E›"


@pytest.mark.parametrize("place", ["text", "data", "name", "artifact"])
async def test_no_content_of_a_task_becomes_markup_or_leaves_the_page(
    browser: Browser, used_site: Site, place: str
) -> None:
    parts: list[dict[str, Any]] = []
    for payload in PAYLOADS:
        match place:
            case "text":
                parts.append({"text": payload})
            case "data":
                parts.append({"data": {payload: payload}})
            case "name":
                parts.append({"raw": "aGk=", "filename": payload, "mediaType": payload})
            case _:
                parts.append({"raw": "PHN2Zz48c2NyaXB0PmFsZXJ0KDEpPC9zY3JpcHQ+PC9zdmc+", "mediaType": "image/svg+xml"})
                parts.append({"url": payload, "filename": "x"})
    task = await used_site.send("echo", *parts)
    async with console(browser, used_site.url, used_site.token) as (page, _):
        await open_task(page, used_site, task)
        await expect(moment(page).get_by_role("article")).to_have_count(2)
        await check_harmless(moment(page))
        await page.get_by_role("tab", name="The wire").click()
        await expect(page.get_by_role("region", name="Frames by dialect")).to_be_visible()


async def test_no_card_of_an_agent_becomes_markup_or_passes_for_the_console_s_own_words(
    browser: Browser, used_site: Site
) -> None:
    async with console(browser, used_site.url, used_site.token) as (page, _):
        await page.get_by_role("link", name="Agents").first.click()
        await page.get_by_role("button", name="Card of hostile").press("Enter")
        card = page.get_by_role("region", name="The card of hostile")
        await expect(card.get_by_role("listitem")).to_have_count(len(NAMES))
        await check_harmless(page.locator("main"))
        await expect(card).to_contain_text("‹U+202E›gpj.exe")
        await expect(card.locator("dd").filter(has_text=re.compile(r"^\s*no key\s*$"))).to_have_count(1)
        await expect(card.get_by_text(re.compile(f"{len(LONG):,} characters")).first).to_be_visible()
        assert await card.locator("img").count() == 0
        await page.goto(f"{used_site.url}/console/try?agent=hostile")
        await page.get_by_role("button", name="Options").click()
        await expect(page.get_by_role("checkbox", name="<script>alert(1)</script>", exact=True)).to_be_disabled()
        await page.get_by_role("checkbox", name="completed").check()
        await expect(page.get_by_role("region", name="The same from a program")).to_contain_text(
            "'A2A-Extensions: completed'"
        )
        await check_harmless(page.locator("main"), forms=1)
        await page.get_by_label("Message to hostile").fill("hello")
        await page.keyboard.press("Enter")
        await expect(
            page.get_by_role("region", name="Conversation").get_by_role("link", name="its timeline")
        ).to_be_visible()


async def test_a_long_task_with_hostile_names_is_shown_and_replayed(browser: Browser, used_site: Site) -> None:
    task = await used_site.send("artifacts")
    await used_site.send("artifacts", task=task)
    async with console(browser, used_site.url, used_site.token) as (page, _):
        async with page.expect_response(re.compile(r"/moment$")):
            await open_task(page, used_site, task)
        await expect(moment(page).get_by_role("article").last).to_contain_text(NAMES[-1])
        await check_harmless(moment(page))
        await expect(moment(page)).to_contain_text(f"{len(LONG_NAME):,} characters")
        await expect(timeline(page)).to_contain_text("Artifact operator:local answered")
        await check_harmless(timeline(page))
        await (await replay(page)).fill("10")
        await expect(moment(page)).to_have_attribute("aria-busy", "false")
        await check_harmless(moment(page))


async def test_messages_with_one_and_the_same_id_are_all_shown(browser: Browser, used_site: Site) -> None:
    task = await used_site.send("asks", {"text": "first"}, message_id="same", context="twins")
    await used_site.send("asks", {"text": "second"}, message_id="same", task=task)
    async with console(browser, used_site.url, used_site.token) as (page, _):
        await open_task(page, used_site, task)
        await expect(moment(page).get_by_role("article")).to_contain_text(
            ["first", "Which way?", "second", "so second"]
        )
        await page.goto(f"{used_site.url}/console/conversations/twins")
        await expect(page.get_by_role("region", name=f"Task {task}")).to_contain_text("so second")


async def test_nothing_that_receivers_of_webhooks_say_reaches_the_page(browser: Browser, used_site: Site) -> None:
    async def take(request: web.Request) -> web.Response:
        return web.Response(
            text="".join(NAMES), content_type="text/html", reason="<img src=x>", headers={"Retry-After": "<b>"}
        )

    receiver = web.Application()
    receiver.router.add_post("/{path:.*}", take)
    async with TestServer(receiver) as hook, console(browser, used_site.url, used_site.token) as (page, _):
        task = await used_site.send("echo", webhook=f"{hook.make_url('/')}<img/src=x/onerror=alert(1)>")
        await open_task(page, used_site, task, "?tab=webhooks")
        calls = page.get_by_role("region", name="Webhook calls")
        await expect(calls.get_by_role("row").filter(has_text="HTTP 200 in").first).to_be_visible()
        await check_harmless(page.locator("main"))
        await calls.get_by_role("button", name="Call").first.click()
        await expect(page.get_by_role("dialog")).to_contain_text("HTTP 200, in")
        await check_harmless(page.get_by_role("dialog"))


async def test_no_agent_elsewhere_breaks_the_conversation_with_it(browser: Browser, used_site: Site) -> None:
    """Nor the examination of it, even if all that its card and its answers say is hostile."""
    twin = {"artifactId": "twin", "name": "twin", "parts": [{"text": "one of two"}]}
    said = {"messageId": "twin", "role": "ROLE_AGENT", "parts": [{"text": "said"}]}
    place = {"taskId": "\u202et<b>", "contextId": "c"}
    frames = [
        {
            "task": {
                "id": "\u202et<b>",
                "contextId": "c",
                "status": {"state": "TASK_STATE_WORKING"},
                "artifacts": [twin, twin],
            }
        },
        *({"artifactUpdate": {**place, "artifact": {**twin, "artifactId": each, "name": each}}} for each in NAMES),
        *({"statusUpdate": {**place, "status": {"state": "TASK_STATE_WORKING", "message": said}}} for _ in range(2)),
        {"statusUpdate": {**place, "status": {"state": "TASK_STATE_COMPLETED", "message": said}}},
    ]
    lines = (f"data: {json.dumps({'jsonrpc': '2.0', 'id': 1, 'result': frame})}\n\n" for frame in frames)
    async with listening() as peer, console(browser, used_site.url, used_site.token) as (page, _):
        peer.scripts["POST /rpc"] = says("".join(lines).encode(), headers={"Content-Type": "text/event-stream"})
        peer.scripts["GET /card.json"] = says(
            {
                "name": "\u202eevil" + LONG,
                "version": LONG,
                "skills": [{"id": name, "name": name, "tags": [name, 7, None]} for name in NAMES],
                "supportedInterfaces": [
                    {"url": f"{peer.url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
                    *({"url": name, "protocolBinding": name, "protocolVersion": name} for name in NAMES),
                ],
                "capabilities": {
                    "streaming": True,
                    "extensions": [{"uri": name, "description": name} for name in NAMES],
                },
                "securitySchemes": {name: {"type": name} for name in NAMES},
            }
        )
        await page.goto(f"{used_site.url}/console/try?at=elsewhere")
        url = page.get_by_label("URL of the agent or of its card")
        await url.fill(f"{peer.url}/card.json")
        await page.get_by_role("button", name="Read the card").click()
        await page.get_by_text("Its card", exact=True).click()
        await page.get_by_label("Message to ‹U+202E›evil").fill("hello")
        await page.keyboard.press("Enter")
        talk = page.get_by_role("region", name="Conversation")
        await expect(talk.get_by_text("completed", exact=True).last).to_be_visible()
        await expect(talk.get_by_role("article").filter(has_text="one of two")).to_have_count(2 + len(set(NAMES)))
        await check_harmless(page.locator("main"), forms=2)
        peer.scripts["GET /not.json"] = says("".join(NAMES).encode(), headers={"Content-Type": "text/html"})
        await url.fill(f"{peer.url}/not.json")
        await page.get_by_role("button", name="Read the card").click()
        await expect(page.get_by_role("alert")).to_contain_text("no agent card")
        await check_harmless(page.locator("main"), forms=2)
        await page.get_by_role("link", name="Doctor").click()
        for path in ("card", "not"):
            await url.fill(f"{peer.url}/{path}.json")
            await page.get_by_role("button", name="Examine").click()
            await expect(page.get_by_role("group", name="Findings by colour")).to_be_visible()
            await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
            await check_harmless(page.locator("main"), forms=1)
