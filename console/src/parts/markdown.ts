// Markdown of agents and callers is hostile. It is only taken apart here (by marked's lexer); components show the tokens
// as elements of their own. No HTML is ever made from it: markup in the text is shown as text.

import { Lexer, type Token } from "marked";

const CHARACTERS_MAX = 200_000;

export type { Token };

/** The tokens of a text. A very long text is shown as one plain paragraph, because taking it apart takes too long. */
export function tokens(text: string): readonly Token[] {
  if (text.length > CHARACTERS_MAX) return [{ type: "text", raw: text, text }];
  return new Lexer({ gfm: true, breaks: true }).lex(text);
}

const SAFE_LINK = /^(https?|mailto):/i;

/**
 * A link that may be followed, spelled as browsers read it, or null. Relative links would lead into the console, so they
 * count as none.
 */
export function safeLink(url: string): string | null {
  const trimmed = url.trim();
  return SAFE_LINK.test(trimmed) && URL.canParse(trimmed) ? new URL(trimmed).href : null;
}

/** Text may contain character references; they stand for characters, never for markup. */
export function plain(text: string): string {
  return text.replace(/&(amp|lt|gt|quot|#39);/g, (_, name: string) => REFERENCES[name] ?? "");
}

const REFERENCES: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'" };
