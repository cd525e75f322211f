// Requests to the service.

import { ConnectionError, WeirError, refusal, transient } from "./errors.js";
import { backoff, Scope, wait } from "./wait.js";

/**
 * @typedef {object} Call one request, ready to be sent as often as it takes
 * @property {"GET" | "POST" | "DELETE"} method
 * @property {string} path with its query
 * @property {import("./payload.js").Payload | {contentType: string, body: Uint8Array | string}} [payload]
 * @property {Record<string, string>} [headers]
 */

/** Caller sends requests with a key. */
export class Caller {
  #base;
  #key;
  #fetch;
  #attempts;
  #timeout;

  /**
   * @param {string} base
   * @param {{key: string, fetch: typeof fetch, attempts: number, timeout: number}} options
   */
  constructor(base, { key, fetch, attempts, timeout }) {
    this.#base = base;
    this.#key = key;
    this.#fetch = fetch;
    this.#attempts = attempts;
    this.#timeout = timeout;
  }

  /**
   * Sends a request once and returns the answer, if it is a success.
   *
   * @param {Call} call
   * @param {Scope} scope
   * @returns {Promise<Response>}
   */
  async open({ method, path, payload, headers }, scope) {
    /** @type {Record<string, string>} */
    const all = { ...headers };
    if (this.#key !== "") all.authorization = `Bearer ${this.#key}`;
    if (payload) all["content-type"] = payload.contentType;
    const send = this.#fetch; // called on nothing: that of a browser wants no other this
    const response = await reach(scope, () =>
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
    if (!response.ok) throw refusal(response, await reach(scope, () => response.text()));
    return response;
  }

  /**
   * Sends a request once and returns the answer with its body.
   *
   * @param {Call} call
   * @param {AbortSignal} [signal]
   */
  async once(call, signal) {
    const scope = new Scope(signal);
    scope.alarm(this.#timeout, new ConnectionError(`no answer within ${this.#timeout} ms`));
    try {
      const response = await this.open(call, scope);
      const bytes = new Uint8Array(await reach(scope, () => response.arrayBuffer()));
      return new Answer(response, bytes);
    } finally {
      scope.close();
    }
  }

  /**
   * Sends a request until it succeeds, is refused, or was tried often enough.
   *
   * @param {Call} call
   * @param {AbortSignal} [signal]
   * @param {(error: any) => any} [repeated] what to make of the failure of a request that was sent before: it may have come
   *   through then, and its answer not
   * @returns {Promise<Answer>}
   */
  async send(call, signal, repeated) {
    for (let tries = 1; ; tries++) {
      try {
        return await this.once(call, signal);
      } catch (error) {
        if (signal?.aborted) throw error;
        if (!transient(error) || tries >= this.#attempts) {
          if (tries > 1 && repeated) return repeated(error);
          throw error;
        }
        await wait(Math.max(backoff(tries, 5000), askedFor(error)), signal);
      }
    }
  }
}

/** An answer with its body. */
export class Answer {
  /**
   * @param {Response} response
   * @param {Uint8Array} bytes
   */
  constructor(response, bytes) {
    this.status = response.status;
    this.requestId = response.headers.get("x-request-id") ?? "";
    this.contentType = response.headers.get("content-type") ?? "";
    this.bytes = bytes;
  }

  isJSON() {
    return this.contentType.split(";")[0].trim() === "application/json";
  }

  text() {
    return new TextDecoder().decode(this.bytes);
  }

  /** @returns {any} undefined where there is no content */
  json() {
    if (this.bytes.length === 0) return undefined;
    try {
      return JSON.parse(this.text());
    } catch {
      throw new WeirError(`the answer is not one of Weir: status ${this.status}, and no JSON`, { status: this.status, requestId: this.requestId });
    }
  }
}

/**
 * Does a step of a request, and says of a failure whose it is: the caller's signal, an alarm, or the connection.
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
    const cause = /** @type {any} */ (error)?.cause; // Node says there what happened
    throw new ConnectionError(`the service cannot be reached: ${cause?.message || /** @type {any} */ (error)?.message}`, error);
  }
}

/**
 * How long the service asked to wait, in milliseconds.
 *
 * @param {unknown} error
 */
export function askedFor(error) {
  return error instanceof WeirError ? error.retryAfter : 0;
}
