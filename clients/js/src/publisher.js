// Publishes many events to one stream.

import { askedFor } from "./call.js";
import { PublishError, codeOf, transient } from "./errors.js";
import { bodyOf, bytesOf, encodeEvent, eventsOf, frame, maxBody, randomName, tooLarge, typeBytes } from "./payload.js";
import { ackOf, nextCall, orderedCall } from "./publish.js";
import { backoff } from "./wait.js";

/**
 * @typedef {object} PublisherOptions how a publisher forms, numbers and sends batches
 * @property {number} [startAt] sequence number of the first batch; by default the stream's cursor + 1, so that a program
 *   that is started again continues where the stream ends
 * @property {string} [name] identifies this publisher to the service, which keeps the name with every batch: 1 to 64 visible
 *   ASCII characters; random by default. A program that repeats an earlier run with `startAt` gives the name of that run, so
 *   that the batches of that run count as its own
 * @property {number} [inFlight] maximum number of batches in flight, 1 to 64; 1 by default. A larger number helps if the
 *   service is far away. It cannot leave gaps, because the service stores a batch only after its predecessor
 * @property {number} [buffer] maximum number of bytes that are added and not acknowledged; 16 MiB by default. While the
 *   limit is reached, add waits
 * @property {number} [batchEvents] number of events after which a batch is full; 1,000 by default
 * @property {number} [batchBytes] number of bytes after which a batch is full; 256 KiB by default. A larger event becomes a
 *   batch of its own
 * @property {number} [linger] milliseconds that an incomplete batch waits for more events; 5 by default. With Infinity it
 *   waits until it is full or flushed
 * @property {number} [giveUp] milliseconds without an acknowledgement, while there are batches to store, after which the
 *   publisher fails; by default it retries forever
 * @property {(ack: import("./publish.js").Ack) => void} [onAck] called for every stored batch, in order of the sequences
 * @property {(error: Error, wait: number) => void} [onRetry] called before a retry, with the error and the number of
 *   milliseconds until the retry
 * @property {(error: PublishError) => void} [onError] called once if the publisher fails, even if no call is waiting
 */

/**
 * @typedef {object} Unacknowledged a batch that may or may not be stored
 * @property {number} seq the sequence that it was, or would have been, sent under; without meaning if there is a key
 * @property {string} [key] if set, the service was to choose the sequence: to store the batch exactly once, pass this key to
 *   {@link Client.publish} as its idempotencyKey
 * @property {boolean} sent whether it was sent at least once
 * @property {any[]} events the events, for a json stream; empty for a raw stream
 * @property {Uint8Array} [data] the bytes, for a raw stream
 */

/**
 * @typedef {object} Flight a batch that has a sequence and is not acknowledged
 * @property {number} seq
 * @property {number} nth position among the batches of this publisher, from 1
 * @property {boolean} early whether it reached the service before its predecessor, and waits until the predecessor is stored
 * @property {string} claim idempotency key, if the service is to assign the sequence; empty if the sequence is known
 * @property {import("./payload.js").Payload} payload
 * @property {boolean} stored
 * @property {boolean} unsure whether it may already be stored: an attempt ended, and no response says that it stored nothing
 * @property {number} tries
 * @property {number} since time at which it was last sent
 * @property {Set<AbortController>} attempts the attempts in flight
 * @property {import("./publish.js").Ack} [ack]
 */

/** @typedef {{go: () => boolean, resolve: () => void, reject: (error: unknown) => void}} Turn a call of add, addBytes or flush that waits for room, or for earlier calls */

const maxRetry = 5000; // the longest pause before a retry, in milliseconds
const maxWaiting = 10_000; // limit for waiting calls of add, because a program that does not await them would fill the memory

// Milliseconds after which the batch with the lowest sequence is sent again over another connection. The time that its body
// needs is added.
const resend = 500; // if the service has already answered a later batch
const hang = 10_000; // otherwise
const maxAttempts = 4; // limit for simultaneous attempts of one batch

/**
 * Publisher publishes many events to one stream, in the order in which they are added.
 *
 * A batch without a response is sent again under the same sequence, so it is stored once. The service stores it only if its
 * predecessor is stored, so no fault leaves a gap, however long the connection is broken. The service keeps the name of the
 * publisher with each batch, so the publisher can tell its own batches from another publisher's batches with the same
 * content. The publisher fails on an error that a retry cannot fix. From then on it sends nothing, and every call throws a
 * {@link PublishError}. A stream has one publisher at a time. Programs that share a stream use {@link Client.publish}.
 */
