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

class Session {
  state = $state<SignIn>("unknown");
  principal = $state("");
  /** Empty for operators of the server, who may use everything. */
  team = $state("");
  proof = "";
  #ended = new Set<() => void>();

  /** Be told when the session has ended. */
  onEnd(ended: () => void): void {
    this.#ended.add(ended);
  }

  /** Sign in with the token in the URL's fragment, if the server's banner was clicked; else look for a session. */
  async begin(): Promise<void> {
    const token = new URLSearchParams(location.hash.slice(1)).get("token");
    if (token !== null) {
      history.replaceState(null, "", location.pathname + location.search);
      if ((await this.signIn(token)) === null) return;
    }
    const answer = await fetch(PLACE);
    if (answer.ok) this.#enter((await answer.json()) as SessionAnswer);
    else this.state = "out";
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
    return null;
  }

  async signOut(): Promise<void> {
    await fetch(PLACE, { method: "DELETE", headers: { "x-dragoman-proof": this.proof } });
    this.lose();
  }

  /** The server no longer knows the session. */
  lose(): void {
    for (const ended of this.#ended) ended();
    this.state = "out";
    this.proof = "";
    this.principal = "";
    this.team = "";
  }

  #enter(answer: SessionAnswer): void {
    this.principal = answer.principal;
    this.team = answer.team ?? "";
    this.proof = answer.proof;
    this.state = "in";
  }
}

export const session = new Session();
