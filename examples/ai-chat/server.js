// The backend of the chat. It has the key to Weir, so pages send and read through it.

import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import http from "node:http";

import { add, load, stop, turnsOf } from "./answers.js";
import { authorization, create, read, urlOf } from "./weir.js";

const file = (name) => readFile(new URL(name, import.meta.url));
const textOf = (message) => message.parts.filter((part) => part.type === "text").map((part) => part.text ?? part.content).join("");

const routes = {
  "GET /aisdk": (query) => page(query, "aisdk"),
  "GET /tanstack": async (query) => {
    if (query.get("chat")) await create(`sessions/${query.get("chat")}`);
    return page(query, "tanstack");
  },
  "GET /bin/aisdk.js": () => script("bin/aisdk.js"),
  "GET /bin/tanstack.js": () => script("bin/tanstack.js"),

  // The Vercel AI SDK sends all messages of the chat. The response says where the answer can be read.
  "POST /api/aisdk": async (_, { id: chat, messages }) => {
    const message = messages.at(-1);
    const path = await add({ toolkit: "aisdk", chat, id: randomUUID(), message, prompt: textOf(message) });
    return { status: 201, headers: { location: `/streams/${path}` } };
  },
  // A page that was loaded again gets the messages of the chat, without an answer that is still being written.
  "GET /api/aisdk/messages": async (query) => {
    const messages = [];
    for (const { id, message } of turnsOf(query.get("chat"))) {
      const answer = await read(`answers/${id}`);
      const text = answer.messages.map((chunk) => chunk.delta ?? "").join("");
      messages.push(message);
      if (answer.closed) messages.push({ id, role: "assistant", parts: [{ type: "text", text }] });
    }
    return { json: messages };
  },
  // Then the page asks where to read the answer that is still being written.
  "GET /api/aisdk/resume": async (query) => {
    const last = turnsOf(query.get("chat")).at(-1);
    return last ? { status: 200, headers: { location: `/streams/answers/${last.id}` } } : { status: 204 };
  },

  // TanStack AI sends all messages too. The answer appears in the stream of the chat, which the page follows.
  "POST /api/tanstack": async (query, { messages }) => {
    const message = messages.at(-1);
    await add({ toolkit: "tanstack", chat: query.get("chat"), id: randomUUID(), message, prompt: textOf(message) });
    return { status: 202 };
  },

  "POST /api/stop": async (query) => {
    await stop(query.get("chat"));
    return { status: 204 };
  },
};

/** Returns a page. If the address contains no chat, the page begins a new chat. */
async function page(query, toolkit) {
  if (!query.get("chat")) return { status: 303, headers: { location: `/${toolkit}?chat=${randomUUID()}` } };
  return { type: "text/html; charset=utf-8", body: String(await file("page/index.html")).replace("TOOLKIT", toolkit) };
}

const script = async (name) => ({ type: "text/javascript; charset=utf-8", body: await file(name) });

async function bodyOf(request) {
  let text = "";
  for await (const piece of request.setEncoding("utf8")) text += piece;
  return text ? JSON.parse(text) : undefined;
}

/**
 * Passes a read on to Weir. If Weir cannot be reached, or stops in the middle, the page tries again from the last offset
 * that it got. So the page must get each `data` event only together with the `control` event that has the next offset:
 * otherwise the page would read the data of that event twice.
 */
async function passOn(path, response) {
  const gone = new AbortController();
  response.on("close", () => gone.abort());
  try {
    const answer = await fetch(urlOf(path), { headers: { authorization }, signal: gone.signal });
    response.statusCode = answer.status;
    for (const [name, value] of answer.headers) if (/^(content-type|cache-control|etag|stream-)/.test(name)) response.setHeader(name, value);
    response.flushHeaders();
    const live = answer.headers.get("content-type") === "text/event-stream";
    let held = Buffer.alloc(0);
    for await (const piece of answer.body ?? []) {
      held = Buffer.concat([held, piece]);
      const end = live ? wholeEvents(held) : held.length;
      response.write(held.subarray(0, end));
      held = held.subarray(end);
    }
  } catch {
    if (!response.headersSent) response.statusCode = 503;
  }
  response.end();
}

/** Returns the length of the events up to the last one that is a `control` event or a comment. */
function wholeEvents(held) {
  const control = Math.max(held.lastIndexOf("event: control\n"), held.lastIndexOf("\n:\n\n"), held.indexOf(":\n\n") === 0 ? 0 : -1);
  const end = control < 0 ? -1 : held.indexOf("\n\n", control);
  return end < 0 ? 0 : end + 2;
}

const server = http.createServer(async (request, response) => {
  const { pathname, search, searchParams } = new URL(request.url, "http://backend");
  const stream = /^\/streams\/((answers|sessions)\/[\w-]+)$/.exec(pathname); // a page may read no other stream
  if (request.method === "GET" && stream) return passOn(stream[1] + search, response);
  try {
    const route = routes[`${request.method} ${pathname}`] ?? (() => ({ status: 404 }));
    const { status = 200, headers = {}, json, type, body } = await route(searchParams, await bodyOf(request));
    response.writeHead(status, { "content-type": type ?? "application/json", "cache-control": "no-store", ...headers });
    response.end(json ? JSON.stringify(json) : body);
  } catch (error) {
    console.error(error);
    response.writeHead(500).end();
  }
});

await load();
server.listen(Number(process.env.PORT ?? 3000), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/aisdk and /tanstack`));
