// What the backend does with Weir: create a stream, read it, write to it.

import { setTimeout } from "node:timers/promises";

import { DurableStream, IdempotentProducer } from "@durable-streams/client";

const { WEIR_URL = "http://127.0.0.1:8080", WEIR_KEY } = process.env;

export const urlOf = (path) => `${WEIR_URL}/ds/${path}`;
export const authorization = `Bearer ${WEIR_KEY}`;

/** Repeats a request until there is a response, because Weir may be restarting. The request must be safe to repeat. */
async function steadyFetch(url, init) {
  for (let wait = 50; ; wait = Math.min(2 * wait, 1000)) {
    try {
      const response = await fetch(url, { ...init, headers: { ...init?.headers, authorization } });
      if (response.status < 500 && response.status !== 429) return response;
    } catch {} // no connection
    await setTimeout(wait);
  }
}

/** Creates a stream of JSON messages. If the stream exists, nothing changes. */
export async function create(path) {
  const { status } = await steadyFetch(urlOf(path), { method: "PUT", headers: { "content-type": "application/json" } });
  if (status !== 200 && status !== 201) throw new Error(`creating ${path}: status ${status}`);
}

/** Returns the messages of a stream, and whether the stream is closed. */
export async function read(path) {
  const messages = [];
  for (let offset = "-1"; ; ) {
    const response = await steadyFetch(`${urlOf(path)}?offset=${offset}`);
    if (response.status !== 200) throw new Error(`reading ${path}: status ${response.status}`);
    messages.push(...(await response.json()));
    offset = response.headers.get("stream-next-offset");
    if (response.headers.has("stream-up-to-date")) return { messages, closed: response.headers.get("stream-closed") === "true" };
  }
}

const epoch = Date.now(); // greater after each start of the backend, so that Weir refuses what an older process still sends

/**
 * Returns a producer, which numbers its appends. Weir stores the numbers together with the append. So Weir recognises
 * a repeated append, even if it crashed between storing the append and answering.
 */
export function producer(path, id) {
  const stream = new DurableStream({ url: urlOf(path), contentType: "application/json" });
  return new IdempotentProducer(stream, id, { epoch, maxInFlight: 1, lingerMs: 0, fetch: steadyFetch });
}