export class Publisher {
  #caller;
  #path;
  #id;
  #stringify;
  #o;
  /** @type {"json" | "raw" | undefined} */
  #mode;
  #claim = ""; // idempotency key of the first batch of the window while the service has to assign its sequence; otherwise empty
  #first;
  #next; // sequence of the next batch
  #created; // when the stream was created; tells it from a later stream with the same id. Empty if unknown
  #leap; // true until the first batch is stored, if the program chose its sequence: that batch may leave a gap on purpose

  /** @type {Set<Turn>} */
  #turns = new Set(); // calls that wait for room, in the order of the calls
  /** @type {{mark: number, done: () => void, failed: (error: unknown) => void}[]} */
  #flushes = [];
  /** @type {Uint8Array[]} */
  #group = []; // events of the next batch, or its bytes
  #groupBytes = 0;
  #due = false; // whether the group must be sent as soon as the window has room
  /** @type {Flight[]} */
  #window = []; // unacknowledged batches in order of their sequences
  #bytes = 0; // total size of the bodies in the window
  #cuts = 0; // number of batches made so far

  #flying = 0; // number of attempts in flight
  #allowed = 1; // limit of #flying; grows with each acknowledgement, and falls after a refusal or a failure
  #failures = 0; // consecutive failures
  #epoch = 0; // incremented at a failure. Attempts that started in an earlier epoch fail for the same reason, and are not
  // counted as further failures
  #until = 0; // nothing is sent before this time
  #progress = 0; // time of the last acknowledgement, or of the first batch after an idle period
  /** @type {Error | undefined} */
  #trouble; // the last temporary error since #progress
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #lingering;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #alarm;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #deadline; // fires when it is time to give up
  #closed = false;
  /** @type {PublishError | undefined} */
  #refusal; // set if a sequence is in a closed gap, until the batches have other sequences
  /** @type {PublishError | undefined} */
  #error;

