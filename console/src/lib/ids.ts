// Ids in the path of an address. Callers choose some of them, such as contexts.

/** Browsers take these for folders, however they are escaped (WHATWG URL, "single-dot and double-dot segment"). */
const FOLDER = /^\.{1,2}$/;
const MARK = "~";

/** An id as one segment of a path. A tilde stands before an id that no path can hold, and before one that has a tilde. */
export function toSegment(id: string): string {
  return (FOLDER.test(id) || id.startsWith(MARK) ? MARK : "") + encodeURIComponent(id);
}

/** The id of a segment. One that nobody can have made is taken as it is. */
export function fromSegment(segment: string): string {
  let id: string;
  try {
    id = decodeURIComponent(segment);
  } catch {
    return segment;
  }
  return id.startsWith(MARK) ? id.slice(MARK.length) : id;
}
