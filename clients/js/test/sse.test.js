import assert from "node:assert/strict";
import { test } from "node:test";

import { EventParser } from "../src/sse.js";

const encoder = new TextEncoder();

/** Parses bytes that arrive in chunks of `size` bytes. */
function parse(bytes, size = bytes.length || 1) {
  const parser = new EventParser();
  const events = [];
  for (let at = 0; at < bytes.length; at += size) events.push(...parser.push(bytes.subarray(at, at + size)));
  return { events, retry: parser.retry };
}

const event = (data, name = "message", id = "") => ({ name, data, id });

const cases = {
  "nothing": ["", []],
  "one line": ["data: x\n\n", [event("x")]],
  "no space": ["data:x\n\n", [event("x")]],
  "two spaces": ["data:  x\n\n", [event(" x")]],
  "no value": ["data\n\n", [event("")]],
  "two lines": ["data: a\ndata: b\n\n", [event("a\nb")]],
  "two empty lines": ["data\ndata\n\n", [event("\n")]],
  "a name": ["event: batch\ndata: x\n\ndata: y\n\n", [event("x", "batch"), event("y")]],
  "a name without data": ["event: batch\n\ndata: y\n\n", [event("y")]],
  "an id that stays": ["id: 7\ndata: x\n\ndata: y\n\nid\ndata: z\n\n", [event("x", "message", "7"), event("y", "message", "7"), event("z")]],
  "an id with a NUL character": ["id: 7\nid: 8\0\ndata: x\n\n", [event("x", "message", "7")]],
  "comments": [": hello\n:\ndata: x\n:\ndata: y\n\n:\n\n", [event("x\ny")]],
  "unknown fields": ["datum: x\nDATA: x\n data: x\ndata: y\n\n", [event("y")]],
  "a colon in the value": ["data: a: b\n\n", [event("a: b")]],
  "CRLF": ["data: x\r\ndata: y\r\n\r\n", [event("x\ny")]],
  "CR": ["data: x\rdata: y\r\r", [event("x\ny")]],
  "mixed line ends": ["data: a\r\ndata: b\rdata: c\n\r\ndata: d\n\r\r\n", [event("a\nb\nc"), event("d")]],
  "CR and then data": ["data: a\r\rdata: b\n\n", [event("a"), event("b")]],
  "characters that are not line ends": ["data: a\u2028b\u0085c\vd\n\n", [event("a\u2028b\u0085c\vd")]],
  "a byte order mark": ["\ufeffdata: x\n\n", [event("x")]],
  "a second byte order mark": ["data: x\n\n\ufeffdata: y\n\ndata: z\n\n", [event("x"), event("z")]],
  "characters of one to four bytes": ["data: aä€😀\n\nid: 😀\ndata: \ufeff\n\n", [event("aä€😀"), event("\ufeff", "message", "😀")]],
  "an event without its empty line": ["data: x\n\ndata: y\n", [event("x")]],
  "an incomplete line": ["data: x\n\ndata: y", [event("x")]],
};

for (const [name, [text, want]] of Object.entries(cases)) {
  test(`events: ${name}`, () => {
    const bytes = encoder.encode(text);
    for (let size = 1; size <= Math.max(1, bytes.length); size++) {
      assert.deepEqual(parse(bytes, size).events, want, `in chunks of ${size} bytes`);
    }
  });
}

test("retry is the last valid value", () => {
  for (const [text, want] of [["retry: 1000\n\n", 1000], ["retry: 1\nretry: 20\n", 20], ["retry: 0\n", 0], ["retry: 1\nretry\n", 1],
    ["retry: +5\n", undefined], ["retry: 1e3\n", undefined], ["retry: -1\n", undefined], ["retry: 1.5\n", undefined], ["retry: 12345678901\n", undefined]]) {
    assert.equal(parse(encoder.encode(text), 3).retry, want, text);
  }
});

// A simple parser for complete texts, written directly from the standard.
function plain(text) {
  const events = [];
  let [data, name, id] = [[], "", ""];
  for (const line of text.split(/\r\n|\r|\n/).slice(0, -1)) {
    if (line === "") {
      if (data.length > 0) events.push(event(data.join("\n"), name || "message", id));
      [data, name] = [[], ""];
      continue;
    }
    const [, field, value] = /^([^:]*):? ?([^]*)$/.exec(line);
    if (field === "data") data.push(value);
    if (field === "event") name = value;
    if (field === "id" && !value.includes("\0")) id = value;
  }
  return events;
}

test("random texts in random chunks", () => {
  const parts = ["data", "data: x", "data:  ü😀", "event: e", "event", "id: 1", "id", ":", ": c", "\n", "\r", "\r\n", "\n\n", "\r\r", "\0", " ", ":", "a"];
  const pick = (n) => Math.floor(Math.random() * n);
  for (let round = 0; round < 3000; round++) {
    let text = "";
    for (let n = pick(30); n > 0; n--) text += parts[pick(parts.length)];
    const bytes = encoder.encode(text);
    const parser = new EventParser();
    const events = [];
    for (let at = 0; at < bytes.length; ) {
      const size = 1 + pick(8);
      events.push(...parser.push(bytes.subarray(at, at + size)));
      at += size;
    }
    assert.deepEqual(events, plain(text), JSON.stringify(text));
  }
});

test("invalid UTF-8 is rejected", () => {
  assert.throws(() => parse(new Uint8Array([100, 97, 116, 97, 58, 0xff, 10, 10])), /not valid UTF-8/);
});

test("the largest event, in small chunks", () => {
  const data = "x".repeat(Math.ceil((8 * 1024 * 1024) / 3) * 4);
  const { events } = parse(encoder.encode(`id: 1\nevent: batch\ndata: ${data}\n\ndata: y\n\n`), 1000);
  assert.equal(events.length, 2);
  assert.equal(events[0].data.length, data.length);
});

test("an endless event is rejected", () => {
  for (const piece of ["x".repeat(1 << 20), "data: " + "x".repeat(1 << 20) + "\n"]) {
    const parser = new EventParser();
    const bytes = encoder.encode(piece);
    assert.throws(() => {
      for (let i = 0; i < 12; i++) parser.push(bytes);
    }, /longer than/);
  }
  const parser = new EventParser(); // comments are not kept, so their total length is not limited
  const comment = encoder.encode(`:${"x".repeat(1 << 20)}\n`);
  for (let i = 0; i < 20; i++) assert.deepEqual(parser.push(comment), []);
});