  /**
   * Internal: use {@link Client.publisher}.
   *
   * @param {import("./call.js").Caller} caller
   * @param {string} path of the stream
   * @param {(event: any) => string | undefined} stringify
   * @param {{cursor: number, mode: "json" | "raw", created: string} | undefined} known
   * @param {PublisherOptions} [options]
   */
  constructor(caller, path, stringify, known, options = {}) {
    this.#caller = caller;
    this.#path = path;
    this.#stringify = stringify;
    this.#mode = known?.mode;
    this.#created = known?.created ?? "";
    const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
    this.#o = /** @type {Required<PublisherOptions>} */ ({
      inFlight: 1, buffer: 16 << 20, batchEvents: 1000, batchBytes: 256 << 10, linger: 5, giveUp: Infinity, ...given,
    });
    const { startAt, inFlight, name = randomName() } = this.#o;
    if (!/^[!-~]{1,64}$/.test(name)) throw new TypeError("name must be 1 to 64 visible ASCII characters");
    this.#id = name;
    this.#leap = startAt !== undefined;
    if (startAt !== undefined && (!Number.isSafeInteger(startAt) || startAt < 0)) throw new TypeError("startAt must be a sequence");
    if (!(inFlight >= 1 && inFlight <= 64)) throw new TypeError("inFlight must be from 1 to 64");
    if (startAt === undefined && !known) this.#claim = randomName();
    this.#first = this.#next = startAt ?? (known ? known.cursor + 1 : 1);
  }

  /**
   * Adds an event to a json stream. It resolves once the publisher has accepted the event, and waits while the service
   * cannot keep up. {@link Publisher.flush} waits until the event is stored. If a program does not await each call, the
   * events are still added in the order of the calls. A TypeError concerns only this event, which was not added; the
   * publisher still works. A RangeError means that 10,000 calls wait already: await them.
   *
   * @param {any} event
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<void>}
   */
  async add(event, { signal } = {}) {
    this.#expect("json");
    const bytes = encodeEvent(event, this.#stringify);
    if (frame + bytes.length > maxBody) throw tooLarge(frame + bytes.length);
    this.#crowded();
    return this.#take(() => this.#addEvent(bytes), signal);
  }

  /**
   * Adds a batch to a raw stream. It copies the data.
   *
   * @param {ArrayBuffer | ArrayBufferView} data
   * @param {{signal?: AbortSignal}} [options]
   * @returns {Promise<void>}
   */
  async addBytes(data, { signal } = {}) {
    this.#expect("raw");
    if (data.byteLength > maxBody) throw tooLarge(data.byteLength);
    const bytes = bytesOf(data);
    this.#crowded();
    return this.#take(() => this.#addBatch(bytes), signal);
  }

  /** @param {"json" | "raw"} mode */
  #expect(mode) {
    if ((this.#mode ??= mode) !== mode) {
      const wants = this.#mode === "raw" ? "bytes" : "events";
      throw new TypeError(`this is a ${this.#mode} stream: add ${wants} to it`);
    }
    if (this.#error) throw this.#error;
    if (this.#closed) throw new PublishError("closed", "the publisher is closed", -1);
  }

  /**
   * Waits until everything added before is stored. Throws if the publisher fails first.
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
    if (this.#settled(mark)) return;
    if (this.#error) throw this.#error; // the publisher failed while this call waited for its turn
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
   * Waits until everything added is stored, as flush does, and ends the publisher. If the signal is aborted first, or the
   * publisher fails, unacknowledged batches may or may not be stored. Afterwards no timer and no request of the publisher is
   * left.
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

  /** The sequence up to which all batches of this publisher are stored; undefined if no batch is stored. */
  get acknowledged() {
    const below = this.#window[0]?.seq ?? this.#next;
    return below === this.#first ? undefined : below - 1;
  }

  /** The name of the publisher, which the service keeps with every batch. */
  get name() {
    return this.#id;
  }

  /** Why the publisher failed, or that it is closed; undefined while it works. */
  get error() {
    return this.#error;
  }

  /**
   * The batches that were added and not acknowledged, in order. A batch that was sent may already be stored; to find out,
   * look up its sequence with {@link Client.batch}.
   *
   * @returns {Unacknowledged[]}
   */
  unacknowledged() {
    const open = this.#window.filter((flight) => !flight.stored);
    if (this.#group.length > 0) open.push(this.#flight());
    return open.map(({ seq, claim, tries, payload }) => {
      const some = { seq, ...(claim && { key: claim }), sent: tries > 0 };
      return payload.contentType === typeBytes ? { ...some, events: [], data: payload.body } : { ...some, events: eventsOf(payload.body) };
    });
  }

  /** Throws if too many calls of add wait, because the program does not await them. */
  #crowded() {
    if (this.#turns.size >= maxWaiting) throw new RangeError(`${maxWaiting} calls of add wait already: await add before you call it again`);
  }

  /**
   * Calls the function `go` until it returns true, which means that there was room. Calls that already wait come first.
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

  /** Completes waiting calls, in order, for as long as there is room. */
  #serve() {
    for (const turn of this.#turns) {
      if (!turn.go()) return;
      this.#turns.delete(turn);
      turn.resolve();
    }
  }

  /**
   * Adds an encoded event to the group, and starts the linger timer if it is the first event of the group.
   *
   * @param {Uint8Array} event
   * @returns {boolean} whether there was room
   */
  #addEvent(event) {
    const { batchBytes, batchEvents, linger } = this.#o;
    // A group that is due keeps filling while the window has no room for it. So batches get larger when the service is slow.
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
   * Adds a raw batch. It is never combined with other batches, because the boundaries of raw batches matter to subscribers.
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

  /** @returns {Flight} the group as a batch */
  #flight() {
    const payload = this.#mode === "raw" ? { contentType: typeBytes, body: this.#group[0] } : bodyOf(this.#group);
    const { seq, nth } = { seq: this.#next, nth: this.#cuts + 1 };
    return { seq, nth, claim: this.#claim, payload, stored: false, unsure: false, early: false, tries: 0, since: 0, attempts: new Set() };
  }

  /** Turns the group into a batch if it is due and there is room in the window. */
  #cut() {
    if (this.#group.length === 0 || !this.#due || this.#error) return;
    const full = this.#window.length >= this.#o.inFlight || this.#bytes + this.#groupBytes > this.#o.buffer;
    if (this.#window.length > 0 && (full || this.#claim)) return;
    clearTimeout(this.#lingering);
    const flight = this.#flight();
    this.#window.push(flight);
    if (this.#window.length === 1) this.#advance();
    this.#bytes += flight.payload.body.length;
    this.#group = [];
    this.#groupBytes = 0;
    this.#due = false;
    this.#next++;
    this.#cuts++;
    this.#pump();
  }

  /**
   * Whether the first `count` batches that were made are acknowledged and reported.
   *
   * @param {number} count
   */
  #settled(count) {
    return this.#cuts >= count && !this.#window.some(({ nth }) => nth <= count);
  }

  /** Records progress, and restarts the time until the publisher gives up. */
  #advance() {
    clearTimeout(this.#deadline);
    this.#progress = now();
    this.#trouble = undefined;
    if (this.#window.length === 0 || !(this.#o.giveUp < 2 ** 31)) return; // with a longer time, setTimeout would fire at once
    this.#deadline = setTimeout(() => this.#giveUp(), this.#o.giveUp);
  }

  #giveUp() {
    const waited = Math.round(now() - this.#progress);
    const reason = this.#trouble ? `: ${this.#trouble.message}` : "";
    this.#failWith(new PublishError("given_up", `gave up after ${waited} ms without an acknowledgement${reason}`, this.#window[0].seq, this.#trouble));
  }

  /** Sends batches that are not in flight, lowest sequence first, and schedules its next call. */
  #pump() {
    clearTimeout(this.#alarm);
    if (this.#error || this.#window.length === 0) return;
    if (this.#refusal && (this.#flying > 0 || !this.#renumber(this.#refusal))) return;
    const pause = this.#until - now();
    if (pause > 0) {
      this.#alarm = setTimeout(() => this.#pump(), pause);
      return;
    }
    const [lowest] = this.#window;
    const limit = this.#leap || this.#claim ? 1 : this.#allowed;
    for (const flight of this.#window) {
      if (flight.stored || flight.attempts.size > 0) continue;
      if (flight !== lowest && (this.#flying >= limit || flight.early)) break;
      this.#attempt(flight);
    }
    // No other batch can be stored before the lowest one, whose connection may hang. Therefore the lowest batch is sent
    // again over another connection, without waiting for its first attempt to fail. This happens soon if the service has
    // answered a batch above it, which proves that the service works.
    const answers = this.#window.some((flight) => flight.early || flight.stored);
    if (lowest.attempts.size >= (answers ? maxAttempts : 2)) return;
    const size = lowest.payload.body.length;
    const rest = lowest.since + (answers ? resend + size / 40 : hang + size / 8) - now();
    if (rest <= 0) this.#attempt(lowest);
    this.#alarm = setTimeout(() => this.#pump(), rest > 0 ? rest : resend);
  }

  /**
   * Sends a batch once and handles the outcome.
   *
   * @param {Flight} flight
   */
  async #attempt(flight) {
    const controller = new AbortController();
    const epoch = this.#epoch;
    const first = flight === this.#window[0]; // if true, the predecessor of the batch is stored
    flight.attempts.add(controller);
    flight.tries++;
    flight.since = now();
    this.#flying++;
    try {
      const ack = await this.#publish(flight, controller.signal);
      this.#allowed = Math.min(this.#allowed + 1, this.#o.inFlight);
      this.#end(flight, controller);
      if (this.#error) flight.stored = true; // the publisher has failed, but unacknowledged() must not list this batch
      else if (!flight.stored) this.#succeed(flight, ack);
    } catch (error) {
      this.#end(flight, controller);
      if (!this.#error && !flight.stored) this.#fail(flight, /** @type {Error} */ (error), epoch, first);
      else this.#pump();
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
   * Sends a batch once. Nothing but an acknowledgement of this very batch counts as success.
   *
   * @param {Flight} flight
   * @param {AbortSignal} signal
   * @returns {Promise<import("./publish.js").Ack>}
   */
  async #publish({ seq, claim, payload }, signal) {
    if (claim) return ackOf(await this.#caller.once(nextCall(this.#path, claim, payload), signal), this.#path);
    const answer = await this.#caller.once(orderedCall(this.#path, seq, payload, this.#id, !this.#leap), signal);
    const ack = ackOf(answer, this.#path, seq);
    if ((this.#created ||= answer.created) !== answer.created && answer.created) {
      throw new PublishError("reset", `batch ${seq} is in another stream: this one was created again at ${answer.created}`, seq);
    }
    if (answer.publisher === this.#id) return ack;
    if (!ack.duplicate) throw new PublishError("refused", "the service does not know x-svc-publisher: it is too old", seq);
    throw new PublishError("taken", `another publisher stored batch ${seq}: a stream has one publisher at a time`, seq);
  }

  /**
   * Records an acknowledgement, and reports the acknowledged batches below the first unacknowledged one.
   *
   * @param {Flight} flight
   * @param {import("./publish.js").Ack} ack
   */
  #succeed(flight, ack) {
    flight.stored = true;
    flight.ack = ack;
    for (const controller of flight.attempts) controller.abort();
    if (flight.claim) {
      if (flight.nth === 1) this.#first = ack.seq;
      this.#next = ack.seq;
      for (const other of this.#window) other.seq = this.#next++; // the batch is the first of the window
      this.#claim = "";
    }
    this.#failures = 0;
    this.#until = 0;
    this.#leap = false;
    for (const other of this.#window) other.early = false; // these batches may be sent again now
    this.#settle();
    this.#advance();
    this.#cut();
    this.#serve();
    this.#pump();
  }

  /** Reports the acknowledged batches below the first unacknowledged one, and completes the flushes that waited for them. */
  #settle() {
    while (this.#window[0]?.stored) {
      const first = /** @type {Flight} */ (this.#window.shift());
      this.#bytes -= first.payload.body.length;
      notify(this.#o.onAck, first.ack);
    }
    while (this.#flushes.length > 0 && this.#settled(this.#flushes[0].mark)) this.#flushes.shift()?.done();
  }

  /**
   * Handles a failed attempt: schedules a retry, or makes the publisher fail.
   *
   * @param {Flight} flight
   * @param {Error} error
   * @param {number} epoch the epoch in which the attempt started
   * @param {boolean} first whether the batch was the lowest when the attempt started
   */
  #fail(flight, error, epoch, first) {
    flight.unsure ||= !["sequence_not_next", "invalid_sequence", "rate_limited"].includes(codeOf(error) ?? "");
    if (codeOf(error) === "sequence_not_next" && !first) {
      flight.early = true; // the batch in front of it was still in flight, or was refused
      this.#allowed = Math.max(this.#allowed >> 1, 1);
      this.#pump();
      return;
    }
    if (!transient(error)) {
      const failure = error instanceof PublishError ? error : explain(error, flight.seq);
      if (failure.reason === "gap_closed" && this.#o.startAt === undefined && this.#o.name === undefined) {
        if (!this.#refusal || failure.seq < this.#refusal.seq) this.#refusal = failure;
        this.#pump();
        return;
      }
      this.#failWith(failure);
      return;
    }
    this.#trouble = error;
    if (epoch === this.#epoch) {
      this.#epoch++;
      this.#failures++;
      this.#allowed = 1;
      const pause = Math.max(backoff(this.#failures, maxRetry), askedFor(error));
      this.#until = now() + pause;
      notify(this.#o.onRetry, error, pause);
    }
    this.#pump();
  }

  /**
   * Gives new sequences, above the cursor, to all batches after one was refused because its sequence is in a closed gap. The
   * service chooses the sequence of the first batch. If one of the batches may already be stored, the publisher fails
   * instead, because a batch could be stored twice or out of order. With the new sequences the publisher gets a new name, so
   * that it does not mistake a batch under an old sequence for one under a new sequence.
   *
   * @param {PublishError} refusal
   * @returns {boolean} whether the publisher continues
   */
  #renumber(refusal) {
    this.#refusal = undefined;
    if (this.#window.some(({ stored, unsure }) => stored || unsure)) {
      this.#failWith(refusal);
      return false;
    }
    this.#id = randomName();
    this.#claim = this.#window[0].claim = randomName();
    for (const flight of this.#window) flight.early = false;
    return true;
  }

  /**
   * Makes the publisher fail. If several batches fail, the first error is kept.
   *
   * @param {PublishError} error
   */
  #failWith(error) {
    if (this.#error) return;
    this.#error = error;
    this.#drop();
    notify(this.#o.onError, error);
  }

  /** Aborts all attempts and timers, and rejects all waiting calls with the error. */
  #drop() {
    clearTimeout(this.#lingering);
    clearTimeout(this.#alarm);
    clearTimeout(this.#deadline);
    for (const { attempts } of this.#window) for (const controller of attempts) controller.abort();
    for (const turn of this.#turns) turn.reject(this.#error);
    this.#turns.clear();
    for (const flush of this.#flushes.splice(0)) flush.failed(this.#error);
  }
}

const now = () => performance.now();

/**
 * Turns a refusal of the service into the error with which the publisher fails.
 *
 * @param {Error} error
 * @param {number} seq
 */
function explain(error, seq) {
  const message = `publish batch ${seq}: ${error.message}`;
  if (codeOf(error) === "sequence_not_next") {
    return new PublishError("reset", `the stream ends below batch ${seq}: it was created again, or restored from a backup`, seq, error);
  }
  if (codeOf(error) !== "invalid_sequence") return new PublishError("refused", message, seq, error);
  return new PublishError(/closed/.test(error.message) ? "gap_closed" : "evicted", message, seq, error);
}

/**
 * Calls a callback of the program. If it throws, the error becomes an uncaught exception of the program and does not affect
 * the publisher.
 *
 * @param {((...what: any[]) => void) | undefined} callback
 * @param {...any} what
 */
function notify(callback, ...what) {
  try {
    callback?.(...what);
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}
