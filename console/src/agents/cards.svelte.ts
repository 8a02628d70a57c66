// The cards of the agents of this server, each read when it is first shown, and again when it is shown much later.

import { SvelteMap, SvelteSet } from "svelte/reactivity";

import { ApiError } from "../api/client";
import { session } from "../lib/session.svelte";
import { cardOf, cardUrl, type Card } from "./card";

const FRESH_MS = 60_000;

class Cards {
  #found = new SvelteMap<string, Card>();
  #failed = new SvelteSet<string>();
  #askedMs = new Map<string, number>();

  constructor() {
    session.onEnd(() => {
      this.#found.clear();
      this.#failed.clear();
      this.#askedMs.clear();
    });
  }

  /** The card of an agent, as far as it is known by now: without one there is less to show. */
  of(id: string): Card | undefined {
    return this.#found.get(id);
  }

  /** Whether a card was read, or could not be. */
  settled(id: string): boolean {
    return this.#found.has(id) || this.#failed.has(id);
  }

  /** Read a card, unless it was read a moment ago. */
  want(id: string): void {
    const nowMs = Date.now();
    if (nowMs - (this.#askedMs.get(id) ?? -FRESH_MS) < FRESH_MS) return;
    this.#askedMs.set(id, nowMs);
    void readCard(id).then(
      (card) => this.#found.set(id, card),
      () => {
        this.#failed.add(id);
        this.#askedMs.delete(id);
      },
    );
  }

  /** An attachment: the card is wanted as soon as its element comes into view. */
  wantSeen(id: string): (element: HTMLElement) => () => void {
    return (element) => {
      const watcher = new IntersectionObserver((entries) => {
        if (entries.some((each) => each.isIntersecting)) this.want(id);
      });
      watcher.observe(element);
      return () => watcher.disconnect();
    };
  }
}

export const cards = new Cards();

/** Read the card of an agent of this server, in version 1.0. */
export async function readCard(id: string, signal?: AbortSignal): Promise<Card> {
  const headers = { "a2a-version": "1.0", "x-dragoman-proof": session.proof };
  const answer = await fetch(cardUrl(id), { headers, ...(signal === undefined ? {} : { signal }) });
  if (!answer.ok) throw new ApiError(answer.status, `the server answered ${answer.status}`);
  return cardOf(await answer.json());
}
