// The two requests that publish, and what became of them.

import { codeOf, transient } from "./errors.js";
import { eventsOf } from "./payload.js";

/**
 * @param {string} path of the stream
 * @param {string} key
 * @param {import("./payload.js").Payload} payload
 * @returns {import("./call.js").Call}
 */
export function nextCall(path, key, payload) {
  return { method: "POST", path: `${path}/publish`, payload, headers: { "idempotency-key": key } };
}

/**
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
 * @property {number} accepted how many events were stored; of a raw batch 1
 * @property {number} cursor of the stream after the write
 * @property {boolean} duplicate the batch was stored before
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
 * Tells whether what is stored under a sequence is what was sent under it: an answer that got lost is followed by one that
 * says duplicate, but so is what another writer stored. Where the batch cannot be read, for lack of permission or because it
 * was evicted, the number of events is all that can be compared.
 *
 * @param {import("./call.js").Caller} caller
 * @param {string} path of the stream
 * @param {import("./payload.js").Payload} payload
 * @param {Ack} ack
 * @param {boolean} unread what to say of a batch that cannot be read and has as many events
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
 * Tells whether a batch that was sent before is refused because the retention of the stream has passed its sequence since:
 * nobody could read it any more, and that is no conflict.
 *
 * @param {import("./call.js").Caller} caller
 * @param {string} path of the stream
 * @param {number} seq
 * @param {AbortSignal} signal
 */
export async function hasPassed(caller, path, seq, signal) {
  try {
    await caller.once({ method: "GET", path: `${path}/batches/${seq}` }, signal);
    return false;
  } catch (error) {
    if (transient(error) || signal.aborted) throw error;
    return codeOf(error) === "stream_not_found" && /evicted/.test(/** @type {Error} */ (error).message); // only the message tells
  }
}
