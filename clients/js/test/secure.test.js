// The client over HTTPS, with the certificate authority that every server creates for itself.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Agent, fetch as undiciFetch } from "undici";

import { Client } from "../src/index.js";
import { Server, key, numbers, take } from "./fixtures.js";

test("publishing and subscribing over HTTP/2", async (t) => {
  const server = await Server.secure(t);
  // The fetch of Node 20 uses HTTP/1.1. undici, the library behind it, can use HTTP/2.
  const agent = new Agent({ allowH2: true, connect: { ca: await server.authority() } });
  t.after(() => agent.destroy());
  const client = new Client({
    url: server.secureURL,
    key,
    fetch: /** @type {any} */ ((url, init) => undiciFetch(url, { ...init, dispatcher: agent })),
  });
  const stream = await client.createStream({ name: "secure" });
  const publisher = await client.publisher(stream, { batchEvents: 5 });
  for (const n of numbers(200)) await publisher.add(n);
  await publisher.close();
  await client.publish(stream, [201]);
  const batches = await take(client.subscribe(stream, { cursor: "oldest" }), 201);
  assert.deepEqual(batches.flatMap((batch) => batch.events), numbers(201));
  await assert.rejects(client.batch(stream, 999), { code: "stream_not_found", status: 404 });
  await server.kill("SIGTERM");
  assert.deepEqual(Object.keys(server.versions), ["HTTP/2.0"]);
});

test("an untrusted certificate is rejected", async (t) => {
  const server = await Server.secure(t);
  const client = new Client({ url: server.secureURL, key, giveUp: 1000 });
  await assert.rejects(client.createStream({ name: "secure" }), (error) => /certificate/.test(String(error.cause?.cause ?? error.cause ?? error)));
  await server.kill("SIGTERM");
  assert.deepEqual(server.versions, {});
});
