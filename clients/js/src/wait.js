// Timers that can be cancelled.

/**
 * Waits for `ms` milliseconds. If the signal is aborted first, throws its reason.
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
 * Waits like {@link wait}, but not longer than until the page has a network again or becomes visible.
 *
 * @param {number} ms
 * @param {AbortSignal} [signal]
 * @returns {Promise<void>}
 */
export async function waitOrWake(ms, signal) {
  const { document } = globalThis; // undefined in workers and in Node
  const scope = new Scope(signal);
  const wake = () => scope.close();
  const shown = () => document.visibilityState === "visible" && wake();
  globalThis.addEventListener?.("online", wake);
  document?.addEventListener("visibilitychange", shown);
  try {
    await wait(ms, scope.signal);
  } catch {
    signal?.throwIfAborted();
  } finally {
    globalThis.removeEventListener?.("online", wake);
    document?.removeEventListener("visibilitychange", shown);
    scope.close();
  }
}

/**
 * Returns how many milliseconds to wait after the n-th failed attempt: 50 to 100 ms after the first, twice as long after
 * each further one, up to a limit. Half of the time is random, so that clients that were disconnected together do not all
 * retry at the same moment.
 *
 * @param {number} n
 * @param {number} most the limit
 */
export function backoff(n, most) {
  const ms = Math.min(most, 100 * 2 ** Math.min(n - 1, 20));
  return ms / 2 + (Math.random() * ms) / 2;
}

/**
 * Scope is the lifetime of a request. Its signal is aborted by the caller's signal, by its own alarm, or by close. After
 * close no timer and no listener is left.
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
   * Sets an alarm that aborts the scope with a reason after `ms` milliseconds. It replaces an earlier alarm.
   *
   * @param {number} ms Infinity sets no alarm
   * @param {Error} reason
   */
  alarm(ms, reason) {
    this.silence();
    if (ms < 2 ** 31) this.#timer = setTimeout(() => this.#controller.abort(reason), ms);
  }

  /** Cancels the alarm. */
  silence() {
    clearTimeout(this.#timer);
  }

  close() {
    this.silence();
    this.#outer?.removeEventListener("abort", this.#stop);
    this.#controller.abort();
  }
}
