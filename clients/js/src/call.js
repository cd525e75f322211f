// Sends requests to the service.

import { ConnectionError, WeirError, refusal, transient } from "./errors.js";
import { backoff, Scope, wait } from "./wait.js";

/**
 * @typedef {object} Call one request, which can be sent any number of times
 * @property {"GET" | "POST" | "PATCH" | "DELETE"} method
 * @property {string} path including the query
 * @property {import("./payload.js").Payload | {contentType: string, body: Uint8Array | string}} [payload]
 * @property {Record<string, string>} [headers]
 * @property {number} [wait] milliseconds that the service may take to answer, in addition to the timeout
 * @property {(answer: Answer) => void} [check] throws a ConnectionError if a response with a success status did not come from Weir
 */

/** @typedef {string | (() => string | Promise<string>)} Key an API key, or a function that returns one */

/** Caller sends requests to one service with one key. */
export class Caller {
  #base;
  #key;
  #fetch;
  #giveUp;
  #timeout;
  /** @type {Promise<string> | undefined} */
  #known; // the key to send; undefined if the next request has to call the key function
  /** @type {Promise<string> | undefined} */
  #asked; // the result of the latest call of the key function
  /** @type {Promise<string> | undefined} */
  #late; // the result of a call of the key function that took too long; undefined once the function is called again

  /**
   * @param {string} base
   * @param {{key: Key, fetch: typeof fetch, giveUp: number, timeout: number}} options
   */
  constructor(base, { key, fetch, giveUp, timeout }) {
    this.#base = base;
    this.#key = key;
    this.#fetch = fetch;
    this.#giveUp = giveUp;
    this.#timeout = timeout;
  }

  /** @returns {Promise<string>} the key to send */
  async #current() {
    const source = this.#key;
    if (typeof source === "string") return source;
    const asked = (this.#known ??= this.#ask(source));
    try {
      return await asked;
    } catch (error) {
      this.#forget(asked);
      throw error;
    }
  }

  /**
   * Calls the key function. If an earlier call took too long and is still running, the call that ends first supplies the
   * key.
   *
   * @param {() => string | Promise<string>} source
   */
  #ask(source) {
    const late = this.#late;
    this.#late = undefined;
    this.#asked = Promise.resolve().then(source).catch(noKey).then(checkedKey);
    return late ? Promise.race([late, this.#asked]) : this.#asked;
  }

  /**
   * Waits for the key, but at most until the scope is aborted. If the wait ends because the request took too long (the scope
   * has an alarm for this), the next request calls the key function again, because the first call may never return.
   *
   * @param {Scope} scope
   */
  async #keyFor(scope) {
    const current = this.#current();
    const asked = this.#known;
    try {
      return { key: await until(scope, current), asked };
    } catch (error) {
      if (scope.signal.reason instanceof ConnectionError && this.#known === asked) {
        this.#late = this.#asked;
        this.#known = undefined;
      }
      throw error;
    }
  }

  /**
   * Makes the next request call the key function again, unless another request has already done so.
   *
   * @param {Promise<string> | undefined} asked
   */
  #forget(asked) {
    if (this.#known === asked) this.#known = undefined;
  }

