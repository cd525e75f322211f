// Answers in the making. An answer is written to a stream of Weir, whether or not a page reads it.

import { isDeepStrictEqual } from "node:util";

import { formats } from "./formats.js";
import { generate } from "./script.js";
import { create, producer, read } from "./weir.js";

const turns = []; // a turn is a message of a user, with its answer. A real application keeps the turns in a database
const running = new Map(); // the answers that are being written, by the id of their turn

/** Reads the turns of earlier runs of this backend, and continues answers that a crash has interrupted. */
export async function load() {
  await create("turns");
  turns.push(...(await read("turns")).messages);
  turns.forEach(write);
}

/** Returns the turns of a chat, in order. */
export const turnsOf = (chat) => turns.filter((turn) => turn.chat === chat);

/** Adds a turn, and begins to write its answer. */
export async function add(turn) {
  const path = formats[turn.toolkit](turn).path;
  await create(path);
  const list = producer("turns", turn.id);
  list.append(JSON.stringify(turn));
  await list.flush();
  turns.push(turn);
  write(turn);
  return path;
}

/** Ends the answer of a chat early, and waits until its end is stored. */
export async function stop(chat) {
  for (const { turn, controller, done } of running.values()) {
    if (turn.chat !== chat) continue;
    controller.abort();
    await done;
  }
}

function write(turn) {
  const controller = new AbortController();
  const done = finish(turn, controller.signal)
    .catch((error) => console.error("writing an answer:", error))
    .finally(() => running.delete(turn.id));
  running.set(turn.id, { turn, controller, done });
}

/** Writes the part of an answer that the stream does not have yet. */
async function finish(turn, signal) {
  const { path, begin, token, end, closes, isOwn } = formats[turn.toolkit](turn);
  const { messages, closed } = await read(path);
  const stored = messages.filter(isOwn);
  const ended = end.findIndex((message) => isDeepStrictEqual(message, stored.at(-1))) + 1;
  if (closed || (ended === end.length && !closes)) return;
  const out = producer(path, turn.id);
  const put = (message) => out.append(JSON.stringify(message));
  if (ended === 0) {
    begin.slice(stored.length).forEach(put);
    for await (const text of generate(turn.prompt, Math.max(0, stored.length - begin.length), signal)) put(token(text));
  }
  end.slice(ended).forEach(put);
  await (closes ? out.close() : out.flush());
}
