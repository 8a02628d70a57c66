// What a part of a message or an artifact is, and how it may be shown.

import type { Part } from "../api/schema";

export type Shape = "text" | "code" | "data" | "image" | "audio" | "video" | "file";

const IMAGE = /^image\/(png|jpeg|gif|webp|avif|svg\+xml)$/i;
const AUDIO = /^audio\//i;
const VIDEO = /^video\/(mp4|webm|ogg)$/i;
const CODE = /^(text\/(?!plain|markdown)|application\/(json|xml|javascript|x-sh|x-yaml|toml))/i;

export function shape(part: Part): Shape {
  const type = part.mediaType ?? "";
  if (typeof part.text === "string") return CODE.test(type) ? "code" : "text";
  if (part.data !== undefined) return "data";
  if (typeof part.raw === "string" || isOurs(part.url)) {
    if (IMAGE.test(type)) return "image";
    if (AUDIO.test(type)) return "audio";
    if (VIDEO.test(type)) return "video";
  }
  return "file";
}

/** Files in the server's own store have URLs below /files. */
export function isOurs(url: string | null | undefined): url is string {
  return typeof url === "string" && url.startsWith("/files/");
}

/** A URL for `img`, `audio`, `video`, which run no script whatever the bytes are; null if the bytes are elsewhere. */
export function mediaUrl(part: Part): string | null {
  if (isOurs(part.url)) return part.url;
  return typeof part.raw === "string" ? `data:${part.mediaType ?? ""};base64,${part.raw}` : null;
}

/** The bytes of a part as a file to download, never to be opened in this origin. */
export function blobOf(part: Part): Blob | null {
  if (typeof part.raw !== "string") return null;
  const binary = atob(part.raw.replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at += 1) bytes[at] = binary.charCodeAt(at);
  return new Blob([bytes], { type: "application/octet-stream" });
}

export function sizeOf(part: Part): number | null {
  return typeof part.raw === "string" ? Math.floor((part.raw.replace(/=+$/, "").length * 3) / 4) : null;
}

export function save(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
