// Waiting, and ending it early.

/**
 * Waits, unless the signal ends it, and then throws the signal's reason.
 *
 * @param {number} ms
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
export function wait(ms, signal) {
  return new Promise((resolve, reject) => {
    const done = () => {
      signal?.removeEventListener("abort", stop);
      resolve();
    };
    const timer = setTimeout(done, ms);
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    if (signal?.aborted) return stop();
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/**
 * How long to wait before the try after the n-th: 50 to 100 ms at first, twice as long each time, up to a limit. The
 * random half keeps clients apart that were cut off together.
 *
 * @param {number} n
 * @param {number} most
 */
export function backoff(n, most) {
  const ms = Math.min(most, 100 * 2 ** Math.min(n - 1, 20));
  return ms / 2 + (Math.random() * ms) / 2;
}

/**
 * Scope is what a request lives in: it ends with the caller's signal, with its own alarm, or when it is closed, and leaves
 * neither a timer nor a listener behind.
 */
export class Scope {
  #controller = new AbortController();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  #outer;
  #stop = () => this.#controller.abort(this.#outer?.reason);

  /** @param {AbortSignal} [outer] */
  constructor(outer) {
    this.#outer = outer;
    if (outer?.aborted) this.#stop();
    outer?.addEventListener("abort", this.#stop, { once: true });
  }

  get signal() {
    return this.#controller.signal;
  }

  /**
   * Ends the scope with a reason, unless the alarm is set anew or off before.
   *
   * @param {number} ms Infinity sets none
   * @param {Error} reason
   */
  alarm(ms, reason) {
    this.silence();
    if (ms < 2 ** 31) this.#timer = setTimeout(() => this.#controller.abort(reason), ms);
  }

  silence() {
    clearTimeout(this.#timer);
  }

  close() {
    this.silence();
    this.#outer?.removeEventListener("abort", this.#stop);
    this.#controller.abort();
  }
}
