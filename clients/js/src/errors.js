// What can go wrong, as values that a program can branch on.

/** A refusal of the service. */
export class WeirError extends Error {
  /**
   * @param {string} message
   * @param {{status?: number, type?: string, code?: string, requestId?: string, docUrl?: string, retryAfter?: number}} [details]
   */
  constructor(message, { status = 0, type = "", code = "", requestId = "", docUrl = "", retryAfter = 0 } = {}) {
    super(message);
    this.name = "WeirError";
    /** Status of the answer. @type {number} */
    this.status = status;
    /** The category, such as `not_found_error`. @type {string} */
    this.type = type;
    /** What to branch on; empty when the answer did not come from the service but from something before it. @type {string} */
    this.code = code;
    /** To quote when asking the operator. @type {string} */
    this.requestId = requestId;
    /** Explains the code. @type {string} */
    this.docUrl = docUrl;
    /** In how many milliseconds to try again, where the service said so; 0 where it did not. @type {number} */
    this.retryAfter = retryAfter;
  }
}

/**
 * The way to the service is broken: it cannot be reached, the connection was lost, or the answer took too long. In a page
 * this is also what a refusal by the browser looks like, which does not tell pages why.
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
 * Why a publisher failed, and with which batch. `reason` is
 *
 * - `refused`: the service will not take the batch; `cause` is its {@link WeirError},
 * - `conflict`: somebody else publishes to the stream, or the sequence came too late and is closed for good,
 * - `given_up`: nothing was acknowledged for as long as `giveUp` allows,
 * - `closed`: the publisher was closed before.
 */
export class PublishError extends Error {
  /**
   * @param {"refused" | "conflict" | "given_up" | "closed"} reason
   * @param {string} message
   * @param {number} seq
   * @param {unknown} [cause]
   */
  constructor(reason, message, seq, cause) {
    super(message, { cause });
    this.name = "PublishError";
    this.reason = reason;
    /** The sequence of the batch; -1 where it is about none. @type {number} */
    this.seq = seq;
  }
}

/**
 * Reads an answer that is not a success.
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
    // not ours
  }
  if (typeof error?.code !== "string" || error.code === "") {
    return new WeirError(`the answer is not one of Weir: status ${response.status}`, details);
  }
  return new WeirError(`${error.code}: ${error.message}`, {
    ...details,
    type: error.type,
    code: error.code,
    requestId: details.requestId || error.request_id,
    docUrl: error.doc_url,
  });
}

const passing = [408, 429, 500, 502, 503, 504];

/**
 * Tells whether what failed may succeed later: the way to the service is broken, or the service says so.
 *
 * @param {unknown} error
 */
export function transient(error) {
  return error instanceof ConnectionError || (error instanceof WeirError && passing.includes(error.status));
}

/**
 * The code of a refusal, empty for any other error.
 *
 * @param {unknown} error
 */
export function codeOf(error) {
  return error instanceof WeirError ? error.code : "";
}
