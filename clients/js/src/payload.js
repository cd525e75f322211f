// What goes into a publish and what comes out of a batch.

import { WeirError } from "./errors.js";

/** The most that the body of a publish may have, in bytes. */
export const maxBody = 8 * 1024 * 1024;

export const typeJSON = "application/json";
export const typeBytes = "application/octet-stream";

const encoder = new TextEncoder();

/**
 * @typedef {object} Gap a run of sequences that a subscriber will not get, because they were gone before it came to them
 * @property {number} from the first
 * @property {number} to the last
 * @property {string} reason `evicted` or `lost`
 */

/**
 * @typedef {object} Batch what was published at once
 * @property {number} seq its sequence
 * @property {Date} [time] when it was stored; a raw batch that is fetched by itself comes without
 * @property {any[]} events of a json stream; of a raw stream there are none
 * @property {string} [contentType] of a raw stream
 * @property {Uint8Array} [data] of a raw stream
 * @property {Gap} [gap] set when this is no batch but a loss, up to the sequence `seq`
 */

/**
 * @typedef {{contentType: string, body: Uint8Array, events: number}} Payload
 */

/**
 * Makes the body of a publish: of an array a batch of events, of bytes a raw batch.
 *
 * @param {any} payload
 * @param {(event: any) => string | undefined} stringify
 * @returns {Payload}
 */
export function payloadOf(payload, stringify) {
  if (payload instanceof ArrayBuffer || ArrayBuffer.isView(payload)) {
    return checked({ contentType: typeBytes, body: bytesOf(payload), events: 1 });
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
  return new WeirError(`payload_too_large: a batch of ${size} bytes: the most that one may have is ${maxBody}`, { code: "payload_too_large" });
}

/**
 * A copy of bytes, so that nobody changes what is on its way.
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

/** What the body around events takes. */
export const frame = start.length + end.length;

/**
 * Puts encoded events into the body of a publish.
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
  return { contentType: typeJSON, body, events: events.length };
}

/**
 * The events in the body of a publish.
 *
 * @param {Uint8Array} body
 * @returns {any[]}
 */
export function eventsOf(body) {
  return JSON.parse(new TextDecoder().decode(body)).events;
}

/**
 * Encodes an event, and refuses what the service would refuse, so that one bad event does not take others with it.
 *
 * @param {any} event
 * @param {(event: any) => string | undefined} stringify
 * @returns {Uint8Array}
 */
export function encodeEvent(event, stringify) {
  const text = stringify(event);
  if (typeof text !== "string") throw new TypeError(`an event must be something that JSON has, not ${typeof event}`);
  // JSON.stringify escapes a surrogate only where its other half is missing.
  if (text.includes("\\ud") && /(?:^|[^\\])(?:\\\\)*\\ud[89a-f][0-9a-f]{2}/.test(text)) {
    throw new TypeError("an event has half a surrogate pair in a string");
  }
  if (text.length > 2 * maxDepth && depth(text) > maxDepth) {
    throw new TypeError(`an event is nested deeper than ${maxDepth} levels`);
  }
  return encoder.encode(text);
}

// The service takes 1,000 levels, and two are around an event.
const maxDepth = 998;

/** @param {string} text JSON */
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
 * Reads a batch object, of a stream of either mode.
 *
 * @param {string} text
 * @param {(text: string) => any} parse
 * @returns {Batch}
 */
export function parseBatch(text, parse) {
  const { seq: number, ts, events, content_type: contentType, data } = parse(text);
  const seq = Number(number ?? NaN); // a parse of the program's may make something else of numbers
  const raw = contentType !== undefined;
  if (!Number.isSafeInteger(seq) || !(raw ? typeof data === "string" : Array.isArray(events))) {
    throw new WeirError(`a batch cannot be read: ${text.slice(0, 100)}`);
  }
  const batch = { seq, time: new Date(ts), events: events ?? [] };
  return raw ? { ...batch, contentType, data: fromBase64(data) } : batch;
}

/** @param {string} text */
function fromBase64(text) {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/** A random name of 22 base62 characters: a stream id, or an idempotency key. */
export function randomName() {
  let name = "";
  while (name.length < 22) {
    for (const byte of crypto.getRandomValues(new Uint8Array(32))) {
      if (byte < 248 && name.length < 22) name += digits[byte % 62]; // 248 is 4 times 62: every digit is as likely
    }
  }
  return name;
}
