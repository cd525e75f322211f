import assert from "node:assert/strict";
import { test } from "node:test";

import { Client } from "../src/index.js";
import { Proxy, Server, key, numbers } from "./fixtures.js";
import { browser, openPage, trust } from "./pages.js";

const skip = !browser && "Chromium is not installed: tools/browser can install it";

// The page imports the client from the Weir server, which has another origin than the page.
const page = `
  const { api, far, stream, raw, key, reader } = settings;
  const { Client, WeirError } = await import(api + "/client.js");
  const client = new Client({ url: far, key });

  const publisher = await client.publisher(stream, { batchEvents: 5 });
  for (let n = 1; n <= 200; n++) {
    await publisher.add(n);
    if (n === 60 || n === 120) await fetch("/cut");
  }
  await publisher.close();

  const events = [];
  for await (const batch of client.subscribe(stream, { cursor: "oldest" })) {
    events.push(...batch.events);
    if (events.length === 100) await fetch("/cut");
    if (events.length === 200) {
      await fetch("/cut"); // the next batch must arrive over another connection
      await client.publish(stream, [201, 202]);
    }
    if (events.length > 200) break;
  }

  await client.publish(raw, new Uint8Array([0, 255, 10, 13]));
  let bytes;
  for await (const batch of client.subscribe(raw, { cursor: "oldest" })) {
    bytes = [...batch.data];
    break;
  }

  let refused;
  try {
    await new Client({ url: far, key: reader }).publish(stream, ["no"]);
  } catch (error) {
    refused = { weir: error instanceof WeirError, code: error.code, status: error.status, requestId: error.requestId, docUrl: error.docUrl };
  }
  return { origin: location.origin, events, bytes, refused, cursor: (await client.cursor(stream)).cursor };
`;

test("a page of another origin publishes and subscribes", { skip }, async (t) => {
  const server = await Server.start(t);
  const proxy = await Proxy.start(t, server.url);
  const client = new Client({ url: server.url, key });
  const stream = await client.createStream({ name: "page" });
  const raw = await client.createStream({ name: "raw", mode: "raw" });
  const streams = ["--streams", `${stream.id},${raw.id}`];
  const settings = {
    api: server.url,
    far: proxy.url,
    stream: stream.id,
    raw: raw.id,
    key: (await server.newKey("--permissions", "read,publish", ...streams)).key,
    reader: (await server.newKey("--permissions", "read", ...streams)).key,
  };
  const { origin, refused, ...seen } = await openPage(t, page, settings, { cut: () => proxy.cut() });
  assert.notEqual(origin, server.url);
  assert.deepEqual(seen, { events: numbers(202), bytes: [0, 255, 10, 13], cursor: 41 });
  assert.match(refused.requestId, /^req_/);
  assert.deepEqual({ ...refused, requestId: "" }, {
    weir: true, code: "project_forbidden", status: 403, requestId: "", docUrl: `${server.url}/docs/errors#project_forbidden`,
  });
  assert.ok(proxy.count > 3, `${proxy.count} connections`);
});

// A page that uses HTTP/3 from the first request on. The log of the server proves it.
const page3 = `
  const { secure, stream, key } = settings;
  const { Client } = await import(secure + "/client.js");
  const client = new Client({ url: secure, key });
  const publisher = await client.publisher(stream, { batchEvents: 5, inFlight: 16 });
  for (let n = 1; n <= 200; n++) await publisher.add(n);
  await publisher.close();
  const events = [];
  for await (const batch of client.subscribe(stream, { cursor: "oldest" })) {
    events.push(...batch.events);
    if (events.length === 200) await client.publish(stream, [201]); // while the subscription is open
    if (events.length > 200) break;
  }
  return { events };
`;

test("a page publishes and subscribes over HTTP/3", { skip }, async (t) => {
  const server = await Server.secure(t);
  const made = await new Client({ url: server.url, key }).createStream({ name: "page" });
  const { hostname, port } = new URL(server.secureURL);
  const flags = ["--enable-quic", `--origin-to-force-quic-on=${hostname}:${port}`, await trust(server)];
  const seen = await openPage(t, page3, { secure: server.secureURL, stream: made.id, key }, { flags });
  assert.deepEqual(seen, { events: numbers(201) });
  await server.kill("SIGTERM"); // after that its log is complete
  const { "HTTP/3.0": all, ...others } = server.versions;
  assert.deepEqual(others, { "HTTP/1.1": 1 }); // the request that created the stream
  assert.ok(all > 40, `${all} requests`);
});
