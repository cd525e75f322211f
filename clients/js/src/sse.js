// Server-sent events as the HTML standard has them.

import { WeirError } from "./errors.js";
import { maxBody } from "./payload.js";

/** The most that the data of an event may have, in characters: a body in base64, with room for the members around it. */
const maxEvent = Math.ceil(maxBody / 3) * 4 + 64 * 1024;

/**
 * @typedef {object} ServerEvent
 * @property {string} name `message` where the stream names none
 * @property {string} data
 * @property {string} id of this event, or the last one before it that had one
 */

/**
 * Cuts a text/event-stream into events. Bytes are pushed in pieces of any size, and each is looked at once, however small
 * the pieces are. What is not finished by an empty line is never an event.
 */
export class EventParser {
  /** What the service asked for last, in milliseconds; undefined: nothing. @type {number | undefined} */
  retry = undefined;

  #decoder = new TextDecoder("utf-8", { fatal: true }); // takes a byte order mark away
  #afterCR = false; // an LF that follows belongs to the CR before it
  /** @type {string[]} */
  #line = []; // pieces of a line that has no end yet
  /** @type {string[]} */
  #data = [];
  #size = 0; // of the two
  #name = "";
  #id = "";

  /**
   * @param {Uint8Array} bytes
   * @returns {ServerEvent[]} what is complete with them
   */
  push(bytes) {
    let text;
    try {
      text = this.#decoder.decode(bytes, { stream: true });
    } catch {
      throw new WeirError("the subscription is not UTF-8");
    }
    /** @type {ServerEvent[]} */
    const events = [];
    let at = 0;
    if (this.#afterCR && text !== "") {
      this.#afterCR = false;
      if (text[0] === "\n") at = 1;
    }
    let cr = text.indexOf("\r", at);
    let lf = text.indexOf("\n", at);
    while (cr >= 0 || lf >= 0) {
      const end = cr < 0 || (lf >= 0 && lf < cr) ? lf : cr;
      this.#keep(this.#line, text.slice(at, end));
      this.#finish(events);
      at = end + 1;
      if (end === cr) {
        this.#afterCR = at === text.length;
        if (lf === at) at++;
        cr = text.indexOf("\r", at);
      }
      if (lf >= 0 && lf < at) lf = text.indexOf("\n", at);
    }
    if (at < text.length) this.#keep(this.#line, text.slice(at));
    return events;
  }

  /**
   * @param {string[]} where
   * @param {string} piece
   */
  #keep(where, piece) {
    where.push(piece);
    this.#size += piece.length;
    if (this.#size > maxEvent) throw new WeirError(`an event of the subscription is longer than ${maxEvent} characters`);
  }

  /**
   * Takes a line that has its end.
   *
   * @param {ServerEvent[]} events
   */
  #finish(events) {
    const line = this.#line.length === 1 ? this.#line[0] : this.#line.join("");
    this.#line = [];
    this.#size -= line.length;
    if (line === "") {
      if (this.#data.length > 0) events.push({ name: this.#name || "message", data: this.#data.join("\n"), id: this.#id });
      this.#data = [];
      this.#size = 0;
      this.#name = "";
      return;
    }
    const colon = line.indexOf(":"); // a comment begins with it, and has no field
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    switch (field) {
      case "data":
        this.#keep(this.#data, value);
        break;
      case "event":
        this.#name = value;
        break;
      case "id":
        if (!value.includes("\0")) this.#id = value;
        break;
      case "retry":
        if (/^[0-9]{1,9}$/.test(value)) this.retry = Number(value);
    }
  }
}
