// Follows a stream.

import { askedFor, reach } from "./call.js";
import { ConnectionError, GapError, ResetError, WeirError, transient } from "./errors.js";
import { parseBatch } from "./payload.js";
import { EventParser } from "./sse.js";
import { Scope, wait, waitOrWake } from "./wait.js";

/**
 * @typedef {object} Position a place in a stream. It can be saved as JSON
 * @property {number} seq the sequence number of the last batch that was yielded
 * @property {string} created when the stream was created. An id can be used again, and this time tells two streams with
 *   the same id apart
 */

/**
 * @typedef {object} SubscribeOptions
 * @property {"head" | "oldest"} [cursor] where to start. `head`, the default: with batches published from now on; `oldest`:
 *   with the oldest stored batch
 * @property {number | Position} [after] starts with the first batch above this sequence number, or continues an earlier
 *   subscription at its `position`. If batches in between were evicted, the first thing yielded is a gap
 * @property {AbortSignal} [signal] ends the loop, without an error
 * @property {number} [silence] milliseconds without any data, not even a heartbeat, after which the connection is considered
 *   dead; 45,000 by default, which is three heartbeats at the default settings of the service
 * @property {number} [giveUp] milliseconds without a connection after which the loop throws the last error; by default it
 *   retries forever
 * @property {() => void} [onOpen] called when a connection is open, which means that the service has sent the position of the
 *   subscription
 * @property {(error: Error, wait: number) => void} [onRetry] called when the connection breaks or cannot be opened, with the
 *   reason and the number of milliseconds until the next attempt
 */

/** @typedef {"idle" | "connecting" | "open" | "waiting" | "ended"} State `idle`: no loop runs; `waiting`: for the next attempt */

const defaultRetry = 1000; // milliseconds, if the service sends no retry value
const minReconnect = 50; // lower limit from the second failure on, even if the service asks for less
const maxReconnect = 30_000;
const defaultSilence = 45_000;

/**
 * Subscription yields every batch from its starting point on, each once and in order. It reconnects when the connection
 * breaks or the service restarts. Missing batches are yielded as a batch with a `gap`. The loop ends when the stream is
 * deleted or expires, when it is closed and read to its end, or when the signal is aborted. The loop throws a
 * {@link ResetError} if the stream was deleted and created again or restored from an older backup, and a {@link WeirError}
 * that a retry cannot fix, such as an unknown stream or a revoked key.
 *
 * It connects when a loop starts. A second loop over the same subscription continues after the last batch that was yielded.
 *
 * @template [T=any] the type of the events
 */
export class Subscription {
  #caller;
  #path;
  #parse;
  #options;
  /** @type {number | undefined} */
  #seq;
  #created = "";
  #reached = false; // whether the stream has reached #seq. A program can also start after a sequence in the future
  #cursor;
  #retry = defaultRetry;
  #failures = 0;
  /** @type {State} */
  #state = "idle";
  /** @type {string | undefined} */
  #ended;

  /**
   * Internal: use {@link Client.subscribe}.
   *
   * @param {import("./call.js").Caller} caller
   * @param {string} path of the stream
   * @param {(text: string) => any} parse
   * @param {SubscribeOptions} [options]
   */
  constructor(caller, path, parse, options = {}) {
    const { cursor = "head", after } = options;
    if (cursor !== "head" && cursor !== "oldest") throw new TypeError('cursor must be "head" or "oldest"; to continue after a sequence number, use after');
    this.#caller = caller;
    this.#path = path;
    this.#parse = parse;
    this.#options = options;
    this.#cursor = cursor;
    if (after === undefined) return;
    const { seq, created } = typeof after === "number" ? { seq: after, created: "" } : after ?? {};
    if (!Number.isSafeInteger(seq) || seq < 0 || typeof created !== "string") throw new TypeError("after must be a sequence number or a position");
    this.#seq = seq;
    this.#created = created;
    this.#reached = created !== ""; // the position of an earlier subscription, so the stream has reached it
  }

  /**
   * The position of the subscription: after the last batch that was yielded. It is undefined until the service has sent the
   * position at which the subscription starts, and while nothing was ever stored in the stream. A program that saves the
   * position passes it as `after` in its next run.
   *
   * @returns {Position | undefined}
   */
  get position() {
    return this.#seq === undefined ? undefined : { seq: this.#seq, created: this.#created };
  }

