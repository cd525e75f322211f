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
    /** Error code for programs; empty if the response came from a proxy and not from the service. @type {string} */
    this.code = code;
    /** Id of the request. Quote it when you ask the operator for help. @type {string} */
    this.requestId = requestId;
    /** Link to the explanation of the code. @type {string} */
    this.docUrl = docUrl;
    /** Milliseconds to wait before a retry, if the service asked for it; otherwise 0. @type {number} */
    this.retryAfter = retryAfter;
  }
}

/**
 * The service cannot be reached, the connection was lost, or the response took too long. In a page, a request that the
 * browser blocks looks the same, because browsers do not tell pages the reason.
 */
export class ConnectionError extends Error {
  /**
   * @param {string} message
   * @param {unknown} [cause]
   */
  constructor(message, cause) {
    super(message, { cause });
    this.name = "ConnectionError";
  }
}

/**
 * A publisher failed. `reason` is
 *
 * - `refused`: the service refused the batch; `cause` is its {@link WeirError},
 * - `conflict`: another writer is publishing to the stream,
 * - `too_late`: the service closed the gap of the batch before it arrived, and `startAt` fixes its sequence number,
 * - `given_up`: nothing was acknowledged within `giveUp`,
 * - `closed`: the publisher is closed.
 */
export class PublishError extends Error {
  /**
   * @param {"refused" | "conflict" | "too_late" | "given_up" | "closed"} reason
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
 * Turns a response that is not a success into an error.
 *
 * @param {Response} response
 * @param {string} text its body
 * @returns {WeirError}
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
  if (typeof error?.code !== "string" || error.code === "") {
    return new WeirError(`unexpected response, not from Weir: status ${response.status}`, details);
  }
  return new WeirError(`${error.code}: ${error.message}`, {
    ...details,
    type: error.type,
    code: error.code,
    requestId: details.requestId || error.request_id,
    docUrl: error.doc_url,
  });
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
