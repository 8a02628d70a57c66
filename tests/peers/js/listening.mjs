// Serves an application at a port of its own, and says where. The process ends when its standard input does.

import express from "express";

/** Serves what `fill` adds to the application, and prints its URL. */
export function serve(fill) {
  const app = express();
  const server = app.listen(0, "127.0.0.1", () => {
    const url = `http://127.0.0.1:${server.address().port}`;
    fill(app, url);
    process.stdout.write(`${url}\n`);
  });
  process.stdin.resume().on("end", () => process.exit(0));
}

/** Tells of its work ten times a second until it is stopped, a minute at most. */
export class Slow {
  #stops = new Map();

  run(taskId, tell) {
    return new Promise((stop) => {
      this.#stops.set(taskId, stop);
      let n = 0;
      tell(n++);
      const timer = setInterval(() => (n < 600 && this.#stops.has(taskId) ? tell(n++) : clearInterval(timer)), 100);
    });
  }

  stop(taskId) {
    this.#stops.get(taskId)?.();
    this.#stops.delete(taskId);
  }
}
