// Names, ids, URLs, reports and texts of agents and callers as they may be shown and copied: some characters in them are
// invisible, steer a terminal, break the line, or turn the direction of what stands beside them. Those are shown as their
// codes, so that nothing can look like something else, or do something where it is pasted.

const NAME_CHARACTERS = 200;
const REPORT_CHARACTERS = 4000;

/** Joiners are left as they are: emoji and Persian are written with them. */
const HIDDEN = /(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** The same in a text, which has lines, and may have signs of Arabic that count as format characters but are seen. */
const HIDDEN_IN_TEXT = /(?![\t\n\u200c\u200d\u0600-\u0605\u06dd\u0890\u0891\u08e2])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** A name on one line: its beginning, if it is long. */
export function nameOf(text: string): string {
  return cut(text, NAME_CHARACTERS).replace(HIDDEN, code);
}

/** The title of a task, which begins with the words of its first message: without their marks of Markdown. */
export function titleOf(text: string): string {
  const plain = /\|\s*:?-{3,}/.test(text) ? text.replace(/:?-{3,}:?/g, "").replace(/\s*\|[\s|]*/g, " ") : text; // a table
  return nameOf(
    plain
      .replace(/^\s*(?:#{1,6}|>|[-*+])\s+/, "")
      .replace(/(\*\*|__|`)(\S(?:.*?\S)?)\1/g, "$2")
      .trim(),
  );
}

/** Several sentences, whose line breaks count as blanks: their beginning, if they are long. */
export function reportOf(text: string): string {
  return cut(text, REPORT_CHARACTERS)
    .replace(/[\t\n\r]+/g, " ")
    .replace(HIDDEN, code);
}

/** A whole name on one line. */
export function lineOf(text: string): string {
  return text.replace(HIDDEN, code);
}

/** A text with its lines and tabs, from its first character to its last. */
export function textOf(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(HIDDEN_IN_TEXT, code);
}

/** The text of JSON in which such characters are escaped. Between its values there are none. */
export function jsonTextOf(text: string): string {
  return text.replace(HIDDEN_IN_TEXT, (character) => character.split("").map(escaped).join(""));
}

/** JSON in which such characters are escaped so that JSON, JavaScript and Python read the same ones. */
export function jsonOf(value: unknown): string {
  return ((JSON.stringify(value) as string | undefined) ?? "undefined").replace(HIDDEN, escaped);
}

function cut(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, most)}… (${text.length.toLocaleString("en")} characters)`;
}

function code(character: string): string {
  return `‹U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}›`;
}

/** Characters beyond the first plane stay as they are: the three spell their escapes differently. */
function escaped(character: string): string {
  return character.length === 1 ? `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}` : character;
}
