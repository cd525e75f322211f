// The service as one key sees it.

import { Caller } from "./call.js";
import { WeirError, codeOf } from "./errors.js";
import { parseBatch, payloadOf, randomName, typeJSON } from "./payload.js";
import { ackOf, atCall, nextCall } from "./publish.js";
import { Publisher } from "./publisher.js";
import { Subscription } from "./subscription.js";

/**
 * @typedef {object} ClientOptions
 * @property {string} url the root address of the service, such as `https://weir.example.com`
 * @property {string} [key] is sent with every request; without one only the demo stream can be read
 * @property {number} [attempts] how often a call is made until it succeeds, the first time included; 4 without it.
 *   Publishers and subscriptions are not bound by it
 * @property {number} [timeout] bounds each attempt, in milliseconds; 60,000 without it. A subscription is not bound by it
 * @property {typeof fetch} [fetch] carries the requests instead of the fetch that is there
 * @property {(text: string) => any} [parse] reads the JSON of batches instead of JSON.parse, which rounds large numbers
 * @property {(event: any) => string | undefined} [stringify] writes the JSON of an event instead of JSON.stringify
 */

/**
 * @typedef {object} Stream
 * @property {string} id
 * @property {string} name
 * @property {Date} createdAt
 * @property {number} retentionSeconds
 * @property {number} maxBytes
 * @property {number} cursor the highest sequence, 0 while nothing was stored
 * @property {number} bytesStored
 * @property {"json" | "raw"} mode
 */

/**
 * @typedef {object} NewStream
 * @property {string} name
 * @property {number} [retentionSeconds]
 * @property {number} [maxBytes]
 * @property {"json" | "raw"} [mode]
 * @property {string} [id] the client makes one where it is left out, so that creating can be tried again
 */

/** @typedef {{signal?: AbortSignal}} CallOptions */

/** Client is a service as one key sees it. It holds nothing open, and needs no closing. */
export class Client {
  #caller;
  #parse;
  #stringify;

  /** @param {ClientOptions} options */
  constructor({ url, key = "", attempts = 4, timeout = 60_000, fetch = globalThis.fetch, parse = JSON.parse, stringify = JSON.stringify }) {
    if (!/^[\x21-\x7e]*$/.test(key)) throw new TypeError("the key holds a character that no key has");
    if (typeof fetch !== "function") throw new TypeError("there is no fetch here: it takes Node 20, or a browser of these years");
    this.#caller = new Caller(baseOf(url), { key, attempts, timeout, fetch });
    this.#parse = (/** @type {string} */ text) => parse(text);
    this.#stringify = (/** @type {any} */ event) => stringify(event);
  }

