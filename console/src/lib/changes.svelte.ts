// One stream of the server says what changes; whoever shows something reads it again then. The browser connects again by
// itself after a lost connection, to any server of the store, and is told what it missed.

import type { TaskChange } from "../api/schema";
import { session } from "./session.svelte";

export type Topic = "tasks" | "agents" | "servers" | "acts" | "webhooks";

const TOPICS: Readonly<Record<string, readonly Topic[]>> = {
  task: ["tasks", "agents"],
  act: ["acts", "tasks"],
  agents: ["agents"],
  workers: ["servers"],
  upstreams: ["servers"],
  replicas: ["servers"],
  webhooks: ["webhooks"],
  reset: ["tasks", "agents", "servers", "acts", "webhooks"],
};

const REOPEN_MS = 2000;

/** Is told of something that has changed, with the task if its status has. */
type Listener = (change?: TaskChange) => void;

class Changes {
  /** Whether the server answers. Every failed read says so, too. */
  lost = $state(false);
  lostSince = $state(0);
  #listeners = new Map<Topic, Set<Listener>>();
  #source: EventSource | undefined;

  /** Be told of the next changes until the function that is returned is called. */
  listen(topics: readonly Topic[], listener: Listener): () => void {
    for (const topic of topics) {
      const known = this.#listeners.get(topic) ?? new Set();
      this.#listeners.set(topic, known.add(listener));
    }
    if (this.#source === undefined) this.#open();
    return () => {
      for (const topic of topics) this.#listeners.get(topic)?.delete(listener);
    };
  }

  failed(): void {
    if (!this.lost) this.lostSince = Date.now();
    this.lost = true;
  }

  answered(): void {
    this.lost = false;
  }

  /** The operator has signed out. */
  close(): void {
    this.#source?.close();
    this.#source = undefined;
  }

  #open(): void {
    const source = new EventSource("/admin/v1/events");
    this.#source = source;
    for (const [event, topics] of Object.entries(TOPICS)) {
      source.addEventListener(event, ({ data }: MessageEvent<string>) =>
        this.#tell(topics, event === "task" ? (JSON.parse(data) as TaskChange) : undefined),
      );
    }
    source.addEventListener("open", () => this.answered());
    source.addEventListener("error", () => {
      if (source !== this.#source) return;
      this.failed();
      if (source.readyState !== EventSource.CLOSED) return; // the browser tries again
      this.close();
      setTimeout(() => {
        if (session.state === "in" && this.#source === undefined) this.#open();
      }, REOPEN_MS);
    });
  }

  #tell(topics: readonly Topic[], change?: TaskChange): void {
    const told = new Set(topics.flatMap((topic) => [...(this.#listeners.get(topic) ?? [])]));
    for (const listener of told) listener(change);
  }
}

export const changes = new Changes();

session.onEnd(() => changes.close());
