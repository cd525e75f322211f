// The two publish requests, and checks of their outcome.

import { codeOf, transient } from "./errors.js";
import { eventsOf } from "./payload.js";

/**
 * Publishes with the next sequence number.
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
 * Publishes with a given sequence number.
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
 * @typedef {object} Ack
 * @property {string} streamId
 * @property {number} seq under which the batch is stored
 * @property {number} accepted number of events in the batch; 1 for a raw batch
 * @property {number} cursor of the stream after the write
 * @property {boolean} duplicate whether the batch was already stored
 */

/**
 * @param {import("./call.js").Answer} answer
 * @returns {Ack}
 */
export function ackOf(answer) {
  const { stream_id: streamId, seq, accepted, cursor, duplicate } = answer.json();
  return { streamId, seq, accepted, cursor, duplicate };
}

/**
 * Reports whether the batch stored under a sequence is the one that was sent. A `duplicate` acknowledgement alone does not
 * tell: an earlier attempt may have stored the batch although its response was lost, or another writer may have used the
 * sequence. If the batch cannot be read, because the key lacks the permission or the batch was evicted, only the number of
 * events can be compared.
 *
 * @param {import("./call.js").Caller} caller
 * @param {string} path of the stream
 * @param {import("./payload.js").Payload} payload
 * @param {Ack} ack
 * @param {boolean} unread the result for a batch that cannot be read but has the same number of events
 * @param {AbortSignal} signal
 */
export async function isMine(caller, path, payload, ack, unread, signal) {
  try {
    const answer = await caller.once({ method: "GET", path: `${path}/batches/${ack.seq}` }, signal);
    return answer.isJSON()
      ? JSON.stringify(answer.json().events) === JSON.stringify(eventsOf(payload.body))
      : answer.bytes.length === payload.body.length && answer.bytes.every((byte, i) => byte === payload.body[i]);
  } catch (error) {
    if (codeOf(error) !== "project_forbidden" && codeOf(error) !== "stream_not_found") throw error;
    return unread && ack.accepted === payload.events;
  }
}

/**
 * Reports whether a retried batch was refused because the stream has evicted its sequence in the meantime. That is not a
 * conflict: even if the batch had been stored, no subscriber could read it.
 *
 * @param {import("./call.js").Caller} caller
 * @param {string} path of the stream
 * @param {number} seq
 * @param {AbortSignal} signal
 */
export async function wasEvicted(caller, path, seq, signal) {
  try {
    await caller.once({ method: "GET", path: `${path}/batches/${seq}` }, signal);
    return false;
  } catch (error) {
    if (transient(error) || signal.aborted) throw error;
    return codeOf(error) === "stream_not_found" && /evicted/.test(/** @type {Error} */ (error).message); // evicted and never stored have the same code
  }
}
