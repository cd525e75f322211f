// Following a stream.

import { askedFor, reach } from "./call.js";
import { ConnectionError, WeirError, transient } from "./errors.js";
import { parseBatch } from "./payload.js";
import { EventParser } from "./sse.js";
import { Scope, wait } from "./wait.js";

/**
 * @typedef {object} SubscribeOptions
 * @property {number | "head" | "oldest"} [cursor] where to begin: `head`, which is the default, is what is published from
 *   now on; `oldest` or 0 is the oldest batch that is kept; a number is the first batch above that sequence
 * @property {AbortSignal} [signal] ends the subscription: the loop throws its reason
 * @property {number} [silence] for how many milliseconds nothing may come, not even a heartbeat, until the connection is
 *   taken for dead; 45,000 without it, which is three heartbeats of a service with its usual settings
 * @property {(error: Error, wait: number) => void} [onRetry] is called when the connection is lost or cannot be made, with the
 *   reason, and how many milliseconds until the next try
 */

const defaultRetry = 1000; // milliseconds, where the service has no wish
const minReconnect = 50; // from the second failure on, whatever it wishes
const maxReconnect = 30_000;
const defaultSilence = 45_000;

/**
 * Subscription yields every batch from its start on, once and in order of sequences, for as long as it takes. It comes back
 * by itself when the connection is lost or the service restarts. A loss is yielded as a batch with a `gap`. The loop ends
 * when the stream is deleted, throws the signal's reason when that ends it, and throws a {@link WeirError} that trying again
 * cannot change: an unknown stream, a revoked key.
 *
 * It connects when it is looped over. Whoever leaves the loop and loops again goes on after the last batch that was yielded.
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
      if (!Number.isSafeInteger(cursor) || cursor < 0) throw new TypeError("a cursor is head, oldest, or a sequence");
      this.#position = cursor;
    } else if (!this.#oldest && cursor !== "head") {
      throw new TypeError("a cursor is head, oldest, or a sequence");
    }
  }

  /**
   * After which sequence the subscription goes on; undefined as long as that is open, because nothing was yielded yet and it
   * began at the head or at the oldest batch. A program that keeps it goes on from there in its next run.
   */
  get position() {
    return this.#position;
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
   * How long to stay away: as long as the service wants after a first failure, longer after each that follows, and a random
   * bit more, since everybody else was told the same.
   *
   * @param {unknown} error
   */
  #pause(error) {
    const first = this.#failures === 0 ? this.#retry : Math.max(this.#retry, minReconnect);
    const doubled = Math.min(first * 2 ** Math.min(this.#failures++, 10), Math.max(maxReconnect, this.#retry));
    return (askedFor(error) || doubled) * (1 + Math.random() / 2);
  }

  /**
   * Connects once and yields what comes. It returns when the stream was deleted, and throws why the connection ended.
   *
   * @returns {AsyncGenerator<import("./payload.js").Batch, void, void>}
   */
  async *#follow() {
    const { signal, silence = defaultSilence } = this.#options;
    if (this.#position === undefined && !this.#oldest) {
      // Resolved here and not by the service: a connection that is lost before the first batch could not be resumed.
      this.#position = (await this.#caller.once({ method: "GET", path: `${this.#path}/cursor` }, signal)).json().cursor;
    }
    const dead = new ConnectionError(`nothing came for ${silence} ms, not even a heartbeat`);
    const scope = new Scope(signal);
    try {
      scope.alarm(silence, dead);
      const response = await this.#caller.open(this.#call(), scope);
      const type = response.headers.get("content-type") ?? "";
      if (!response.body || type.split(";")[0].trim() !== "text/event-stream") {
        throw new WeirError(`the answer is not a subscription but ${type || "nothing"}`, { status: response.status });
      }
      const reader = response.body.getReader();
      const parser = new EventParser();
      for (const opened = Date.now(); ; ) {
        scope.alarm(silence, dead); // only while it waits: a slow loop is no dead connection
        const { done, value } = await reach(scope, () => reader.read());
        scope.silence();
        if (Date.now() - opened > maxReconnect) this.#failures = 0; // it holds, though nothing may be published
        if (done) throw new ConnectionError("the service ended the connection");
        const events = parser.push(value);
        this.#retry = parser.retry ?? this.#retry;
        for (const event of events) {
          this.#failures = 0;
          if (event.name === "end") {
            this.#over = true;
            return;
          }
          const batch = this.#read(event);
          if (!batch || batch.seq <= (this.#position ?? -1)) continue; // not known here, or seen before
          this.#position = batch.seq;
          yield batch;
          signal?.throwIfAborted();
        }
      }
    } finally {
      scope.close();
    }
  }

  /** @returns {import("./call.js").Call} */
  #call() {
    const accept = "text/event-stream";
    if (this.#position === undefined) return { method: "GET", path: `${this.#path}?cursor=0`, headers: { accept } };
    return { method: "GET", path: this.#path, headers: { accept, "last-event-id": String(this.#position) } };
  }

  /**
   * Makes a batch of an event; undefined for events that this client does not know.
   *
   * @param {import("./sse.js").ServerEvent} event
   * @returns {import("./payload.js").Batch | undefined}
   */
  #read({ name, data }) {
    if (name === "batch") return parseBatch(data, this.#parse);
    if (name !== "gap") return undefined;
    const { from, to, reason } = JSON.parse(data);
    if (!Number.isSafeInteger(from) || !Number.isSafeInteger(to) || to < from) {
      throw new WeirError(`a gap that cannot be read: ${data.slice(0, 100)}`);
    }
    return { seq: to, events: [], gap: { from, to, reason } };
  }
}
