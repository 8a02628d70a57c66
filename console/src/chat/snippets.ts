// The same message as a command or a program to copy. Secrets are never in them: they say $KEY.

import { agentUrl, type SendRequest } from "./a2a";

export type Language = "curl" | "Python" | "JavaScript";

export const LANGUAGES: readonly Language[] = ["curl", "Python", "JavaScript"];

export function snippet(language: Language, agent: string, request: SendRequest, keyed: boolean): string {
  const url = agentUrl(agent);
  switch (language) {
    case "curl":
      return curl(url, request, keyed);
    case "Python":
      return python(url, request, keyed);
    case "JavaScript":
      return javascript(url, request, keyed);
  }
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

function curl(url: string, request: SendRequest, keyed: boolean): string {
  return [
    `curl -N ${quoted(`${url}/message:stream`)} \\`,
    `  -H 'A2A-Version: 1.0' -H 'Content-Type: application/json' \\`,
    ...(keyed ? [`  -H "x-api-key: $KEY" \\`] : []),
    `  -d ${quoted(JSON.stringify(request))}`,
  ].join("\n");
}

function textOf(request: SendRequest): string {
  return request.message.parts.map((part) => part.text ?? "").join("\n");
}

function python(url: string, request: SendRequest, keyed: boolean): string {
  const credentials = keyed ? `, credentials=ApiKey(os.environ["KEY"])` : "";
  return [
    `import asyncio`,
    ...(keyed ? [`import os`] : []),
    ``,
    `from dragoman.client import ${keyed ? "ApiKey, " : ""}connect`,
    ``,
    ``,
    `async def main() -> None:`,
    `    async with connect(${JSON.stringify(url)}${credentials}) as agent:`,
    `        async for update in agent.stream(${JSON.stringify(textOf(request))}):`,
    `            print(update)`,
    ``,
    ``,
    `asyncio.run(main())`,
  ].join("\n");
}

function javascript(url: string, request: SendRequest, keyed: boolean): string {
  return [
    `const answer = await fetch(${JSON.stringify(`${url}/message:stream`)}, {`,
    `  method: "POST",`,
    `  headers: {`,
    `    "A2A-Version": "1.0",`,
    `    "Content-Type": "application/json",`,
    ...(keyed ? [`    "x-api-key": process.env.KEY,`] : []),
    `  },`,
    `  body: JSON.stringify(${JSON.stringify(request)}),`,
    `});`,
    `for await (const chunk of answer.body.pipeThrough(new TextDecoderStream())) {`,
    `  process.stdout.write(chunk);`,
    `}`,
  ].join("\n");
}
