// The source of tokens, in place of a model.

import { setTimeout } from "node:timers/promises";

const text = `A weir is a low wall across a river. The water rises behind it until it flows over the top, always at the
same level, whatever the river brings. Behind the wall there is a calm, deep pool: a boat can wait there, a mill can take
its share, and a fish that was carried past can come back and try again. The river does not stop for any of them. A log of
tokens is such a pool. The model is the river: it runs once, at its own speed, and what has passed cannot be asked for a
second time. The log keeps every token in the order in which it came. A reader that was away begins where it left off, a
second reader begins at the start, and both see the same water. When the model has said all it has to say, or when a
reader asks it to stop, the answer ends, and each reader knows that there is nothing left to wait for.`;

/** Returns the tokens of the answer to a prompt. A prompt with the word "short" or "long" gets a short or long answer. */
export function tokensOf(prompt) {
  const all = `You said “${prompt}”. ${/\blong\b/.test(prompt) ? `${text} `.repeat(100) : text}`.trim().split(/\s+/);
  return all.slice(0, /\bshort\b/.test(prompt) ? 20 : all.length).map((word, i) => (i === 0 ? word : ` ${word}`));
}

/** Yields the tokens of an answer from a position on, about as slowly as a model does, until the signal aborts. */
export async function* generate(prompt, from, signal) {
  for (const token of tokensOf(prompt).slice(from)) {
    await setTimeout(Number(process.env.TOKEN_MS ?? 60));
    if (signal.aborted) return;
    yield token;
  }
}
