// A parser for server-sent events, as defined by the HTML standard.

import { WeirError } from "./errors.js";
import { maxBody } from "./payload.js";

/** Maximum length of an event in characters: the largest body in base64, plus room for the members around it. */
const maxEvent = Math.ceil(maxBody / 3) * 4 + 64 * 1024;

/**
 * @typedef {object} ServerEvent
 * @property {string} name `message` if the event has no name
 * @property {string} data
 * @property {string} id the id of this event, or of the last event before it that had one
 */

/**
 * Splits a text/event-stream into events. Bytes can be pushed in chunks of any size, and each byte is examined once, no
 * matter how small the chunks are. An event without its closing empty line is never returned.
 */
export class EventParser {
  /** The last `retry` value of the stream, in milliseconds; undefined if there was none. @type {number | undefined} */
  retry = undefined;

  /**
   * The id of the first block (the lines before the first empty line), if that block has no data. It is the position at which
   * the subscription starts. It is "" if the block has no id. It is undefined until the block has ended, and if the block has
   * data. @type {string | undefined}
   */
  position = undefined;

  #decoder = new TextDecoder("utf-8", { fatal: true }); // removes a byte order mark
  #afterCR = false; // the last chunk ended in CR; an LF at the start of the next chunk belongs to the same line end
  /** @type {string[]} */
  #line = []; // chunks of the current, incomplete line
  /** @type {string[]} */
  #data = [];
  #size = 0; // total length of #line and #data
  #name = "";
  #id = "";
  #begun = false; // the first block has ended

  /**
   * @param {Uint8Array} bytes
   * @returns {ServerEvent[]} the events that these bytes complete
   */
  push(bytes) {
    let text;
    try {
      text = this.#decoder.decode(bytes, { stream: true });
    } catch {
      throw new WeirError("the event stream is not valid UTF-8");
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
   * Keeps a piece of text, and throws if the event gets too long.
   *
   * @param {string[]} where
   * @param {string} piece
   */
  #keep(where, piece) {
    where.push(piece);
    this.#size += piece.length;
    if (this.#size > maxEvent) throw new WeirError(`an event is longer than ${maxEvent} characters`);
  }

  /**
   * Processes a complete line.
   *
   * @param {ServerEvent[]} events
   */
  #finish(events) {
    const line = this.#line.length === 1 ? this.#line[0] : this.#line.join("");
    this.#line = [];
    this.#size -= line.length;
    if (line === "") {
      if (this.#data.length > 0) events.push({ name: this.#name || "message", data: this.#data.join("\n"), id: this.#id });
      else if (!this.#begun) this.position = this.#id;
      this.#begun = true;
      this.#data = [];
      this.#size = 0;
      this.#name = "";
      return;
    }
    const colon = line.indexOf(":"); // in a comment it is the first character, so the field name is empty
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