  /**
   * The options with which another subscription continues where this one stands, even before the first batch.
   *
   * @returns {{after: Position} | {cursor: "head" | "oldest"}}
   */
  get resume() {
    const after = this.position;
    return after ? { after } : { cursor: this.#cursor };
  }

  /** The current state of the subscription. */
  get state() {
    return this.#state;
  }

  /** Why the service ended the subscription: `stream_deleted`, `expired` or `stream_closed`; undefined before that. */
  get ended() {
    return this.#ended;
  }

  /** @returns {AsyncGenerator<import("./payload.js").Batch<T>, void, void>} */
  async *[Symbol.asyncIterator]() {
    const { signal, onRetry, giveUp = Infinity } = this.#options;
    let unanswered = performance.now(); // the time since which there has been no connection
    try {
      while (this.#state !== "ended" && !signal?.aborted) {
        try {
          for await (const batch of this.#follow(giveUp - (performance.now() - unanswered))) {
            if (batch) yield batch;
            unanswered = performance.now();
            if (signal?.aborted) return;
          }
        } catch (error) {
          if (signal?.aborted) return;
          if (!transient(error)) throw error;
          const pause = this.#pause(error);
          if (performance.now() + pause - unanswered >= giveUp) throw error;
          this.#state = "waiting";
          onRetry?.(/** @type {Error} */ (error), pause);
          // A page that is online or visible again reconnects at once, unless the service asked it to wait.
          await (askedFor(error) > 0 ? wait : waitOrWake)(pause, signal).catch(() => {}); // an aborted signal ends the loop
        }
      }
    } finally {
      if (this.#state !== "ended") this.#state = "idle";
    }
  }

  /**
   * Yields the events of a json stream, one by one. `onGap` is called for missing batches. Without `onGap` the loop throws a
   * {@link GapError} for them; another loop continues after the gap.
   *
   * @param {{onGap?: (gap: import("./payload.js").Gap) => void}} [options]
   * @returns {AsyncGenerator<T, void, void>}
   */
  async *events({ onGap } = {}) {
    for await (const { gap, events } of this) {
      if (gap && !onGap) throw new GapError(gap);
      if (gap) onGap?.(gap);
      yield* events;
    }
  }

  /**
   * Returns the events as a stream, for `pipeTo` and the like. Cancelling the stream ends the subscription.
   *
   * @param {{onGap?: (gap: import("./payload.js").Gap) => void}} [options] as for {@link Subscription.events}
   * @returns {ReadableStream<T>}
   */
  readable(options) {
    const scope = new Scope(this.#options.signal);
    this.#options = { ...this.#options, signal: scope.signal };
    const events = this.events(options);
    return new ReadableStream(
      {
        async pull(controller) {
          const { done, value } = await events.next();
          if (!done) return controller.enqueue(value);
          scope.close();
          controller.close();
        },
        async cancel() {
          scope.close();
          await events.return();
        },
      },
      { highWaterMark: 0 }, // nothing is read ahead, so that the position is not ahead of the reader
    );
  }

  /**
   * How long to wait before reconnecting: after the first failure the time that the service asked for, and twice as long
   * after each further failure. A random part is added, because the service asks all subscribers for the same time.
   *
   * @param {unknown} error
   */
  #pause(error) {
    const first = this.#failures === 0 ? this.#retry : Math.max(this.#retry, minReconnect);
    const doubled = Math.min(first * 2 ** Math.min(this.#failures++, 10), Math.max(maxReconnect, this.#retry));
    return (askedFor(error) || doubled) * (1 + Math.random() / 2);
  }

  /**
   * Connects once and yields the batches of that connection. It also yields undefined after each read, to show that the
   * connection works. Returns when the stream has ended, and throws when the connection ends for another reason.
   *
   * @param {number} left milliseconds until the subscription gives up, unless the service answers
   * @returns {AsyncGenerator<import("./payload.js").Batch | undefined, void, void>}
   */
  async *#follow(left) {
    const { signal, silence = defaultSilence, onOpen } = this.#options;
    const dead = new ConnectionError("the service is silent: no data arrived, not even a heartbeat");
    const scope = new Scope(signal);
    this.#state = "connecting";
    try {
      scope.alarm(Math.min(silence, left), dead);
      if (this.#reached && this.#created) await this.#checkPosition(scope);
      const response = await this.#caller.open(this.#call(), scope);
      const type = response.headers.get("content-type") ?? "";
      if (!response.body || type.split(";")[0].trim() !== "text/event-stream") {
        throw new ConnectionError(`unexpected response, not from Weir: not an event stream, but ${type || "without a content type"}`);
      }
      this.#compare(response.headers.get("x-svc-stream-created") ?? "");
      const reader = response.body.getReader();
      const parser = new EventParser();
      for (const opened = performance.now(); ; ) {
        scope.alarm(silence, dead); // armed only while reading: a slow loop must not look like a dead connection
        const { done, value } = await reach(scope, () => reader.read());
        scope.silence();
        if (performance.now() - opened > maxReconnect) this.#failures = 0; // the connection is stable, even if nothing is published
        if (done) throw new ConnectionError("the service closed the connection");
        const events = parser.push(value);
        this.#retry = parser.retry ?? this.#retry;
        this.#stand(parser.position);
        if (this.#state === "connecting" && (parser.position !== undefined || events.length > 0)) {
          this.#state = "open";
          onOpen?.();
        }
        yield undefined;
        for (const event of events) {
          this.#failures = 0;
          if (event.name === "end") {
            this.#state = "ended";
            this.#ended = JSON.parse(event.data).reason;
            return;
          }
          const batch = this.#read(event);
          if (!batch || batch.seq <= (this.#seq ?? -1)) continue; // an unknown event, or a batch that was already yielded
          this.#seq = batch.seq;
          this.#reached = true;
          yield batch;
        }
      }
    } finally {
      scope.close();
    }
  }

  /**
   * Throws if the stream was deleted and created again under the same id. The position has no meaning in the new stream, so
   * a resumed subscription would skip batches or wait forever.
   *
   * @param {string} created
   */
  #compare(created) {
    if (this.#created && created && created !== this.#created) throw new ResetError(this.#created, created);
    this.#created ||= created;
  }

  /**
   * Throws if the stream no longer reaches the position. After a restore from an older backup the stream ends earlier, and a
   * resumed subscription would wait, and then skip what is published up to its old position.
   *
   * @param {Scope} scope
   */
  async #checkPosition(scope) {
    const response = await this.#caller.open({ method: "GET", path: `${this.#path}/cursor` }, scope);
    const text = await reach(scope, () => response.text());
    let cursor;
    try {
      ({ cursor } = JSON.parse(text));
    } catch {
      // handled below
    }
    if (!Number.isSafeInteger(cursor)) throw new ConnectionError("unexpected response, not from Weir: it is not a cursor");
    this.#compare(response.headers.get("x-svc-stream-created") ?? "");
    if (cursor >= /** @type {number} */ (this.#seq)) return;
    throw new ResetError(this.#created, this.#created, `the stream ends at ${cursor}, below the position ${this.#seq}: it was restored from a backup`);
  }

  /**
   * Takes the position from the first frame of the connection, so that the subscription resumes there if the connection
   * breaks before the first batch. If the first frame has no position, nothing was ever stored in the stream, so the
   * subscription continues with the oldest batch.
   *
   * @param {string | undefined} id
   */
  #stand(id) {
    if (id === undefined || this.#seq !== undefined) return;
    this.#reached = /^[0-9]{1,16}$/.test(id);
    if (this.#reached) this.#seq = Number(id);
    else this.#cursor = "oldest";
  }

  /** @returns {import("./call.js").Call} */
  #call() {
    // In tests with Node, a compressed subscription whose connections broke early made no progress. The fetch of Node
    // probably drops what has arrived but is not decompressed yet. Browsers ignore this field and use compression.
    const headers = { accept: "text/event-stream", "accept-encoding": "identity" };
    const start = this.#cursor === "oldest" ? "0" : "head";
    if (this.#seq === undefined) return { method: "GET", path: `${this.#path}?cursor=${start}`, headers };
    return { method: "GET", path: this.#path, headers: { ...headers, "last-event-id": String(this.#seq) } };
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
