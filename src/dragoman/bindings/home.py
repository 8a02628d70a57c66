"""The page at `/`, for people who open the server's address in a browser.

Invariant: the page shows only what the public cards show, and no text of an agent becomes markup. It has no script and
loads nothing, and its content security policy forbids both.
"""

from base64 import b64encode
from collections.abc import Collection, Mapping
from hashlib import sha256
from html import escape
from urllib.parse import quote

from dragoman import __version__
from dragoman.bindings.http import NOT_SNIFFED, HttpRequest, HttpResponse
from dragoman.bindings.request import Header
from dragoman.dialects import ai_catalog
from dragoman.dialects.cards import WELL_KNOWN
from dragoman.dialects.system import AGENT, Mount
from dragoman.model.card import Described, Profile

AGENTS_MAX = 100
"""How many agents are shown; a page of `GET /agents` has as many."""

TEXT_MAX = 500
"""How much of a description is shown, in characters."""

STYLE = """
:root { color-scheme: light dark; --line: light-dark(#d9dce1, #3a3f47); --quiet: light-dark(#59606b, #a4acb8); }
body { font: 1rem/1.55 system-ui, sans-serif; max-width: 44rem; margin: 3rem auto; padding: 0 1.25rem;
  color: light-dark(#1c2026, #e6e9ee); background: light-dark(#fff, #16191e); overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: 0 0 .5rem; }
h2 { font-size: 1.1rem; margin: 2.25rem 0 .25rem; }
a { color: light-dark(#0b57b0, #8ab8ff); }
code { font: .875rem/1.4 ui-monospace, monospace; }
ul { list-style: none; margin: 0; padding: 0; }
li { padding: .9rem 0; border-top: 1px solid var(--line); }
li:first-child { border-top: 0; }
li p { margin: .15rem 0; }
.quiet { color: var(--quiet); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .35rem 1.25rem; margin: .75rem 0 0; }
dd { margin: 0; }
"""


class Home:
    """The page of a server with these agents; `default` answers where a path names no agent.

    `console`: the server has a console, which the page links to.
    """

    def __init__(
        self,
        agents: Mapping[str, Described],
        default: str,
        mounts: Collection[Mount],
        public_url: str | None,
        *,
        console: bool,
    ) -> None:
        self._agents = agents
        self._default = default
        self._mount = AGENT if AGENT in mounts else next(iter(mounts))
        self._public_url = public_url
        self._console = console
        digest = b64encode(sha256(STYLE.encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
        self._headers: list[Header] = [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-security-policy", policy.encode() + b"frame-ancestors 'none'"),
            (b"referrer-policy", b"no-referrer"),
            (b"cache-control", b"no-cache"),
            (b"vary", b"Accept"),
            NOT_SNIFFED,
        ]

    def page(self, request: HttpRequest) -> HttpResponse | None:
        """The page, if the request is for `/` and accepts HTML, as browsers do; else None."""
        if request.path != "/" or request.method not in ("GET", "HEAD") or not _takes_html(request):
            return None
        base = request.base_url(self._public_url)
        body = self._html(base).encode()
        catalog = f'<{base}{ai_catalog.PATH}>; rel="{ai_catalog.RELATION}"'
        found: list[Header] = [(b"link", catalog.encode()), (b"content-length", b"%d" % len(body))]
        return HttpResponse(200, [*self._headers, *found], body)

    def _html(self, base: str) -> str:
        by_id = self._mount.names_agents
        shown = [agent.profile for name, agent in self._agents.items() if by_id or name == self._default]
        agents = "\n".join(self._agent(base, profile) for profile in shown[:AGENTS_MAX])
        lists = self._mount is AGENT
        hidden = f"{len(shown) - AGENTS_MAX} more" if len(shown) > AGENTS_MAX else ""
        more = _link(f"{base}/agents", hidden) if hidden and lists else hidden
        described = f"{_link(f'{base}/docs', 'described')}, {_link(f'{base}/openapi.json', 'as OpenAPI')}"
        people = f"Operators use {_link(f'{base}/console', 'the console')}." if self._console else ""
        rows = [
            ("Default agent", _link(base + WELL_KNOWN[0], "its card")),
            *([("All agents", _link(f"{base}/agents", "as JSON"))] if lists else []),
            ("State", f"{_link(f'{base}/health', 'alive')}, {_link(f'{base}/ready', 'ready for work')}"),
            *([("HTTP API", described)] if lists else []),
            ("Protocol", _link("https://a2a-protocol.org/", "a2a-protocol.org")),
            ("Documentation", "the folder <code>docs</code> of Dragoman's source, and <code>dragoman --help</code>"),
        ]
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Dragoman</title>
<style>{STYLE}</style>
</head>
<body>
<h1>Dragoman</h1>
<p>This server speaks the Agent2Agent (A2A) protocol. Programs send messages to the agents below. Each agent
has a card, which says what the agent can do, at which addresses, and whether callers need a key. {people}</p>
<h2>Agents</h2>
<ul>
{agents}
</ul>
{f"<p>{more}</p>" if more else ""}
<h2>For programs</h2>
<dl>
{"".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows)}
</dl>
<p class="quiet">Version {escape(__version__)}</p>
</body>
</html>
"""

    def _agent(self, base: str, profile: Profile) -> str:
        path = self._mount.path.replace("{id}", quote(profile.id, safe=""))
        at = base + path.rstrip("/")
        said = profile.description
        description = said if len(said) <= TEXT_MAX else said[:TEXT_MAX] + "…"
        default = ' <span class="quiet">(default)</span>' if profile.id == self._default else ""
        return (
            f"<li><p><strong><bdi>{escape(profile.name[:TEXT_MAX])}</bdi></strong>{default}</p>"
            f"<p><bdi>{escape(description)}</bdi></p>"
            f'<p>{_link(at + WELL_KNOWN[0], "Card")} <code class="quiet">{escape(at or base)}</code></p></li>'
        )


def _link(url: str, text: str) -> str:
    return f'<a href="{escape(url)}">{escape(text)}</a>'


def _takes_html(request: HttpRequest) -> bool:
    """Whether the caller names HTML in Accept; curl's `*/*` does not count."""
    for item in request.items(b"accept"):
        kind, *parameters = (part.strip().lower() for part in item.split(";"))
        if kind == "text/html":
            return not any(_is_zero(parameter) for parameter in parameters)
    return False


def _is_zero(parameter: str) -> bool:
    """Whether a parameter is a weight of zero, which refuses the type (RFC 9110 §12.4.2)."""
    name, _, value = parameter.partition("=")
    return name == "q" and value.strip("0.") == ""
