// Tests which responses a publisher accepts as an acknowledgement, and which batches it recognises as its own.

import assert from "node:assert/strict";
import { after, test } from "node:test";

import { Client, ConnectionError, WeirError } from "../src/index.js";
import { Faults, Proxy, Server, key, learn, numbers, service, take } from "./fixtures.js";

const { server, client, newStream, everything, intercepted } = await service(after);

test("two publishers notice each other, also if they publish the same events", async () => {
  const s = await newStream();
  const errors = [];
  const both = [await client.publisher(s, { onError: (e) => errors.push(e) }), await client.publisher(s, { onError: (e) => errors.push(e) })];
  for (const publisher of both) for (const n of numbers(50)) await publisher.add(n).catch(() => {});
  const ends = await Promise.allSettled(both.map((publisher) => publisher.close()));
  assert.equal(ends.filter((end) => end.status === "fulfilled").length, 1);
  assert.equal(errors.length, 1);
  assert.deepEqual([errors[0].name, errors[0].reason], ["PublishError", "taken"]);
  const loser = both[ends.findIndex((end) => end.status === "rejected")];
  assert.equal(loser.error, errors[0]);
  await assert.rejects(loser.add(1), { reason: "taken" });
  const lost = loser.unacknowledged().flatMap((batch) => batch.events);
  assert.deepEqual([...(await everything(s, 100 - lost.length)), ...lost].sort(), [...numbers(50), ...numbers(50)].sort());
});

test("a proxy that repeats requests does not look like another publisher", async (t) => {
  const faults = await Faults.start(t, { Backend: server.address, HTTP: true });
  await faults.do({ set: { duplicate: true } });
  const s = await newStream();
  const publisher = await new Client({ url: `http://${faults.address}`, key }).publisher(s, { batchEvents: 5, inFlight: 4 });
  for (const n of numbers(200)) await publisher.add(n);
  await publisher.close();
  assert.deepEqual(await everything(s, 200), numbers(200));
});

test("a closed gap and an evicted sequence have errors of their own, and are not acknowledged", async (t) => {
  const own = await Server.start(t, "--gap-grace", "1ms");
  const near = new Client({ url: own.url, key });
  const s = await near.createStream({ name: "x" });
  await near.publishAt(s, 5, ["above"]);
  await take(near.subscribe(s, { cursor: "oldest" }), 1); // once batch 5 is delivered, the gap below it is closed
  const small = await near.createStream({ name: "small", maxBytes: 1 << 20 });
  for (const n of numbers(3)) await near.publishAt(small, n, ["x".repeat(500_000)]);
  for (const [stream, startAt, reason] of [[s, 3, "gap_closed"], [small, 1, "evicted"]]) {
    const publisher = await near.publisher(stream, { startAt, onAck: assert.fail });
    await publisher.add("late");
    await assert.rejects(publisher.close(), (error) => {
      assert.deepEqual([error.reason, error.seq, error.cause.code], [reason, startAt, "invalid_sequence"]);
      return true;
    });
    assert.deepEqual(publisher.unacknowledged(), [{ seq: startAt, sent: true, events: ["late"] }]);
  }
});

test("after another writer left a gap that was closed, batches get numbers above it, unless one of them may be stored", async (t) => {
  const own = await Server.start(t, "--gap-grace", "1ms");
  const near = new Client({ url: own.url, key });
  for (const lost of [false, true]) {
    const s = await near.createStream({ name: `lost: ${lost}` });
    let due = lost;
    const shaky = new Client({ url: own.url, key, fetch: (url, options) => {
      if (!due || !String(url).endsWith("/3")) return fetch(url, options);
      due = false;
      return Promise.reject(new TypeError("terminated"));
    } });
    const acks = [];
    const publisher = await shaky.publisher(s, { batchEvents: 1, inFlight: 4, onAck: ({ seq }) => acks.push(seq) });
    for (const n of numbers(2)) await publisher.add(n);
    await publisher.flush();
    await near.publishAt(s, 50, [0]);
    const subscription = near.subscribe(s, { cursor: "oldest" });
    await take(subscription, 3); // once batch 50 is delivered, the gap below it is closed
    for (const n of [3, 4, 5, 6]) publisher.add(n).catch(() => {});
    if (lost) await assert.rejects(publisher.close(), { reason: "gap_closed" });
    else await publisher.close();
    assert.deepEqual(acks, lost ? [1, 2] : [1, 2, 51, 52, 53, 54]);
    const stored = [];
    for await (const batch of near.batches(s)) stored.push(batch.events[0]);
    assert.deepEqual(stored, lost ? [1, 2, 0] : [1, 2, 0, 3, 4, 5, 6]);
  }
});

test("a batch whose acknowledgement is lost and that is then evicted stays unacknowledged", async () => {
  const s = await newStream({ maxBytes: 1 << 20 });
  let lost = true;
  const shaky = intercepted(async (seq, go) => {
    const answer = await go();
    if (seq !== "1" || !lost) return answer;
    lost = false;
    for (const n of numbers(3)) await client.publishAt(s, 1 + n, ["x".repeat(500_000)]); // evicts batch 1
    throw new TypeError("terminated");
  });
  const publisher = await shaky.publisher(s, { onAck: assert.fail });
  await publisher.add("evicted");
  await assert.rejects(publisher.close(), { reason: "evicted", seq: 1 });
  assert.deepEqual(publisher.unacknowledged(), [{ seq: 1, sent: true, events: ["evicted"] }]);
});

