// Serves an application at a port of its own, and says where. The process ends when its standard input does. Keeps the
// ledger of its agent.

import { closeSync, fsyncSync, openSync, writeSync } from "node:fs";
import { Server, ServerCredentials } from "@grpc/grpc-js";
import express from "express";

/** Serves what `fill` adds to the application and to a server of gRPC, whose address it is told, and prints the URL. */
export function serve(fill) {
  const app = express();
  const grpc = new Server();
  const server = app.listen(0, "127.0.0.1", () => {
    const url = `http://127.0.0.1:${server.address().port}`;
    grpc.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => {
      if (error) throw error;
      fill(app, url, grpc, `127.0.0.1:${port}`);
      process.stdout.write(`${url}\n`);
    });
  });
  process.stdin.resume().on("end", () => process.exit(0));
}

/** Adds an execution to the file that `LEDGER` names, if it does, and waits until the disk has it. */
export function writeDown(text) {
  if (!process.env.LEDGER) return;
  const ledger = openSync(process.env.LEDGER, "a");
  writeSync(ledger, `${JSON.stringify({ text })}\n`);
  fsyncSync(ledger);
  closeSync(ledger);
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
