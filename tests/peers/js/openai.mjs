// The official OpenAI client for Node against a server: `node openai.mjs BASE_URL [WORD …]`.

import OpenAI from "openai";

import { baseUrl, collect, refused, run, same } from "./report.mjs";

const api = new OpenAI({ baseURL: `${baseUrl()}/v1`, apiKey: "any", maxRetries: 2 });

/** What a person says to the agent `trip`, and what it answers. */
const WORDS = [["book a trip", "From where?"], ["Lyon", "To where?"], ["Oslo", "Booked: from Lyon to Oslo"]];

const chat = {
  async completion() {
    const answer = await api.chat.completions.create({
      model: "echo",
      messages: [{ role: "user", content: "hello you" }],
    });
    same(answer.choices[0].message.content, "hello you", "text");
    same(answer.usage.total_tokens, 4, "tokens");
  },

  async stream() {
    const stream = await api.chat.completions.create({
      model: "countdown",
      messages: [{ role: "user", content: "3 every 0.05" }],
      stream: true,
    });
    const chunks = await collect(stream);
    same(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join(""), "3\n2\n1\n", "text");
  },

  /** The conversation is sent with every message, and no header of ours. */
  async question() {
    const messages = [];
    for (const [content, shown] of WORDS) {
      messages.push({ role: "user", content });
      const answer = await api.chat.completions.create({ model: "trip", messages });
      messages.push(answer.choices[0].message);
      same(answer.choices[0].message.content.slice(0, shown.length), shown, "answer");
    }
  },
};

const responses = {
  async completion() {
    const made = await api.responses.create({ model: "echo", input: "hello you" });
    same([made.output_text, made.status], ["hello you", "completed"], "response");
    const read = await api.responses.retrieve(made.id);
    same([read.id, read.output, read.usage], [made.id, made.output, made.usage], "the same response");
  },

  async stream() {
    const input = "9 every 0.05";
    const begun = await api.responses.create({ model: "countdown", input, background: true, stream: true });
    const seen = [];
    for await (const event of begun) {
      seen.push(event);
      if (seen.length === 7) break; // the client leaves
    }
    const id = seen[0].response.id;
    const rest = await collect(await api.responses.retrieve(id, { stream: true, starting_after: 6 }));
    const whole = await collect(await api.responses.retrieve(id, { stream: true }));
    same([...seen, ...rest], whole, "events");
    same(whole.at(-1).response.output[0].content[0].text, "9\n8\n7\n6\n5\n4\n3\n2\n1\n", "text");
  },

  async question() {
    let before;
    for (const [input, shown] of WORDS) {
      const answer = await api.responses.create({ model: "trip", input, previous_response_id: before });
      same(answer.output_text, shown, "answer");
      before = answer.id;
    }
  },

  async cancel() {
    const begun = await api.responses.create({ model: "countdown", input: "99 every 0.1", background: true });
    same((await api.responses.cancel(begun.id)).status, "cancelled", "status");
  },

  async refusals() {
    await refused(OpenAI.NotFoundError, () => api.responses.create({ model: "nobody", input: "hi" }));
    await refused(OpenAI.NotFoundError, () => api.responses.retrieve("resp_nothing"));
    await refused(OpenAI.NotFoundError, () => api.embeddings.create({ model: "echo", input: "hi" }));
  },
};

await run(
  Object.entries({ chat, responses }).flatMap(([lane, scenarios]) =>
    Object.entries(scenarios).map(([name, scenario]) => [`${lane}/${name}`, scenario]),
  ),
);
