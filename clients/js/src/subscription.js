// Follows a stream.

import { askedFor, reach } from "./call.js";
import { ConnectionError, WeirError, transient } from "./errors.js";
import { parseBatch } from "./payload.js";
import { EventParser } from "./sse.js";
import { Scope, wait } from "./wait.js";

/**
 * @typedef {object} SubscribeOptions
 * @property {number | "head" | "oldest"} [cursor] where to start. `head`, the default: with batches published from now on;
 *   `oldest` or 0: with the oldest stored batch; any other number: with the first batch above that sequence number
 * @property {AbortSignal} [signal] ends the subscription: the loop throws the reason of the signal
 * @property {number} [silence] milliseconds without any data, not even a heartbeat, after which the connection is considered
 *   dead; 45,000 by default, which is three heartbeats at the default settings of the service
 * @property {(error: Error, wait: number) => void} [onRetry] called when the connection breaks or cannot be opened, with the
 *   error and the number of milliseconds until the next attempt
 */

const defaultRetry = 1000; // milliseconds, if the service sends no retry value
const minReconnect = 50; // lower limit from the second failure on, even if the service asks for less
const maxReconnect = 30_000;
const defaultSilence = 45_000;

/**
 * Subscription yields every batch from its starting point on, each once and in order. It reconnects when
 * the connection breaks or the service restarts. Missing batches are yielded as a batch with a `gap`. The loop ends when the
 * stream is deleted. It throws the reason of the signal when the signal is aborted, and a {@link WeirError} that a retry
 * cannot fix, such as an unknown stream or a revoked key.
 *
 * It connects when a loop starts. A second loop over the same subscription continues after the last batch that was yielded.
 */
export class Subscription {
  #caller;
  #path;
  #parse;
  #options;
  /** @type {number | undefined} */
  #position;
  #oldest;
  #retry = defaultRetry;
  #failures = 0;
  #over = false;

  /**
   * @param {import("./call.js").Caller} caller
   * @param {string} path of the stream
   * @param {(text: string) => any} parse
   * @param {SubscribeOptions} [options]
   */
  constructor(caller, path, parse, options = {}) {
    const { cursor = "head" } = options;
    this.#caller = caller;
    this.#path = path;
    this.#parse = parse;
    this.#options = options;
    this.#oldest = cursor === "oldest" || cursor === 0;
    if (typeof cursor === "number" && !this.#oldest) {
      if (!Number.isSafeInteger(cursor) || cursor < 0) throw new TypeError("cursor must be head, oldest, or a sequence");
      this.#position = cursor;
    } else if (!this.#oldest && cursor !== "head") {
      throw new TypeError("cursor must be head, oldest, or a sequence");
    }
  }

  /**
   * The sequence after which the subscription continues. It is undefined while there is none: the subscription starts at the
   * head or at the oldest batch, and either has not connected yet or nothing was ever stored. A program that saves it can pass
   * it as `cursor` in its next run.
   */
  get position() {
    return this.#position;
  }

  /**
   * The `cursor` with which another subscription continues where this one stands, before the first batch too. A position of 0
   * is no such cursor, because 0 means the oldest batch: the other subscription yields a batch 0 again.
   *
   * @returns {number | "head" | "oldest"}
   */
  get cursor() {
    return this.#position ?? (this.#oldest ? "oldest" : "head");
  }

  /** @returns {AsyncGenerator<import("./payload.js").Batch, void, void>} */
  async *[Symbol.asyncIterator]() {
    const { signal, onRetry } = this.#options;
    while (!this.#over) {
      try {
        yield* this.#follow();
      } catch (error) {
        if (signal?.aborted || !transient(error)) throw error;
        const pause = this.#pause(error);
        onRetry?.(/** @type {Error} */ (error), pause);
        await wait(pause, signal);
      }
    }
  }

  /**
   * How long to wait before reconnecting: what the service asked for after the first failure, and twice as long after each
   * further one. A random part is added, because the service asked all of its subscribers for the same.
   *
   * @param {unknown} error
   */
  #pause(error) {
    const first = this.#failures === 0 ? this.#retry : Math.max(this.#retry, minReconnect);
    const doubled = Math.min(first * 2 ** Math.min(this.#failures++, 10), Math.max(maxReconnect, this.#retry));
    return (askedFor(error) || doubled) * (1 + Math.random() / 2);
  }

  /**
   * Connects once and yields the batches of that connection. Returns when the stream is deleted, and throws when the
   * connection ends for another reason.
   *
   * @returns {AsyncGenerator<import("./payload.js").Batch, void, void>}
   */
  async *#follow() {
    const { signal, silence = defaultSilence } = this.#options;
    const dead = new ConnectionError(`no data for ${silence} ms, not even a heartbeat`);
    const scope = new Scope(signal);
    try {
      scope.alarm(silence, dead);
      const response = await this.#caller.open(this.#call(), scope);
      const type = response.headers.get("content-type") ?? "";
      if (!response.body || type.split(";")[0].trim() !== "text/event-stream") {
        throw new WeirError(`the response is not an event stream: its content type is ${type || "missing"}`, { status: response.status });
      }
      const reader = response.body.getReader();
      const parser = new EventParser();
      for (const opened = Date.now(); ; ) {
        scope.alarm(silence, dead); // armed only while reading: a slow loop must not look like a dead connection
        const { done, value } = await reach(scope, () => reader.read());
        scope.silence();
        if (Date.now() - opened > maxReconnect) this.#failures = 0; // the connection is stable, even if nothing is published
        if (done) throw new ConnectionError("the service closed the connection");
        const events = parser.push(value);
        this.#retry = parser.retry ?? this.#retry;
        this.#stand(parser.position);
        for (const event of events) {
          this.#failures = 0;
          if (event.name === "end") {
            this.#over = true;
            return;
          }
          const batch = this.#read(event);
          if (!batch || batch.seq <= (this.#position ?? -1)) continue; // an unknown event, or a batch that was already yielded
          this.#position = batch.seq;
          yield batch;
          signal?.throwIfAborted();
        }
      }
    } finally {
      scope.close();
    }
  }

  /**
   * Takes the position from the first frame of the connection, so that a connection that breaks before the first batch is
   * resumed there. A service without a position has never stored anything, so everything it stores from then on is above the
   * head.
   *
   * @param {string | undefined} id
   */
  #stand(id) {
    if (id === undefined || this.#position !== undefined) return;
    if (/^[0-9]{1,16}$/.test(id)) this.#position = Number(id);
    else this.#oldest = true;
  }

  /** @returns {import("./call.js").Call} */
  #call() {
    const accept = "text/event-stream";
    const start = this.#oldest ? "0" : "head";
    if (this.#position === undefined) return { method: "GET", path: `${this.#path}?cursor=${start}`, headers: { accept } };
    return { method: "GET", path: this.#path, headers: { accept, "last-event-id": String(this.#position) } };
  }

  /**
   * Turns an event into a batch. Returns undefined for events that this client does not know.
   *
   * @param {import("./sse.js").ServerEvent} event
   * @returns {import("./payload.js").Batch | undefined}
   */
  #read({ name, data }) {
    if (name === "batch") return parseBatch(data, this.#parse);
    if (name !== "gap") return undefined;
    const { from, to, reason } = JSON.parse(data);
    if (!Number.isSafeInteger(from) || !Number.isSafeInteger(to) || to < from) {
      throw new WeirError(`cannot read a gap: ${data.slice(0, 100)}`);
    }
    return { seq: to, events: [], gap: { from, to, reason } };
  }
}