  /**
   * Sends a request once. Returns the response if it is a success, and throws otherwise. If the service refuses the key and
   * the program supplied a key function, open asks the function for another key and sends the request once more.
   *
   * @param {Call} call
   * @param {Scope} scope
   * @returns {Promise<Response>}
   */
  async open(call, scope) {
    const { key, asked } = await this.#keyFor(scope);
    const response = await this.#send(call, key, scope);
    if (response.ok) return response;
    const error = refusal(response, await reach(scope, () => response.text()));
    if (response.status !== 401 || error instanceof ConnectionError || typeof this.#key === "string") throw error;
    this.#forget(asked);
    const { key: other } = await this.#keyFor(scope);
    if (other === key) throw error;
    const again = await this.#send(call, other, scope);
    if (!again.ok) throw refusal(again, await reach(scope, () => again.text()));
    return again;
  }

  /**
   * @param {Call} call
   * @param {string} key
   * @param {Scope} scope
   * @returns {Promise<Response>}
   */
  #send({ method, path, payload, headers }, key, scope) {
    /** @type {Record<string, string>} */
    const all = { ...headers };
    if (key !== "") all.authorization = `Bearer ${key}`;
    if (payload) all["content-type"] = payload.contentType;
    const send = this.#fetch; // in a browser, calling this.#fetch(...) would fail: fetch must not be called as a method of this object
    return reach(scope, () =>
      send(this.#base + path, {
        method,
        headers: all,
        body: /** @type {BodyInit | undefined} */ (payload?.body),
        signal: scope.signal,
        cache: "no-store",
        credentials: "omit",
        redirect: "manual",
      }),
    );
  }

  /**
   * Sends a request once and returns the response with its whole body. It fails if nothing arrives for `timeout`
   * milliseconds. A request with a body gets more time, because the client cannot see how much of the body was sent.
   *
   * @param {Call} call
   * @param {AbortSignal} [signal]
   * @param {number} [most] milliseconds that the whole request may take
   */
  async once(call, signal, most = Infinity) {
    const end = performance.now() + most;
    const scope = new Scope(signal);
    const watch = (/** @type {number} */ extra) => {
      const left = Math.max(0, end - performance.now());
      const ms = Math.min(this.#timeout + extra, left);
      const error = new ConnectionError(`no response within ${Math.round(ms)} ms`);
      if (ms === left) cutShort.add(error);
      scope.alarm(ms, error);
    };
    try {
      watch(uploadTime(call) + (call.wait ?? 0));
      const response = await this.open(call, scope);
      /** @type {Uint8Array[]} */
      const pieces = [];
      const reader = response.body?.getReader();
      while (reader) {
        watch(0);
        const { done, value } = await reach(scope, () => reader.read());
        if (done) break;
        pieces.push(value);
      }
      const answer = new Answer(response, pieces);
      call.check?.(answer);
      return answer;
    } finally {
      scope.close();
    }
  }

  /**
   * Sends a request until it succeeds, fails permanently, or `giveUp` milliseconds have passed.
   *
   * @param {Call} call
   * @param {{signal?: AbortSignal, giveUp?: number, repeated?: (error: any) => any}} [options] `repeated` handles the final
   *   error of a request that was sent more than once. An earlier attempt may have succeeded although its response was lost,
   *   so the error may be a result of that success
   * @returns {Promise<Answer>}
   */
  async send(call, { signal, giveUp = this.#giveUp, repeated } = {}) {
    const end = performance.now() + giveUp + uploadTime(call) + (call.wait ?? 0);
    let unknown = false; // whether an attempt may have been carried out: no response arrived, or the response says that the outcome is unknown
    /** @type {any} */
    let error;
    for (let tries = 1; ; tries++) {
      try {
        return await this.once(call, signal, end - performance.now());
      } catch (failure) {
        if (signal?.aborted) throw failure;
        // If an attempt was cut short because the time giveUp ran out, its error does not show what is wrong. So the error of
        // the attempt before it is kept.
        if (tries === 1 || !cutShort.has(/** @type {object} */ (failure))) error = failure;
        unknown ||= isLost(failure);
        const pause = Math.max(backoff(tries, 5000), askedFor(error));
        if (transient(error) && performance.now() + pause < end) {
          await wait(pause, signal);
          continue;
        }
        if (!transient(error) && tries > 1 && repeated) return repeated(error);
        if (call.method !== "GET" && (error instanceof ConnectionError || error instanceof WeirError)) {
          error.outcomeUnknown = unknown;
          error.idempotencyKey = call.headers?.["idempotency-key"] ?? "";
        }
        throw error;
      }
    }
  }
}

/** Errors of attempts that were not sent, because there was no key. */
const unsent = new WeakSet();

/**
 * Reports whether the service may have carried out a request that failed with this error.
 *
 * @param {any} error
 */
function isLost(error) {
  if (error instanceof ConnectionError) return !unsent.has(error);
  // A 503 of Weir says whether the outcome is unknown. Other statuses from 500 on do not say it.
  return error instanceof WeirError && (error.outcomeUnknown || (error.status >= 500 && error.status !== 503));
}

/** Errors of attempts that ended because the time for the whole call was over. */
const cutShort = new WeakSet();

/**
 * Returns the time that the body of a request takes at 8 kB/s, in milliseconds. The request gets this time in addition to
 * the timeout.
 *
 * @param {Call} call
 */
const uploadTime = ({ payload }) => (payload?.body.length ?? 0) / 8;

/**
 * @param {any} error of the key function
 * @returns {never}
 */
function noKey(error) {
  const failure = new ConnectionError(`cannot get a key: ${error?.message}`, error);
  unsent.add(failure);
  throw failure;
}

/** @param {unknown} key */
export function checkedKey(key) {
  if (typeof key !== "string" || !/^[\x21-\x7e]*$/.test(key)) throw new TypeError("invalid key: it must contain only visible ASCII characters");
  return key;
}

/** A response with its body. */
export class Answer {
  /**
   * @param {Response} response
   * @param {Uint8Array[]} pieces of the body
   */
  constructor(response, pieces) {
    this.status = response.status;
    this.requestId = response.headers.get("x-request-id") ?? "";
    this.contentType = response.headers.get("content-type") ?? "";
    this.publisher = response.headers.get("x-svc-publisher") ?? "";
    this.created = response.headers.get("x-svc-stream-created") ?? "";
    this.bytes = pieces.length === 1 ? pieces[0] : new Uint8Array(pieces.reduce((size, piece) => size + piece.length, 0));
    let at = 0;
    for (const piece of pieces) {
      if (piece !== this.bytes) this.bytes.set(piece, at);
      at += piece.length;
    }
  }

  isJSON() {
    return this.contentType.split(";")[0].trim() === "application/json";
  }

  text() {
    return new TextDecoder().decode(this.bytes);
  }

  /** @returns {any} the body. It throws if the body is not a JSON object, because then the response did not come from Weir */
  json() {
    try {
      const value = JSON.parse(this.text());
      if (typeof value === "object" && value) return value;
    } catch {
      // handled below
    }
    throw new ConnectionError(`unexpected response, not from Weir: status ${this.status}, and the body is not a JSON object`);
  }
}

/**
 * Runs one step of a request. If it fails, the error shows the cause: the reason of the caller's signal, the reason of an
 * alarm, or a {@link ConnectionError}.
 *
 * @template T
 * @param {Scope} scope
 * @param {() => Promise<T>} step
 * @returns {Promise<T>}
 */
export async function reach(scope, step) {
  try {
    scope.signal.throwIfAborted();
    return await step();
  } catch (error) {
    if (scope.signal.aborted) throw scope.signal.reason;
    const cause = /** @type {any} */ (error)?.cause; // Node puts the details there
    throw new ConnectionError(`cannot reach the service: ${cause?.message || /** @type {any} */ (error)?.message}`, error);
  }
}

/**
 * Waits for a promise, but at most until the scope is aborted.
 *
 * @template T
 * @param {Scope} scope
 * @param {Promise<T>} promise
 * @returns {Promise<T>}
 */
function until({ signal }, promise) {
  return new Promise((resolve, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    if (signal.aborted) reject(signal.reason);
    promise.then(resolve, reject);
  });
}

/**
 * The time that the service asked to wait before a retry, in milliseconds; 0 if it did not ask.
 *
 * @param {unknown} error
 */
export function askedFor(error) {
  return error instanceof WeirError ? error.retryAfter : 0;
}
