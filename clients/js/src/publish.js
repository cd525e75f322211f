// The publish requests, and their acknowledgements.

import { ConnectionError } from "./errors.js";

/**
 * Returns the request that publishes a batch under the next sequence number.
 *
 * @param {string} path of the stream
 * @param {string} key the idempotency key
 * @param {import("./payload.js").Payload} payload
 * @returns {import("./call.js").Call}
 */
export function nextCall(path, key, payload) {
  return { method: "POST", path: `${path}/publish`, payload, headers: { "idempotency-key": key } };
}

/**
 * Returns the request that publishes a batch under a given sequence number.
 *
 * @param {string} path of the stream
 * @param {number} seq
 * @param {import("./payload.js").Payload} payload
 * @returns {import("./call.js").Call}
 */
export function atCall(path, seq, payload) {
  return { method: "POST", path: `${path}/${seq}`, payload };
}

/**
 * Returns the request that publishes a batch under a given sequence number, with the name of the publisher. The service keeps
 * the name with the batch.
 *
 * @param {string} path of the stream
 * @param {number} seq
 * @param {import("./payload.js").Payload} payload
 * @param {string} publisher
 * @param {boolean} contiguous whether the service must refuse the batch if its predecessor is missing
 * @returns {import("./call.js").Call}
 */
export function orderedCall(path, seq, payload, publisher, contiguous) {
  /** @type {Record<string, string>} */
  const headers = { "x-svc-publisher": publisher };
  if (contiguous) headers["x-svc-contiguous"] = "true";
  return { ...atCall(path, seq, payload), headers };
}

/**
 * @typedef {object} Ack
 * @property {string} streamId
 * @property {number} seq sequence number under which the batch is stored
 * @property {number} accepted number of events in the batch; 1 for a raw batch
 * @property {number} cursor cursor of the stream after the write
 * @property {boolean} duplicate whether the batch was already stored
 */

/**
 * Reads an acknowledgement. It throws if the response acknowledges something else or nothing. Such a response did not come
 * from Weir: networks with a login page, for example, answer every request with 200.
 *
 * @param {import("./call.js").Answer} answer
 * @param {string} path of the stream
 * @param {number} [seq] the sequence that was published, if the client chose it
 * @returns {Ack}
 */
export function ackOf(answer, path, seq) {
  const { stream_id: streamId, seq: stored, accepted, cursor, duplicate } = answer.json();
  if (!Number.isSafeInteger(stored) || path !== streamPath(streamId) || (seq !== undefined && stored !== seq)) {
    throw new ConnectionError("unexpected response, not from Weir: it acknowledges something else");
  }
  return { streamId, seq: stored, accepted, cursor, duplicate };
}

/** @param {string} id */
export const streamPath = (id) => `/v1/streams/${encodeURIComponent(id)}`;