test("a stream that was created again is reported", async () => {
  for (const [before, after] of [[3, 0], [1, 1], [1, 2]]) {
    const s = await newStream();
    const publisher = await client.publisher(s, { batchEvents: 1 });
    await learn(publisher, before);
    await client.deleteStream(s);
    await newStream({ id: s.id });
    for (const n of numbers(after)) await client.publish(s, [n]);
    await publisher.add("lost");
    await assert.rejects(publisher.close(), { reason: "reset", seq: before + 1 });
    assert.deepEqual(publisher.unacknowledged().map(({ seq }) => seq), [before + 1]);
  }
});

test("only an acknowledgement of the batch itself counts", async (t) => {
  const s = await newStream();
  const json = (value) => new Response(JSON.stringify(value), { status: 202 });
  const ack = { stream_id: s.id, seq: 1, accepted: 1, cursor: 1, duplicate: false };
  const wrong = [
    () => new Response("<html>"),
    () => json({ status: "ok" }),
    () => json(null),
    () => json({ ...ack, seq: 2 }),
    () => json({ ...ack, stream_id: "t".repeat(22) }),
    ...[301, 403, 404, 413, 520, 521, 530].map((status) => () => new Response("<html>", { status })),
  ];
  t.mock.method(Math, "random", () => 0);
  const reasons = [];
  const portal = intercepted(async (_, go) => wrong.shift()?.() ?? go());
  const publisher = await portal.publisher(s, { onRetry: (error) => reasons.push(error), onAck: ({ seq }) => assert.equal(seq, 1) });
  await publisher.add("real");
  await publisher.close();
  assert.equal(reasons.length, 12);
  assert.ok(reasons.every((error) => error instanceof ConnectionError && /not from Weir/.test(error.message)), `${reasons}`);
  assert.deepEqual(await everything(s, 1), ["real"]);
});

test("a service that does not know the name of the publisher is refused", async () => {
  const s = await newStream();
  const old = intercepted(async (_, go) => new Response(await (await go()).text(), { status: 202 }));
  const publisher = await old.publisher(s);
  await publisher.add(1);
  await assert.rejects(publisher.close(), { reason: "refused", message: /too old/ });
});

test("a publisher works with a key that may publish but not read", async (t) => {
  const s = await newStream();
  await client.publish(s, ["before"]);
  let lost = 0;
  const proxy = await Proxy.start(t, server.url, () => (lost++ < 3 ? { down: 0, swallow: 1 } : {}));
  const { key: only } = await server.newKey("--permissions", "publish", "--streams", s.id);
  const publisher = await new Client({ url: server.url, key: only }).publisher(s, { batchEvents: 2 });
  for (const n of numbers(9)) await publisher.add(n);
  await publisher.close();
  assert.equal(publisher.acknowledged, 6);
  const far = await new Client({ url: proxy.url, key: only }).publisher(s, { batchEvents: 2 });
  lost = 0; // the proxy loses the first responses to the publisher `far`
  proxy.cut();
  for (const n of numbers(9, 10)) await far.add(n);
  await far.close();
  assert.deepEqual(await everything(s, 19), ["before", ...numbers(18)]);
  const other = await newStream();
  const wrong = await new Client({ url: server.url, key: only }).publisher(other);
  await wrong.add(1);
  await assert.rejects(wrong.close(), (error) => error.reason === "refused" && error.cause instanceof WeirError && error.cause.code === "project_forbidden");
});

test("a key that is revoked while a publisher is open is replaced by the key function", async () => {
  const first = await server.newKey("--permissions", "read,publish");
  const keys = [first.key, key];
  const s = await newStream();
  let failures = 1; // how often the key function still fails: it may need the network itself
  const rotating = new Client({
    url: server.url,
    key: async () => {
      if (keys.length === 1 && failures-- > 0) throw new TypeError("fetch failed");
      return keys.shift();
    },
  });
  const subscription = rotating.subscribe(s, { cursor: "oldest" });
  const publisher = await rotating.publisher(s, { batchEvents: 1, inFlight: 4 });
  for (const n of numbers(60)) {
    await publisher.add(n);
    if (n !== 30) continue;
    await publisher.flush();
    assert.equal((await take(subscription, 30)).length, 30);
    await server.run("key", "revoke", first.id);
  }
  await publisher.close();
  assert.deepEqual((await take(subscription, 30)).flatMap((batch) => batch.events), numbers(30, 31));
  assert.deepEqual(keys, []);
});

test("a call fails if the key function returns a refused key again", async () => {
  const stale = new Client({ url: server.url, key: () => "svc_live_" + "b".repeat(32) });
  await assert.rejects(stale.stream("a".repeat(22)), { code: "invalid_api_key" });
  const keys = ["two words", undefined, key];
  const corrected = new Client({ url: server.url, key: () => keys.shift() });
  for (let n = 0; n < 2; n++) await assert.rejects(corrected.stream("a".repeat(22)), TypeError);
  await assert.rejects(corrected.stream("a".repeat(22)), { code: "stream_not_found" }); // an invalid key is not remembered
});
