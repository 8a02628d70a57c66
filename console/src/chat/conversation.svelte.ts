// A conversation with one agent: what was said on both sides, and the task that the last message belongs to.

import { session } from "../lib/session.svelte";
import { newRequest, NO_OPTIONS, type MessageOptions, type SendRequest, type SentPart } from "./a2a";
import { localAgent, type Peer } from "./peer";
import { addFrame, beginTurn, isAtWork, readTurn, waits, type Turn } from "./turn";

/** Frames that come at once are shown at once: more often nobody can read. */
const SHOWN_MS = 40;

export class Conversation {
  turns = $state.raw<readonly Turn[]>([]);
  #stop = new AbortController();
  #sending: AbortController | undefined;
  #canceled = false;
  #changed: () => void;

  /** `changed` is called after each turn. */
  constructor(
    readonly peer: Peer,
    turns: readonly Turn[] = [],
    changed: () => void = () => undefined,
  ) {
    this.turns = turns;
    this.#changed = changed;
    const last = turns.at(-1);
    if (last !== undefined && isAtWork(last) && peer.follow !== undefined) {
      void this.#take(turns.length - 1, { ...last, running: true }, peer.follow(last.taskId ?? "", this.#stop.signal));
    }
  }

  get busy(): boolean {
    return this.turns.at(-1)?.running ?? false;
  }

  /** The request that a message with these parts becomes: it continues a task that waits for an answer. */
  request(parts: readonly SentPart[], options: MessageOptions = NO_OPTIONS): SendRequest {
    const context = options.context || (this.turns.findLast((turn) => turn.contextId !== null)?.contextId ?? "");
    return newRequest(parts, { ...options, context }, this.#waiting);
  }

  /** Whether a new message would be lost, or taken for the answer to a question. */
  get open(): boolean {
    return this.busy || this.#waiting !== null;
  }

  /** The task that waits for an answer. */
  get #waiting(): string | null {
    const last = this.turns.at(-1);
    return last !== undefined && waits(last) ? last.taskId : null;
  }

  /** Send a request: one made of parts by `request`, or one that was written by hand. */
  async send(sent: SendRequest): Promise<void> {
    this.#sending = new AbortController();
    this.#canceled = false;
    const signal = AbortSignal.any([this.#stop.signal, this.#sending.signal]);
    await this.#take(this.turns.length, beginTurn(sent), this.peer.stream(sent, signal));
  }

  /** Cancel the task of the last turn, which ends it. Without a task yet, or a second time, only stop to listen. */
  async stop(): Promise<void> {
    const last = this.turns.at(-1);
    if (last === undefined || !last.running) return;
    if (last.taskId === null || this.#canceled) {
      this.#sending?.abort();
      return;
    }
    this.#canceled = true;
    await this.call(this.turns.length - 1, "task:cancel");
  }

  /** Read or cancel the task of a turn. */
  async call(index: number, action: "task" | "task:cancel"): Promise<void> {
    const turn = this.turns[index];
    if (turn === undefined || turn.taskId === null) return;
    try {
      const event = await this.peer.call(action, turn.taskId);
      if (!(this.turns[index]?.running ?? false)) this.#change(index, (now) => addFrame(now, JSON.stringify(event)));
      this.#change(index, (now) => ({ ...now, error: null }));
    } catch (problem) {
      this.#change(index, (now) => ({ ...now, error: wordsOf(problem) }));
    }
    this.#changed();
  }

  /** Leave the conversation. Tasks go on. */
  close(): void {
    this.#stop.abort();
  }

  async #take(index: number, begun: Turn, frames: AsyncGenerator<string>): Promise<void> {
    let turn = begun;
    const seen = [...begun.frames];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const show = (): void => {
      clearTimeout(timer);
      timer = undefined;
      const error = turn.error ?? this.turns[index]?.error ?? null;
      const shown = { ...turn, frames: [...seen], error };
      this.turns = [...this.turns.slice(0, index), shown, ...this.turns.slice(index + 1)];
    };
    show();
    try {
      for await (const frame of frames) {
        seen.push(frame);
        turn = { ...addFrame(turn, frame), frames: [] }; // copies of all that came before would take longer each time
        timer ??= setTimeout(show, SHOWN_MS);
      }
    } catch (problem) {
      if (this.#stop.signal.aborted) return clearTimeout(timer);
      if (!(this.#sending?.signal.aborted ?? false)) turn = { ...turn, error: wordsOf(problem) };
    }
    turn = { ...turn, running: false };
    show();
    this.#changed();
  }

  #change(index: number, changed: (turn: Turn) => Turn): void {
    this.turns = this.turns.map((each, at) => (at === index ? changed(each) : each));
  }
}

function wordsOf(problem: unknown): string {
  return problem instanceof Error ? problem.message : String(problem);
}

/** Conversations with agents of this server go on while other pages are shown, and are read again after a reload. */
const KEPT = "dragoman-talk:";

/** More than that of one conversation is not kept for a reload; the tasks themselves are in the store. */
const KEPT_CHARACTERS = 500_000;

type KeptTurn = Pick<Turn, "sent" | "frames" | "error">;

class Conversations {
  #open = new Map<string, Conversation>();

  constructor() {
    session.onEnd(() => {
      for (const each of this.#open.values()) each.close();
      this.#open.clear();
      for (const name of Object.keys(sessionStorage)) if (name.startsWith(KEPT)) sessionStorage.removeItem(name);
    });
  }

  /** The conversation with an agent of this server, as it was left. */
  of(agent: string, keyed: boolean): Conversation {
    const found = this.#open.get(agent);
    return found ?? this.#begin(agent, keyed, this.#read(agent));
  }

  /** A new one in its place. */
  renew(agent: string, keyed: boolean): Conversation {
    this.#open.get(agent)?.close();
    sessionStorage.removeItem(KEPT + agent);
    return this.#begin(agent, keyed, []);
  }

  #begin(agent: string, keyed: boolean, turns: readonly Turn[]): Conversation {
    const talk: Conversation = new Conversation(localAgent(agent, keyed), turns, () => this.#keep(agent, talk));
    this.#open.set(agent, talk);
    return talk;
  }

  #keep(agent: string, talk: Conversation): void {
    if (this.#open.get(agent) !== talk) return;
    const turns: string[] = [];
    let characters = 0;
    for (const { sent, frames, error } of [...talk.turns].reverse()) {
      const text = JSON.stringify({ sent, frames, error } satisfies KeptTurn);
      characters += text.length;
      if (characters > KEPT_CHARACTERS) break;
      turns.unshift(text);
    }
    try {
      sessionStorage.setItem(KEPT + agent, `[${turns.join(",")}]`);
    } catch {
      sessionStorage.removeItem(KEPT + agent); // there is no room: a reload forgets it
    }
  }

  #read(agent: string): readonly Turn[] {
    try {
      const kept = JSON.parse(sessionStorage.getItem(KEPT + agent) ?? "[]") as readonly KeptTurn[];
      return kept.map(({ sent, frames, error }) => readTurn(sent, frames, error));
    } catch {
      return [];
    }
  }
}

export const conversations = new Conversations();
