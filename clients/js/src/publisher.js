// Publishing many events.

import { askedFor } from "./call.js";
import { PublishError, codeOf, transient } from "./errors.js";
import { bodyOf, bytesOf, encodeEvent, eventsOf, frame, maxBody, randomName, tooLarge, typeBytes } from "./payload.js";
import { ackOf, atCall, hasPassed, isMine, nextCall } from "./publish.js";
import { backoff } from "./wait.js";

/**
 * @typedef {object} PublisherOptions how a publisher groups, numbers and sends
 * @property {number} [startAt] the sequence of the first batch; without it one above the cursor of the stream: a program that
 *   is run again goes on where the stream ends
 * @property {number} [inFlight] how many batches may be on the way at once, 1 to 64; 1 without it, with which there is never a
 *   gap that could close while the connection is broken. More are on the way only while answers come quickly
 * @property {number} [buffer] how many bytes may be taken and not acknowledged yet, 16 MiB without it; beyond it, adding waits
 * @property {number} [batchEvents] when a batch is full: 1,000 events without it
 * @property {number} [batchBytes] when a batch is full: 256 KiB without it. An event that is larger makes a batch of its own
 * @property {number} [linger] how many milliseconds a batch that is not full waits for more; 5 without it. With Infinity it
 *   waits until it is full or flushed
 * @property {number} [giveUp] for how many milliseconds nothing may be acknowledged while something is on the way; then the
 *   publisher fails. Without it, it tries for as long as it takes
 * @property {(ack: import("./publish.js").Ack) => void} [onAck] is called for every batch that is stored, in order of sequences
 * @property {(error: Error, wait: number) => void} [onRetry] is called when something has to be tried again, with the reason,
 *   and how many milliseconds until then
 */

/**
 * @typedef {object} Unacknowledged a batch whose fate is open
 * @property {number} seq that it was or would have been sent under
 * @property {boolean} sent at least once
 * @property {any[]} events
 * @property {Uint8Array} [data] of a raw stream
 */

/**
 * @typedef {object} Flight a batch with its sequence, until it is acknowledged
 * @property {number} seq
 * @property {string} claim instead of the sequence: an idempotency key; empty: the sequence is known
 * @property {import("./payload.js").Payload} payload
 * @property {boolean} stored
 * @property {number} tries
 * @property {number} since when it was sent last
 * @property {Set<AbortController>} attempts that are on the way
 * @property {import("./publish.js").Ack} [ack]
 */

/** @typedef {{go: () => boolean, resolve: () => void, reject: (error: unknown) => void}} Turn */

// How a publisher comes back. While a gap of its own may be open it does not stay away longer than gapRetry, because the
// service closes gaps after a while.
const gapRetry = 250;
const maxRetry = 5000;
const maxAttempts = 4; // of one batch at once

/**
 * Publisher publishes many events to one stream, in the order in which they are added.
 *
 * What is not answered is sent again under the same sequence, so that it is stored once. A refusal that trying again cannot
 * change makes the publisher fail: from then on nothing is sent, and every call throws a {@link PublishError}. A stream has
 * one publisher at a time; whoever shares a stream uses {@link Client.publish}.
 */
export class Publisher {
  #caller;
  #path;
  #stringify;
  #o;
  /** @type {"json" | "raw" | undefined} */
  #mode;
  #claim = ""; // the idempotency key of the first batch, whose sequence the service chooses; empty: it is known
  #first;
  #next; // sequence of the next batch

  /** @type {Set<Turn>} */
  #turns = new Set(); // calls that wait for room, in order
  /** @type {{mark: number, done: () => void, failed: (error: unknown) => void}[]} */
  #flushes = [];
  /** @type {Uint8Array[]} */
  #group = []; // events of the next batch, or its bytes
  #groupBytes = 0;
  #due = false; // the group is to be sent as soon as there is room
  /** @type {Flight[]} */
  #window = []; // batches that are not acknowledged, in order of sequences, without holes
  #bytes = 0; // of the bodies in the window
  #cuts = 0; // batches that were made
  #settled = 0; // batches that were acknowledged and reported