  /**
   * Creates a stream.
   *
   * @param {NewStream} stream
   * @param {CallOptions} [options]
   * @returns {Promise<Stream>}
   */
  async createStream({ name, retentionSeconds, maxBytes, mode, id = randomName() }, { signal } = {}) {
    const body = JSON.stringify({ id, name, retention_seconds: retentionSeconds, max_bytes: maxBytes, mode });
    const call = /** @type {const} */ ({ method: "POST", path: "/v1/streams", payload: { contentType: typeJSON, body } });
    const answer = await this.#caller.send(call, signal, async (error) => {
      if (error.code !== "stream_name_taken") throw error;
      const made = await this.#caller.send({ method: "GET", path: pathOf(id) }, signal);
      if (made.json().name !== name) throw error;
      return made;
    });
    return streamOf(answer.json());
  }

  /**
   * Yields the streams that the key may read, from the newest to the oldest, page by page.
   *
   * @param {CallOptions & {pageSize?: number}} [options]
   * @returns {AsyncGenerator<Stream, void, void>}
   */
  async *streams({ pageSize = 100, signal } = {}) {
    for (let token = ""; ; ) {
      const path = `/v1/streams?limit=${pageSize}${token && `&cursor=${encodeURIComponent(token)}`}`;
      const page = (await this.#caller.send({ method: "GET", path }, signal)).json();
      for (const stream of page.data) yield streamOf(stream);
      if (!page.has_more) return;
      token = page.next_cursor;
    }
  }

  /**
   * Returns a stream as it stands.
   *
   * @param {string | {id: string}} stream
   * @param {CallOptions} [options]
   * @returns {Promise<Stream>}
   */
  async stream(stream, { signal } = {}) {
    return streamOf((await this.#caller.send({ method: "GET", path: pathOf(stream) }, signal)).json());
  }

  /**
   * Deletes a stream with all its batches. Its subscriptions end.
   *
   * @param {string | {id: string}} stream
   * @param {CallOptions} [options]
   * @returns {Promise<void>}
   */
  async deleteStream(stream, { signal } = {}) {
    await this.#caller.send({ method: "DELETE", path: pathOf(stream) }, signal, (error) => {
      if (error.code !== "stream_not_found") throw error;
    });
  }

  /**
   * Returns the highest sequence of a stream, and when it was stored.
   *
   * @param {string | {id: string}} stream
   * @param {CallOptions} [options]
   * @returns {Promise<{cursor: number, updatedAt: Date}>}
   */
  async cursor(stream, { signal } = {}) {
    const { cursor, updated_at: at } = (await this.#caller.send({ method: "GET", path: `${pathOf(stream)}/cursor` }, signal)).json();
    return { cursor, updatedAt: new Date(at) };
  }

  /**
   * Fetches one batch. One that was evicted or never stored is refused with the code `stream_not_found`.
   *
   * @param {string | {id: string}} stream
   * @param {number} seq
   * @param {CallOptions} [options]
   * @returns {Promise<import("./payload.js").Batch>}
   */
  async batch(stream, seq, { signal } = {}) {
    const answer = await this.#caller.send({ method: "GET", path: `${pathOf(stream)}/batches/${seqOf(seq)}` }, signal);
    if (answer.isJSON()) return parseBatch(answer.text(), this.#parse);
    return { seq, events: [], contentType: answer.contentType, data: answer.bytes };
  }

  /**
   * Stores a batch under the next sequence, which the service chooses. It carries an idempotency key, so that it is tried
   * again without being stored twice; a program that brings its own can repeat the call after a restart too.
   *
   * @param {string | {id: string}} stream
   * @param {any[] | ArrayBuffer | ArrayBufferView} payload events, or bytes for a raw stream
   * @param {CallOptions & {idempotencyKey?: string}} [options]
   * @returns {Promise<import("./publish.js").Ack>}
   */
  async publish(stream, payload, { idempotencyKey = randomName(), signal } = {}) {
    if (!/^[\x21-\x7e]{1,255}$/.test(idempotencyKey)) throw new TypeError("an idempotency key is 1 to 255 visible ASCII characters");
    const call = nextCall(pathOf(stream), idempotencyKey, payloadOf(payload, this.#stringify));
    return ackOf(await this.#caller.send(call, signal));
  }

  /**
   * Stores a batch under a sequence that the caller chose, which can be repeated without risk. When the sequence was stored
   * before, the acknowledgement says so, and what was stored first stays.
   *
   * @param {string | {id: string}} stream
   * @param {number} seq
   * @param {any[] | ArrayBuffer | ArrayBufferView} payload events, or bytes for a raw stream
   * @param {CallOptions} [options]
   * @returns {Promise<import("./publish.js").Ack>}
   */
  async publishAt(stream, seq, payload, { signal } = {}) {
    const call = atCall(pathOf(stream), seqOf(seq), payloadOf(payload, this.#stringify));
    return ackOf(await this.#caller.send(call, signal));
  }

  /**
   * Opens a publisher, which must be closed. It asks for the stream first. With a key that may publish and not read, the
   * service chooses the sequence of the first batch, and the others follow it.
   *
   * @param {string | {id: string}} stream
   * @param {import("./publisher.js").PublisherOptions & CallOptions} [options] the signal is for opening alone
   * @returns {Promise<Publisher>}
   */
  async publisher(stream, { signal, ...options } = {}) {
    let known;
    try {
      known = await this.stream(stream, { signal });
    } catch (error) {
      if (codeOf(error) !== "project_forbidden") throw error;
    }
    return new Publisher(this.#caller, pathOf(stream), this.#stringify, known, options);
  }

  /**
   * Follows a stream: `for await (const batch of client.subscribe(stream, { cursor: 0 }))`.
   *
   * @param {string | {id: string}} stream
   * @param {import("./subscription.js").SubscribeOptions} [options]
   */
  subscribe(stream, options) {
    return new Subscription(this.#caller, pathOf(stream), this.#parse, options);
  }
}

/** @param {string | URL} text */
function baseOf(text) {
  let url;
  try {
    url = new URL(text);
  } catch {
    throw new TypeError("the url of the service cannot be read"); // and is not repeated: it may hold a password
  }
  if (!/^https?:$/.test(url.protocol)) throw new TypeError("the url of the service is not a http or https address");
  if (url.username || url.password) throw new TypeError("the url of the service holds a user name: the key is an option of its own");
  if (url.search || url.hash) throw new TypeError("the url of the service may not have a query or a fragment");
  return url.origin + url.pathname.replace(/\/+$/, "");
}

/** @param {string | {id: string}} stream */
function pathOf(stream) {
  const id = typeof stream === "string" ? stream : stream?.id;
  if (typeof id !== "string" || !/^[0-9A-Za-z]{22}$/.test(id)) {
    throw new WeirError("invalid_stream_id: a stream is named by 22 base62 characters", { code: "invalid_stream_id" });
  }
  return `/v1/streams/${id}`;
}

/** @param {number} seq */
function seqOf(seq) {
  if (!Number.isSafeInteger(seq) || seq < 0) throw new TypeError("a sequence is an integer from 0 to 2^53-1");
  return seq;
}

/** @param {any} object @returns {Stream} */
function streamOf({ id, name, created_at: at, retention_seconds: retentionSeconds, max_bytes: maxBytes, cursor, bytes_stored: bytesStored, mode }) {
  return { id, name, createdAt: new Date(at), retentionSeconds, maxBytes, cursor, bytesStored, mode };
}
