type Part = { text?: string; data?: unknown; raw?: string; url?: string; filename?: string; mediaType?: string };
type Task = { lease: string; expires_s: number; message: { parts: Part[] } };

const server = process.argv[2] ?? "http://127.0.0.1:7870";

/** One call of the worker API, again and again while the server is away; null when there is nothing to answer. */
async function call<Answer>(action: string, body: object): Promise<Answer | null> {
  for (;;) {
    const answer = await fetch(new URL(`/workers/shout/${action}`, server), {
      method: "POST",
      headers: { "Content-Type": "application/json", "x-api-key": process.env.DRAGOMAN_API_KEY ?? "" },
      body: JSON.stringify(body),
    }).catch(() => null);
    const text = await answer?.text().catch(() => null);
    if (answer?.ok && typeof text === "string") return text ? (JSON.parse(text) as Answer) : null;
    if (answer && answer.status < 500 && !answer.ok) throw new Error(`${action}: ${answer.status} ${text}`);
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

async function work(task: Task): Promise<void> {
  const { lease } = task;
  const beat = setInterval(() => void call("heartbeat", { lease }).catch(console.error), (task.expires_s * 1000) / 3);
  try {
    const words = task.message.parts.map((part) => part.text ?? "").join(" ").split(/\s+/);
    for (const [index, word] of words.entries()) {
      const artifact = { artifactId: "result", parts: [{ text: (index > 0 ? " " : "") + word.toUpperCase() }] };
      await call("artifact", { lease, number: index + 1, confirmed: index, artifact, append: index > 0 });
    }
    await call("complete", { lease, confirmed: words.length });
  } finally {
    clearInterval(beat);
  }
}

console.log(`Working for shout at ${server}`);
for (;;) {
  const task = await call<Task>("lease", { worker: "shout-1", wait_s: 25 });
  if (task) await work(task).catch((error) => console.error(error));
}
