// @ts-check
// A bar chart as SVG, from names and numbers.

const WIDTH = 480;
const ROW = 28;
const LABELS = 120;

const ESCAPED = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/**
 * The chart of `values`; throws a TypeError that says what is wrong with them.
 * @param {unknown} values names with numbers that are not negative
 * @returns {string}
 */
export function chart(values) {
  if (values === null || typeof values !== "object" || Array.isArray(values)) throw new TypeError("send an object");
  const bars = Object.entries(values);
  if (bars.length === 0) throw new TypeError("the object is empty");
  for (const [name, value] of bars) {
    if (typeof value !== "number" || !(value >= 0)) throw new TypeError(`${name} is no number from 0 on`);
  }
  const largest = Math.max(...bars.map(([, value]) => value)) || 1;
  const rows = bars.map(([name, value], row) => {
    const y = row * ROW;
    const width = ((WIDTH - LABELS - 60) * value) / largest;
    return `<text x="0" y="${y + 18}">${escape(name)}</text>
<rect x="${LABELS}" y="${y + 4}" width="${width.toFixed(1)}" height="20" fill="#0f766e"/>
<text x="${(LABELS + width + 6).toFixed(1)}" y="${y + 18}">${value}</text>`;
  });
  const height = bars.length * ROW;
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="13">
${rows.join("\n")}
</svg>
`;
}

/** @param {string} text */
const escape = (text) => text.replace(/[&<>"]/g, (sign) => ESCAPED[/** @type {keyof typeof ESCAPED} */ (sign)]);
