// Sends requests to the service.

import { ConnectionError, WeirError, refusal, transient } from "./errors.js";
import { backoff, Scope, wait } from "./wait.js";

/**
 * @typedef {object} Call one request, which can be sent any number of times
 * @property {"GET" | "POST" | "DELETE"} method
 * @property {string} path including the query
 * @property {import("./payload.js").Payload | {contentType: string, body: Uint8Array | string}} [payload]
 * @property {Record<string, string>} [headers]
 */

/** Caller sends requests to one service with one key. */
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
   * Sends a request once. Returns the response if it is a success, and throws otherwise.
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
    const send = this.#fetch; // not this.#fetch(…): the fetch of a browser fails with another this
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
   * Sends a request once and returns the response with its whole body.
   *
   * @param {Call} call
   * @param {AbortSignal} [signal]
   */
  async once(call, signal) {
    const scope = new Scope(signal);
    scope.alarm(this.#timeout, new ConnectionError(`no response within ${this.#timeout} ms`));
    try {
      const response = await this.open(call, scope);
      const bytes = new Uint8Array(await reach(scope, () => response.arrayBuffer()));
      return new Answer(response, bytes);
    } finally {
      scope.close();
    }
  }

  /**
   * Sends a request until it succeeds, fails permanently, or was tried `attempts` times.
   *
   * @param {Call} call
   * @param {AbortSignal} [signal]
   * @param {(error: any) => any} [repeated] handles the final error of a request that was sent more than once. An
   *   earlier attempt may have succeeded although its response was lost, so the error may be a result of that success
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

/** A response with its body. */
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

  /** @returns {any} undefined if the body is empty */
  json() {
    if (this.bytes.length === 0) return undefined;
    try {
      return JSON.parse(this.text());
    } catch {
      throw new WeirError(`unexpected response, not from Weir: status ${this.status}, and the body is not JSON`, { status: this.status, requestId: this.requestId });
    }
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
 * The time that the service asked to wait before a retry, in milliseconds; 0 if it did not ask.
 *
 * @param {unknown} error
 */
export function askedFor(error) {
  return error instanceof WeirError ? error.retryAfter : 0;
}
