// Encodes the bodies of publish requests, and decodes batches.

import { WeirError } from "./errors.js";

/** Maximum size of the body of a publish request, in bytes. */
export const maxBody = 8 * 1024 * 1024;

export const typeJSON = "application/json";
export const typeBytes = "application/octet-stream";

const encoder = new TextEncoder();

/**
 * @typedef {object} Gap a range of sequences that can no longer be delivered to a subscriber
 * @property {number} from the first missing sequence number
 * @property {number} to the last missing sequence number
 * @property {string} reason `evicted` (by the retention of the stream) or `lost` (to a damaged disk)
 */

/**
 * @template [T=any] the type of the events
 * @typedef {object} Batch a batch as it was published, or a gap
 * @property {number} seq its sequence number
 * @property {Date} [time] when it was stored; missing for a raw batch from {@link Client.batch}, and for a gap
 * @property {T[]} events the events of a json stream; empty for a raw stream
 * @property {string} [contentType] the content type, for a raw stream
 * @property {Uint8Array} [data] the bytes, for a raw stream
 * @property {Gap} [gap] set if this is not a batch but a range of missing batches, which ends at `seq`
 */

/**
 * @typedef {{contentType: string, body: Uint8Array}} Payload
 */

/**
 * Encodes the body of a publish request: an array becomes a batch of events, bytes become a raw batch.
 *
 * @param {any} payload
 * @param {(event: any) => string | undefined} stringify
 * @returns {Payload}
 */
export function payloadOf(payload, stringify) {
  if (payload instanceof ArrayBuffer || ArrayBuffer.isView(payload)) {
    return checked({ contentType: typeBytes, body: bytesOf(payload) });
  }
  if (!Array.isArray(payload)) {
    throw new TypeError("publish takes an array of events, or a Uint8Array for a raw stream");
  }
  return checked(bodyOf(Array.from(payload, (event) => encodeEvent(event, stringify))));
}

/** @param {Payload} payload */
function checked(payload) {
  if (payload.body.length > maxBody) throw tooLarge(payload.body.length);
  return payload;
}

/** @param {number} size */
export function tooLarge(size) {
  return new WeirError(`payload_too_large: the batch is ${size} bytes; the limit is ${maxBody}`, { code: "payload_too_large" });
}

/**
 * Copies bytes, so that the caller can reuse its buffer while the batch is in flight.
 *
 * @param {ArrayBuffer | ArrayBufferView} data
 * @returns {Uint8Array}
 */
export function bytesOf(data) {
  const view = ArrayBuffer.isView(data) ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength) : new Uint8Array(data);
  return view.slice();
}

const start = encoder.encode('{"events":[');
const end = encoder.encode("]}");

/** Number of bytes that the body has in addition to the events. */
export const frame = start.length + end.length;

/**
 * Builds the body of a publish request from encoded events.
 *
 * @param {Uint8Array[]} events
 * @returns {Payload}
 */
export function bodyOf(events) {
  let size = frame + Math.max(0, events.length - 1);
  for (const event of events) size += event.length;
  const body = new Uint8Array(size);
  body.set(start);
  let at = start.length;
  events.forEach((event, i) => {
    if (i > 0) body[at++] = 44; // a comma
    body.set(event, at);
    at += event.length;
  });
  body.set(end, at);
  return { contentType: typeJSON, body };
}

/**
 * Returns the events in the body of a publish request.
 *
 * @param {Uint8Array} body
 * @returns {any[]}
 */
export function eventsOf(body) {
  return JSON.parse(new TextDecoder().decode(body)).events;
}

/**
 * Encodes an event. It rejects events that the service would refuse, because the service would refuse the whole batch,
 * including its valid events.
 *
 * @param {any} event
 * @param {(event: any) => string | undefined} stringify
 * @returns {Uint8Array}
 */
export function encodeEvent(event, stringify) {
  const text = stringify(event);
  if (typeof text !== "string") throw new TypeError(`an event must be a JSON value, not ${typeof event}`);
  // JSON.stringify escapes a surrogate only if its other half is missing.
  if (text.includes("\\ud") && /(?:^|[^\\])(?:\\\\)*\\ud[89a-f][0-9a-f]{2}/.test(text)) {
    throw new TypeError("a string in an event contains half a surrogate pair");
  }
  if (text.length > 2 * maxDepth && depth(text) > maxDepth) {
    throw new TypeError(`an event must not be nested deeper than ${maxDepth} levels`);
  }
  return encoder.encode(text);
}

// The service accepts 1,000 levels. The body around an event uses two of them: the object and the array.
const maxDepth = 998;

/** Returns the nesting depth of a JSON text. @param {string} text */
function depth(text) {
  let open = 0;
  let most = 0;
  for (let i = 0; i < text.length; i++) {
    switch (text[i]) {
      case '"':
        for (i++; i < text.length && text[i] !== '"'; i++) if (text[i] === "\\") i++;
        break;
      case "{":
      case "[":
        most = Math.max(most, ++open);
        break;
      case "}":
      case "]":
        open--;
    }
  }
  return most;
}

/**
 * Decodes a batch object of a json or a raw stream.
 *
 * @param {string} text
 * @param {(text: string) => any} parse
 * @returns {Batch}
 */
export function parseBatch(text, parse) {
  return batchOf(parse(text), text);
}

/**
 * Checks a parsed batch object.
 *
 * @param {any} object
 * @param {string} text for the error
 * @returns {Batch}
 */
function batchOf({ seq: number, ts, events, content_type: contentType, data }, text) {
  const seq = Number(number ?? NaN); // a custom parse may return another type for numbers
  const raw = contentType !== undefined;
  if (!Number.isSafeInteger(seq) || !(raw ? typeof data === "string" : Array.isArray(events))) {
    throw new WeirError(`cannot read a batch: ${text.slice(0, 100)}`);
  }
  const batch = { seq, time: new Date(ts), events: events ?? [] };
  return raw ? { ...batch, contentType, data: fromBase64(data) } : batch;
}

/**
 * @template [T=any] the type of the events
 * @typedef {object} Page a range of batches
 * @property {Batch<T>[]} batches in increasing order of their sequence numbers
 * @property {number} next the sequence number to continue from
 * @property {number} cursor the cursor of the stream
 * @property {Gap} [gap] batches before the page that can no longer be read
 */

/**
 * Parses a page of batches.
 *
 * @param {string} text
 * @param {(text: string) => any} parse
 * @returns {Page}
 */
export function parsePage(text, parse) {
  const { batches, next, cursor, gap } = parse(text);
  /** @type {Page} */
  const page = { batches: batches.map((/** @type {any} */ b) => batchOf(b, text)), next: Number(next), cursor: Number(cursor) };
  if (gap) page.gap = { from: Number(gap.from), to: Number(gap.to), reason: gap.reason };
  return page;
}

/** @param {string} text */
function fromBase64(text) {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/** Returns 22 random base62 characters, for a stream id or an idempotency key. */
export function randomName() {
  let name = "";
  while (name.length < 22) {
    for (const byte of crypto.getRandomValues(new Uint8Array(32))) {
      if (byte < 248 && name.length < 22) name += digits[byte % 62]; // 248 is 4 * 62, so every digit is equally likely
    }
  }
  return name;
}
