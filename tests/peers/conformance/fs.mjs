// Node's `fs`, with the one name that Node 20 lacks.
import fs from "node:fs";

export * from "node:fs";
export default fs;
export const globSync =
  fs.globSync ??
  (() => {
    throw new Error("globSync needs Node 22");
  });
