// The operator's session. The browser keeps its secret in a cookie that no script can read; this module knows who has
// signed in, and the proof that requests which change something repeat.

interface SessionAnswer {
  readonly principal: string;
  readonly proof: string;
  readonly ends_at: string;
  /** The team of an operator of one; absent for those of the server. */
  readonly team?: string;
}

export type SignIn = "unknown" | "out" | "in";

const PLACE = "/console/session";

/** What tabs of this browser tell each other: they share the cookie of the session. */
const TABS = "dragoman-session";

class Session {
  state = $state<SignIn>("unknown");
  principal = $state("");
  /** Empty for operators of the server, who may use everything. */
  team = $state("");
  proof = "";
  /** Why nobody is signed in, if it is not for want of trying. */
  notice = $state("");
  #ended = new Set<() => void>();
  #tabs = new BroadcastChannel(TABS);

  constructor() {
    addEventListener("hashchange", () => void this.#follow());
    this.#tabs.addEventListener("message", ({ data }: MessageEvent<SignIn>) => {
      if (data === "in" && this.state === "out") void this.#look();
      if (data === "out" && this.state === "in") this.lose("You have signed out in another tab.");
    });
  }

  /** Be told when the session has ended. */
  onEnd(ended: () => void): void {
    this.#ended.add(ended);
  }

  /** Sign in with the token in the URL's fragment, if the server's banner was clicked; else look for a session. */
  async begin(): Promise<void> {
    if (!(await this.#follow())) await this.#look();
  }

  /** Returns null, or why the server refused. */
  async signIn(secret: string): Promise<string | null> {
    const answer = await fetch(PLACE, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ secret }),
    });
    if (!answer.ok) {
      const refusal = (await answer.json().catch(() => null)) as { error?: { message?: string } } | null;
      return refusal?.error?.message ?? `the server answered ${answer.status}`;
    }
    this.#enter((await answer.json()) as SessionAnswer);
    this.#tabs.postMessage("in" satisfies SignIn);
    return null;
  }

  /** End the session here, and that at the provider that vouched for it: its page comes then. */
  async signOut(): Promise<void> {
    const answer = await fetch(PLACE, { method: "DELETE", headers: { "x-dragoman-proof": this.proof } });
    const elsewhere = answer.status === 200 ? ((await answer.json()) as { provider: string }).provider : "";
    this.#tabs.postMessage("out" satisfies SignIn);
    this.lose("");
    if (/^https?:/.test(elsewhere)) location.assign(elsewhere);
  }

  /** The server no longer knows the session, for a reason that is told on the page of the sign-in. */
  lose(notice = "Your session has ended. Sign in again, and you are back on this page."): void {
    if (this.state !== "in") return;
    this.notice = notice;
    for (const ended of this.#ended) ended();
    this.state = "out";
    this.proof = "";
    this.principal = "";
    this.team = "";
  }

  /** Sign in with the token of a link, also in a tab that is open already; returns whether that went well. */
  async #follow(): Promise<boolean> {
    const token = new URLSearchParams(location.hash.slice(1)).get("token");
    if (token === null) return false;
    history.replaceState(null, "", location.pathname + location.search);
    if (this.state === "in") return true;
    const refused = await this.signIn(token).catch(() => "the server cannot be reached");
    this.notice = refused === null ? "" : `The link does not sign you in: ${refused}.`;
    return refused === null;
  }

  async #look(): Promise<void> {
    const answer = await fetch(PLACE);
    if (answer.ok) this.#enter((await answer.json()) as SessionAnswer);
    else this.state = "out";
  }

  #enter(answer: SessionAnswer): void {
    this.notice = "";
    this.principal = answer.principal;
    this.team = answer.team ?? "";
    this.proof = answer.proof;
    this.state = "in";
  }
}

export const session = new Session();
