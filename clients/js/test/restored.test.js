import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";

import { Client, ResetError } from "../src/index.js";
import { Server, key, take } from "./fixtures.js";

test("after a restore from an older backup, publishers and subscriptions end with an error that says so", async (t) => {
  const server = await Server.start(t);
  const client = new Client({ url: server.url, key });
  const stream = await client.createStream({ name: "x" });
  const own = await mkdtemp(path.join(tmpdir(), "weir-js-"));
  t.after(() => rm(own, { recursive: true, force: true }));
  const backup = path.join(own, "backup.tar");
  const publisher = await client.publisher(stream, { batchEvents: 1 });
  await publisher.add(1);
  await publisher.flush();
  await server.run("backup", backup);
  for (const n of [2, 3]) await publisher.add(n);
  await publisher.flush();
  const subscription = client.subscribe(stream, { cursor: "oldest" });
  const batches = subscription[Symbol.asyncIterator]();
  for (const seq of [1, 2, 3]) assert.equal((await batches.next()).value.seq, seq);

  const waiting = batches.next();
  waiting.catch(() => {}); // the error is checked below
  await server.kill();
  await rm(server.data, { recursive: true });
  await server.run("restore", backup);
  await server.again();
  await client.publish(stream, ["another 2"]);
  const reset = (error) => error instanceof ResetError && error.before === error.created;
  await assert.rejects(waiting, reset);
  await assert.rejects(take(client.subscribe(stream, { after: subscription.position }), 1), reset);
  await publisher.add(4);
  await assert.rejects(publisher.close(), { reason: "reset", seq: 4 });
  const kept = await take(client.subscribe(stream, { cursor: "oldest" }), 2);
  assert.deepEqual(kept.flatMap(({ events }) => events), [1, "another 2"]);
});
