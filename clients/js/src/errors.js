// The errors of the client, as classes that a program can tell apart.

/** The service refused a request, or sent a response that the client cannot read. */
export class WeirError extends Error {
  /**
   * @param {string} message
   * @param {{status?: number, type?: string, code?: string, requestId?: string, docUrl?: string, retryAfter?: number}} [details]
   */
  constructor(message, { status = 0, type = "", code = "", requestId = "", docUrl = "", retryAfter = 0 } = {}) {
    super(message);
    this.name = "WeirError";
    /** HTTP status of the response; 0 if there was none. @type {number} */
    this.status = status;
    /** The category, such as `not_found_error`. @type {string} */
    this.type = type;
    /** Error code for programs, such as `stream_not_found`. @type {string} */
    this.code = code;
    /** Id of the request. Quote it when you ask the operator for help. @type {string} */
    this.requestId = requestId;
    /** Link to the explanation of the code. @type {string} */
    this.docUrl = docUrl;
    /** Milliseconds to wait before a retry, if the service asked for it; otherwise 0. @type {number} */
    this.retryAfter = retryAfter;
    /** Whether an attempt of the call may have succeeded: its response was lost, or says that the outcome is unknown. @type {boolean} */
    this.outcomeUnknown = false;
    /** The idempotency key of a failed publish, with which it can be repeated safely. Otherwise empty. @type {string} */
    this.idempotencyKey = "";
  }
}

/**
 * The service cannot be reached, the connection was lost, the response took too long, or it did not come from Weir but from
 * something in between, such as a proxy. In a page, a request that the browser blocks looks the same, because browsers do not
 * tell pages the reason.
 */
export class ConnectionError extends Error {
  /**
   * @param {string} message
   * @param {unknown} [cause]
   */
  constructor(message, cause) {
    super(message, { cause });
    this.name = "ConnectionError";
    /** Whether a change may have been made although no response arrived. @type {boolean} */
    this.outcomeUnknown = false;
    /** The idempotency key of a failed publish, with which it can be repeated safely. Otherwise empty. @type {string} */
    this.idempotencyKey = "";
  }
}

/**
 * A publisher failed. `reason` is
 *
 * - `refused`: the service refused the batch; `cause` is its {@link WeirError},
 * - `taken`: another publisher stored a batch under this sequence number,
 * - `gap_closed`: the service closed the gap at this sequence number, so the batch is not stored,
 * - `evicted`: the stream has moved past this sequence number, and the service no longer knows whether the batch was stored,
 * - `reset`: the stream was created again, or ends below what this publisher has stored because it was restored from a
 *   backup,
 * - `given_up`: nothing was acknowledged within `giveUp`,
 * - `closed`: the publisher is closed.
 */
export class PublishError extends Error {
  /**
   * @param {"refused" | "taken" | "gap_closed" | "evicted" | "reset" | "given_up" | "closed"} reason
   * @param {string} message
   * @param {number} seq
   * @param {unknown} [cause]
   */
  constructor(reason, message, seq, cause) {
    super(message, { cause });
    this.name = "PublishError";
    this.reason = reason;
    /** The sequence of the batch that failed; -1 if the error is not about a batch. @type {number} */
    this.seq = seq;
  }
}

/**
 * A stream was deleted and created again under the same id, so a position in the old stream has no meaning in the new one. Or
 * it was restored from a backup that is older than the position; then `before` and `created` are the same.
 */
export class ResetError extends Error {
  /**
   * @param {string} before
   * @param {string} created
   * @param {string} [message]
   */
  constructor(before, created, message = `the stream was created again at ${created}; the known one was created at ${before}`) {
    super(message);
    this.name = "ResetError";
    /** When the stream that the position belongs to was created. @type {string} */
    this.before = before;
    /** When the present stream was created. @type {string} */
    this.created = created;
  }
}

/** Batches are missing from a stream of events; see {@link Subscription.events}. */
export class GapError extends Error {
  /** @param {import("./payload.js").Gap} gap */
  constructor(gap) {
    super(`batches ${gap.from} to ${gap.to} are gone: ${gap.reason}`);
    this.name = "GapError";
    this.gap = gap;
  }
}

/**
 * Turns a response that is not a success into an error. Without Weir's error object, the response came from something in
 * between, such as a proxy without a backend. Such a response says nothing about the request, so it counts as a broken
 * connection.
 *
 * @param {Response} response
 * @param {string} text its body
 * @returns {WeirError | ConnectionError}
 */
export function refusal(response, text) {
  const seconds = Number(response.headers.get("retry-after"));
  const details = {
    status: response.status,
    requestId: response.headers.get("x-request-id") ?? "",
    retryAfter: seconds > 0 && seconds < 86400 ? seconds * 1000 : 0,
  };
  let error;
  try {
    error = JSON.parse(text).error;
  } catch {
    // a response of a proxy, for example; handled below
  }
  // Hosting platforms answer in place of the service with similar objects, but with codes such as "404" or "NOT_FOUND".
  if (typeof error?.code !== "string" || !/^[a-z_]+$/.test(error.code)) {
    const target = response.headers.get("location");
    if (target && response.status >= 300 && response.status < 400) {
      return new ConnectionError(`redirected to ${target}: use that address as the url of the client`);
    }
    if (response.type === "opaqueredirect") return new ConnectionError("redirected; the browser does not tell where to");
    return new ConnectionError(`unexpected response, not from Weir: status ${response.status}`);
  }
  const refused = new WeirError(`${error.code}: ${error.message}`, {
    ...details,
    type: error.type,
    code: error.code,
    requestId: details.requestId || error.request_id,
    docUrl: error.doc_url,
  });
  refused.outcomeUnknown = response.headers.get("x-svc-outcome") === "unknown";
  return refused;
}

/** Statuses after which the same request may succeed. */
const temporary = [408, 429, 500, 502, 503, 504];

/**
 * Reports whether a retry may succeed: the connection broke, or the status says that the problem is temporary.
 *
 * @param {unknown} error
 */
export function transient(error) {
  return error instanceof ConnectionError || (error instanceof WeirError && temporary.includes(error.status));
}

/**
 * The error code of a {@link WeirError}; empty for any other error.
 *
 * @param {unknown} error
 */
export function codeOf(error) {
  return error instanceof WeirError ? error.code : "";
}