  #flying = 0; // attempts that are on the way
  #allowed = 1; // how many may be
  #failures = 0; // in a row
  #epoch = 0; // counts troubles: what was sent before one and fails with it is no new one
  #until = 0; // when to send again
  #progress = 0; // when something was acknowledged last, or waiting began
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #lingering;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #alarm;
  #closed = false;
  /** @type {PublishError | undefined} */
  #error;

  /**
   * Not for programs: {@link Client.publisher} opens one.
   *
   * @param {import("./call.js").Caller} caller
   * @param {string} path of the stream
   * @param {(event: any) => string | undefined} stringify
   * @param {{cursor: number, mode: "json" | "raw"} | undefined} known
   * @param {PublisherOptions} [options]
   */
  constructor(caller, path, stringify, known, options = {}) {
    this.#caller = caller;
    this.#path = path;
    this.#stringify = stringify;
    this.#mode = known?.mode;
    const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
    this.#o = /** @type {Required<PublisherOptions>} */ ({
      inFlight: 1, buffer: 16 << 20, batchEvents: 1000, batchBytes: 256 << 10, linger: 5, giveUp: Infinity, ...given,
    });
    const { startAt, inFlight } = this.#o;
    if (startAt !== undefined && (!Number.isSafeInteger(startAt) || startAt < 0)) throw new TypeError("startAt is not a sequence");
    if (!(inFlight >= 1 && inFlight <= 64)) throw new TypeError("inFlight is 1 to 64");
    if (startAt === undefined && !known) this.#claim = randomName();
    this.#first = this.#next = startAt ?? (known ? known.cursor + 1 : 1);
  }

  /**
   * Adds an event to a json stream. It resolves once the event is taken, which takes as long as the service needs to keep up;
   * {@link Publisher.flush} tells when it is stored. What is added without waiting is taken in the order of the calls. A
   * TypeError is about this event alone, which was not taken.
   *
   * @param {any} event
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<void>}
   */
  async add(event, { signal } = {}) {
    this.#expect("json");
    const bytes = encodeEvent(event, this.#stringify);
    if (frame + bytes.length > maxBody) throw tooLarge(frame + bytes.length);
    return this.#take(() => this.#addEvent(bytes), signal);
  }

  /**
   * Adds a batch to a raw stream. It takes a copy.
   *
   * @param {ArrayBuffer | ArrayBufferView} data
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<void>}
   */
  async addBytes(data, { signal } = {}) {
    this.#expect("raw");
    if (data.byteLength > maxBody) throw tooLarge(data.byteLength);
    const bytes = bytesOf(data);
    return this.#take(() => this.#addBatch(bytes), signal);
  }

  /** @param {"json" | "raw"} mode */
  #expect(mode) {
    if ((this.#mode ??= mode) !== mode) {
      const wants = this.#mode === "raw" ? "bytes" : "events";
      throw new TypeError(`the stream is ${this.#mode}: it takes ${wants}`);
    }
    if (this.#error) throw this.#error;
    if (this.#closed) throw new PublishError("closed", "the publisher is closed", -1);
  }

  /**
   * Waits until everything that was added before is stored, or the publisher failed.
   *
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<void>}
   */
  async flush({ signal } = {}) {
    let mark = 0;
    await this.#take(() => {
      mark = this.#cuts;
      if (this.#group.length > 0) {
        mark++;
        this.#due = true;
        this.#cut();
      }
      return true;
    }, signal);
    if (this.#settled >= mark) return;
    if (this.#error) throw this.#error; // since it had its turn
    signal?.throwIfAborted();
    await new Promise((resolve, reject) => {
      const stop = () => {
        this.#flushes.splice(this.#flushes.indexOf(flush), 1);
        reject(signal?.reason);
      };
      const end = (/** @type {() => void} */ settle) => () => {
        signal?.removeEventListener("abort", stop);
        settle();
      };
      const flush = { mark, done: end(() => resolve(undefined)), failed: end(() => reject(this.#error)) };
      this.#flushes.push(flush);
      signal?.addEventListener("abort", stop, { once: true });
    });
  }

  /**
   * Stores what was added, as flush does, and ends the publisher. When the signal ends it first, or the publisher failed, what
   * is not acknowledged may be stored or not. Nothing of the publisher is left when it is done.
   *
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<void>}
   */
  async close({ signal } = {}) {
    if (this.#error?.reason === "closed") return;
    this.#closed = true;
    try {
      await this.flush({ signal });
    } finally {
      this.#error ??= new PublishError("closed", "the publisher is closed", -1);
      this.#drop();
    }
  }

  /** The highest sequence up to which everything of this publisher is stored; undefined when nothing is. */
  get acknowledged() {
    const below = this.#window[0]?.seq ?? this.#next;
    return below === this.#first ? undefined : below - 1;
  }

  /** Why the publisher failed, or that it is closed; undefined while it is neither. */
  get error() {
    return this.#error;
  }

  /**
   * Batches that were added and not acknowledged, in order: what a failure left. Whether one that was sent is stored is not
   * known; its sequence can be looked up with {@link Client.batch}.
   *
   * @returns {Unacknowledged[]}
   */
  unacknowledged() {
    const open = this.#window.filter((flight) => !flight.stored);
    if (this.#group.length > 0) open.push(this.#flight());
    return open.map(({ seq, tries, payload }) => {
      const some = { seq, sent: tries > 0 };
      return payload.contentType === typeBytes ? { ...some, events: [], data: payload.body } : { ...some, events: eventsOf(payload.body) };
    });
  }

  /**
   * Calls go until it says that there was room, after all who came before.
   *
   * @param {() => boolean} go
   * @param {AbortSignal} [signal]
   * @returns {Promise<void> | undefined}
   */
  #take(go, signal) {
    signal?.throwIfAborted();
    if (this.#error) throw this.#error;
    if (this.#turns.size === 0 && go()) return undefined;
    return new Promise((resolve, reject) => {
      const stop = () => {
        this.#turns.delete(turn);
        reject(signal?.reason);
        this.#serve();
      };
      const off = () => signal?.removeEventListener("abort", stop);
      /** @type {Turn} */
      const turn = { go, resolve: () => (off(), resolve()), reject: (error) => (off(), reject(error)) };
      this.#turns.add(turn);
      signal?.addEventListener("abort", stop, { once: true });
    });
  }

  /** Lets those go for whom there is room. */
  #serve() {
    for (const turn of this.#turns) {
      if (!turn.go()) return;
      this.#turns.delete(turn);
      turn.resolve();
    }
  }

  /**
   * @param {Uint8Array} event
   * @returns {boolean} whether there was room
   */
  #addEvent(event) {
    const { batchBytes, batchEvents, linger } = this.#o;
    // One that is due and has no room yet goes on filling.
    const full = this.#group.length >= batchEvents || frame + this.#groupBytes + 1 + event.length > batchBytes;
    if (this.#group.length > 0 && full) {
      this.#due = true;
      this.#cut();
      if (this.#group.length > 0) return false;
    }
    this.#groupBytes += event.length + (this.#group.length > 0 ? 1 : 0);
    this.#group.push(event);
    this.#due ||= this.#group.length >= batchEvents || frame + this.#groupBytes >= batchBytes;
    if (this.#due) {
      this.#cut();
    } else if (this.#group.length === 1 && linger < Infinity) {
      this.#lingering = setTimeout(() => {
        this.#due = true;
        this.#cut();
      }, linger);
    }
    return true;
  }

  /**
   * A raw batch is never grouped: its bounds are what is published.
   *
   * @param {Uint8Array} data
   * @returns {boolean} whether there was room
   */
  #addBatch(data) {
    if (this.#group.length > 0) return false;
    this.#group.push(data);
    this.#groupBytes = data.length;
    this.#due = true;
    this.#cut();
    return true;
  }

  /** @returns {Flight} what the group is as a batch */
  #flight() {
    const payload = this.#mode === "raw" ? { contentType: typeBytes, body: this.#group[0], events: 1 } : bodyOf(this.#group);
    return { seq: this.#next, claim: this.#claim, payload, stored: false, tries: 0, since: 0, attempts: new Set() };
  }

  /** Makes a batch of the group when it is due and there is room for it. */
  #cut() {
    if (this.#group.length === 0 || !this.#due || this.#error) return;
    const full = this.#window.length >= this.#o.inFlight || this.#bytes + this.#groupBytes > this.#o.buffer;
    if (this.#window.length > 0 && (full || this.#claim)) return;
    clearTimeout(this.#lingering);
    const flight = this.#flight();
    if (this.#window.length === 0) this.#progress = now();
    this.#window.push(flight);
    this.#bytes += flight.payload.body.length;
    this.#group = [];
    this.#groupBytes = 0;
    this.#due = false;
    this.#next++;
    this.#cuts++;
    this.#pump();
  }

  /** Sends what has to be sent, always the lowest sequence first, and sees to it that it is called again in time. */
  #pump() {
    clearTimeout(this.#alarm);
    if (this.#error || this.#window.length === 0) return;
    const pause = this.#until - now();
    if (pause > 0) {
      this.#alarm = setTimeout(() => this.#pump(), pause);
      return;
    }
    const [lowest] = this.#window;
    for (const flight of this.#window) {
      if (flight.stored || flight.attempts.size > 0) continue;
      if (this.#flying >= this.#allowed && flight !== lowest) break;
      this.#attempt(flight);
    }
    // The lowest makes all others wait, and its gap closes: on a connection that hangs, it is sent over another one too.
    if (this.#window.some((flight) => flight.stored) && lowest.attempts.size < maxAttempts) {
      const rest = lowest.since + gapRetry - now();
      if (rest <= 0) this.#attempt(lowest);
      this.#alarm = setTimeout(() => this.#pump(), rest > 0 ? rest : gapRetry);
    }
  }

  /** @param {Flight} flight */
  async #attempt(flight) {
    const controller = new AbortController();
    const epoch = this.#epoch;
    flight.attempts.add(controller);
    flight.tries++;
    flight.since = now();
    this.#flying++;
    try {
      const ack = await this.#publish(flight, controller.signal);
      this.#allowed = now() - flight.since < gapRetry ? Math.min(this.#allowed + 1, this.#o.inFlight) : 1;
      this.#end(flight, controller);
      if (this.#error) flight.stored = true; // nobody waits for it, but it is not lost either
      else if (!flight.stored) this.#succeed(flight, ack);
    } catch (error) {
      this.#end(flight, controller);
      if (!this.#error && !flight.stored) this.#fail(flight, /** @type {Error} */ (error), epoch);
    }
  }

  /**
   * @param {Flight} flight
   * @param {AbortController} controller
   */
  #end(flight, controller) {
    flight.attempts.delete(controller);
    this.#flying--;
  }

  /**
   * Sends a batch once.
   *
   * @param {Flight} flight
   * @param {AbortSignal} signal
   * @returns {Promise<import("./publish.js").Ack>}
   */
  async #publish(flight, signal) {
    const { seq, claim, payload } = flight;
    if (claim) return ackOf(await this.#caller.once(nextCall(this.#path, claim, payload), signal));
    let ack = flight.ack; // of one that is known to be stored, what is left is to look whose it is
    try {
      ack ??= ackOf(await this.#caller.once(atCall(this.#path, seq, payload), signal));
    } catch (error) {
      if (codeOf(error) !== "invalid_sequence") throw error;
      if (flight.tries > 1 && (await hasPassed(this.#caller, this.#path, seq, signal))) {
        return { streamId: this.#path.slice(-22), seq, accepted: payload.events, cursor: seq, duplicate: true };
      }
      throw new PublishError("conflict", `sequence ${seq} is closed: another writer publishes to the stream, or it came too late`, seq, error);
    }
    if (ack.duplicate) {
      flight.ack = ack;
      // Browsers repeat requests by themselves: that this is the first try does not say that the batch is another's.
      const unread = flight.tries > 1 || this.#o.startAt !== undefined;
      if (!(await isMine(this.#caller, this.#path, payload, ack, unread, signal))) {
        throw new PublishError("conflict", `sequence ${seq} holds something else: another writer publishes to the stream`, seq);
      }
    }
    return ack;
  }

  /**
   * Notes an acknowledgement, and reports those that are next in order.
   *
   * @param {Flight} flight
   * @param {import("./publish.js").Ack} ack
   */
  #succeed(flight, ack) {
    flight.stored = true;
    flight.ack = ack;
    for (const controller of flight.attempts) controller.abort();
    if (flight.claim) {
      flight.seq = ack.seq;
      this.#first = ack.seq;
      this.#next = ack.seq + 1;
      this.#claim = "";
    }
    this.#failures = 0;
    this.#until = 0;
    this.#progress = now();
    while (this.#window[0]?.stored) {
      const first = /** @type {Flight} */ (this.#window.shift());
      this.#bytes -= first.payload.body.length;
      this.#settled++;
      tell(this.#o.onAck, first.ack);
    }
    while (this.#flushes[0]?.mark <= this.#settled) this.#flushes.shift()?.done();
    this.#cut();
    this.#serve();
    this.#pump();
  }

  /**
   * Leaves a batch to be sent again, or ends the publisher.
   *
   * @param {Flight} flight
   * @param {Error} error
   * @param {number} epoch when it was sent
   */
  #fail(flight, error, epoch) {
    if (!transient(error)) {
      this.#give(error instanceof PublishError ? error : new PublishError("refused", `batch ${flight.seq} is refused: ${error.message}`, flight.seq, error));
      return;
    }
    const waited = now() - this.#progress;
    if (waited > this.#o.giveUp) {
      this.#give(new PublishError("given_up", `given up after ${Math.round(waited)} ms without an acknowledgement: ${error.message}`, flight.seq, error));
      return;
    }
    if (epoch === this.#epoch) {
      this.#epoch++;
      this.#failures++;
      this.#allowed = 1;
      const pause = this.#pause(error);
      this.#until = now() + pause;
      tell(this.#o.onRetry, error, pause);
    }
    this.#pump();
  }

  /**
   * How long to stay away after a failure. What the service asks for counts unless a gap is open, which only waits for what
   * failed.
   *
   * @param {Error} error
   */
  #pause(error) {
    const gap = this.#window.some((flight) => flight.stored);
    const several = this.#window.filter((flight) => flight.tries > 0).length > 1; // and so there may be one
    return Math.max(backoff(this.#failures, several ? gapRetry : maxRetry), gap ? 0 : askedFor(error));
  }

  /**
   * Makes the publisher fail. Of several batches that fail, the first to be known is the one that is reported.
   *
   * @param {PublishError} error
   */
  #give(error) {
    this.#error ??= error;
    this.#drop();
  }

  /** Ends everything that is under way, and tells those who wait why. */
  #drop() {
    clearTimeout(this.#lingering);
    clearTimeout(this.#alarm);
    for (const { attempts } of this.#window) for (const controller of attempts) controller.abort();
    for (const turn of this.#turns) turn.reject(this.#error);
    this.#turns.clear();
    for (const flush of this.#flushes.splice(0)) flush.failed(this.#error);
  }
}

const now = () => performance.now();

/**
 * Calls what a program wants to be told with. What it throws is the program's, and does not stop the publisher.
 *
 * @param {((...what: any[]) => void) | undefined} callback
 * @param {...any} what
 */
function tell(callback, ...what) {
  try {
    callback?.(...what);
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}
