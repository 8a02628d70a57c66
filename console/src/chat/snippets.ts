// The same message as a command or a program to copy. Secrets are never in them: they say $KEY.

import { jsonOf } from "../lib/visible";
import type { SendRequest } from "./a2a";
import type { Address } from "./peer";

export type Language = "curl" | "Command" | "Python" | "JavaScript";

/** Only the official version 1.0 over HTTP can be written by hand; for all else there is Dragoman's client. */
export function languages(address: Address): readonly Language[] {
  const plain = address.dialect === "1.0" && (address.binding === "HTTP+JSON" || address.binding === "JSONRPC");
  return plain ? ["curl", "Command", "Python", "JavaScript"] : ["Command", "Python"];
}

export function snippet(language: Language, address: Address, request: SendRequest): string {
  switch (language) {
    case "curl":
      return curl(address, request);
    case "Command":
      return command(address, request);
    case "Python":
      return python(address, request);
    case "JavaScript":
      return javascript(address, request);
  }
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

/** The URL and the body of the call. */
function call(address: Address, request: SendRequest): readonly [string, object] {
  if (address.binding === "JSONRPC") {
    return [address.endpoint, { jsonrpc: "2.0", id: 1, method: "SendStreamingMessage", params: request }];
  }
  return [`${address.endpoint.replace(/\/$/, "")}/message:stream`, request];
}

/** The value of the header that names the extensions, if any. */
function extensionsOf(request: SendRequest): readonly string[] {
  const uris = request.message.extensions ?? [];
  return uris.length === 0 ? [] : [uris.join(", ")];
}

function keyValue(address: Address, key: string): string {
  return address.keyHeader === "Authorization" ? `Bearer ${key}` : key;
}

function curl(address: Address, request: SendRequest): string {
  const [url, body] = call(address, request);
  return [
    `curl -N ${quoted(url)} \\`,
    `  -H 'A2A-Version: 1.0' -H 'Content-Type: application/json' \\`,
    ...extensionsOf(request).map((uris) => `  -H ${quoted(`A2A-Extensions: ${uris}`)} \\`),
    ...(address.keyHeader === null ? [] : [`  -H "${address.keyHeader}: ${keyValue(address, "$KEY")}" \\`]),
    `  -d ${quoted(jsonOf(body))}`,
  ].join("\n");
}

function command(address: Address, request: SendRequest): string {
  const credential = address.keyHeader === "Authorization" ? `--bearer "$KEY"` : `--api-key "$KEY"`;
  return [
    `dragoman send ${quoted(textOf(request))}`,
    `  --agent-card ${quoted(address.url)}`,
    ...(address.keyHeader === null ? [] : [`  ${credential}`]),
    ...(address.binding === "" ? [`  --dialect ${address.dialect}`] : []),
    ...(address.binding !== "" && address.dialect === "0.3" ? ["  --a2a-version 0.3"] : []),
    ...(address.binding === "GRPC" ? ["  --transport GRPC"] : []),
  ].join(" \\\n");
}

function textOf(request: SendRequest): string {
  return request.message.parts.map((part) => part.text ?? "").join("\n");
}

function python(address: Address, request: SendRequest): string {
  const header = address.keyHeader;
  const kind = header === "Authorization" ? "BearerToken" : "ApiKey";
  const headerName =
    header === null || header === "Authorization" || header === "x-api-key" ? "" : `, ${jsonOf(header)}`;
  const credentials = header === null ? "" : `, credentials=${kind}(os.environ["KEY"]${headerName})`;
  const dialect = address.binding === "" ? `, dialect=${jsonOf(address.dialect)}` : "";
  const content = contentOf(request);
  const skill = request.metadata?.["skill"];
  const { contextId, taskId } = request.message;
  const named = [
    ...(typeof skill === "string" ? [`skill=${jsonOf(skill)}`] : []),
    ...(contextId ? [`context_id=${jsonOf(contextId)}`] : []),
    ...(taskId ? [`task_id=${jsonOf(taskId)}`] : []),
  ];
  return [
    `import asyncio`,
    ...(content.includes("json.") ? [`import json`] : []),
    ...(header === null ? [] : [`import os`]),
    ...(content.includes("Path(") ? [`from pathlib import Path`] : []),
    ``,
    ...(content.includes("Part(") ? [`from dragoman import Part`] : []),
    `from dragoman.client import ${header === null ? "" : `${kind}, `}connect`,
    ``,
    ``,
    `async def main() -> None:`,
    `    async with connect(${jsonOf(address.url)}${dialect}${credentials}) as agent:`,
    `        async for update in agent.stream(${[content, ...named].join(", ")}):`,
    `            print(update)`,
    ``,
    ``,
    `asyncio.run(main())`,
  ].join("\n");
}

/** What is sent, as Python: a text, or parts. Files are read from where the program runs. */
function contentOf(request: SendRequest): string {
  const { parts } = request.message;
  if (parts.every((part) => part.text !== undefined)) return jsonOf(textOf(request));
  const made = parts.map((part) => {
    if (part.text !== undefined) return `Part(text=${jsonOf(part.text)})`;
    if (part.data !== undefined) return `Part(data=json.loads(${jsonOf(JSON.stringify(part.data))}))`;
    const name = jsonOf(part.filename ?? "file");
    return `Part(raw=Path(${name}).read_bytes(), filename=${name}, media_type=${jsonOf(part.mediaType ?? "")})`;
  });
  return `[${made.join(", ")}]`;
}

function javascript(address: Address, request: SendRequest): string {
  const [url, body] = call(address, request);
  const key = address.keyHeader === "Authorization" ? "`Bearer ${process.env.KEY}`" : "process.env.KEY";
  return [
    `const answer = await fetch(${jsonOf(url)}, {`,
    `  method: "POST",`,
    `  headers: {`,
    `    "A2A-Version": "1.0",`,
    `    "Content-Type": "application/json",`,
    ...extensionsOf(request).map((uris) => `    "A2A-Extensions": ${jsonOf(uris)},`),
    ...(address.keyHeader === null ? [] : [`    ${jsonOf(address.keyHeader)}: ${key},`]),
    `  },`,
    `  body: JSON.stringify(${jsonOf(body)}),`,
    `});`,
    `for await (const chunk of answer.body.pipeThrough(new TextDecoderStream())) {`,
    `  process.stdout.write(chunk);`,
    `}`,
  ].join("\n");
}
