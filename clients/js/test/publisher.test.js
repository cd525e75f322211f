import assert from "node:assert/strict";
import { after, test } from "node:test";

import { Client, PublishError } from "../src/index.js";
import { Proxy, Server, deferred, hanging, key, learn, numbers, service, take } from "./fixtures.js";

const { server, client, newStream, everything, intercepted } = await service(after);

test("events are stored in order, and a second publisher continues after them", async () => {
  const s = await newStream();
  const acks = [];
  const publisher = await client.publisher(s, { batchEvents: 10, linger: Infinity, onAck: (ack) => acks.push(ack) });
  assert.equal(publisher.acknowledged, undefined);
  for (const n of numbers(995)) await publisher.add(n);
  await publisher.flush();
  assert.deepEqual(acks.map((ack) => ack.seq), numbers(100));
  assert.ok(acks.every((ack, i) => ack.accepted === (i < 99 ? 10 : 5) && !ack.duplicate && ack.streamId === s.id));
  assert.equal(publisher.acknowledged, 100);
  for (const n of numbers(5, 996)) publisher.add(n); // without await: the order of the calls counts
  await publisher.close();
  assert.deepEqual(publisher.unacknowledged(), []);
  await publisher.close();
  await assert.rejects(publisher.add(1), { name: "PublishError", reason: "closed" });
  await assert.rejects(publisher.flush(), { reason: "closed" });

  const again = await client.publisher(s);
  for (const n of numbers(100, 1001)) again.add(n);
  await again.close();
  assert.deepEqual(await everything(s, 1100), numbers(1100));
});

test("a single event is sent after the linger time", async () => {
  const acks = [];
  let acked = deferred();
  const onAck = (ack) => (acks.push(ack.accepted), acked.resolve());
  const publisher = await client.publisher(await newStream(), { onAck });
  for (const n of numbers(3)) {
    acked = deferred();
    await publisher.add(n);
    await acked.promise;
  }
  assert.deepEqual(acks, [1, 1, 1]);
  await publisher.close();
});

test("a batch is full when it reaches its size in bytes", async () => {
  const s = await newStream();
  const publisher = await client.publisher(s, { batchBytes: 40, linger: Infinity });
  for (const event of ["aaaaaaaaaa", "bbbbbbbbbb", "c".repeat(100), "d"]) await publisher.add(event); // the first two fit into one batch; the third is larger than a batch; the fourth is alone
  await publisher.close();
  for (const [seq, count] of [[1, 2], [2, 1], [3, 1]]) assert.equal((await client.batch(s, seq)).events.length, count);
});

test("a batch that cannot be sent yet, because another one is in flight, still takes events", async () => {
  const gate = deferred();
  const s = await newStream();
  const publisher = await intercepted(async (_, go) => (await gate.promise, go())).publisher(s, { linger: 0 });
  await publisher.add(1);
  while (!publisher.unacknowledged()[0].sent) await new Promise(setImmediate);
  for (const n of numbers(500, 2)) await publisher.add(n);
  gate.resolve();
  await publisher.close();
  assert.equal((await client.batch(s, 2)).events.length, 500);
});

test("raw batches are not grouped", async () => {
  const s = await newStream({ mode: "raw" });
  const publisher = await client.publisher(s);
  const bytes = new Uint8Array([1, 2, 3]);
  await publisher.addBytes(bytes);
  bytes.fill(9); // must not change the batch: the publisher has copied it
  for (const n of numbers(20)) publisher.addBytes(new Uint8Array([n]).buffer);
  await assert.rejects(publisher.add("event"), { name: "TypeError", message: /this is a raw stream: add bytes to it/ });
  await assert.rejects(publisher.addBytes(new Uint8Array((8 << 20) + 1)), { code: "payload_too_large" });
  await publisher.close();
  assert.deepEqual((await client.batch(s, 1)).data, new Uint8Array([1, 2, 3]));
  assert.deepEqual((await client.batch(s, 21)).data, new Uint8Array([20]));
});

test("an invalid event does not affect others", async () => {
  const s = await newStream();
  const publisher = await client.publisher(s);
  await publisher.add(1);
  await assert.rejects(publisher.add(undefined), TypeError);
  await assert.rejects(publisher.add("\ud800"), TypeError);
  await assert.rejects(publisher.add("x".repeat(8 << 20)), { code: "payload_too_large" });
  await assert.rejects(publisher.addBytes(new Uint8Array(1)), { message: /this is a json stream: add events to it/ });
  await publisher.add(2);
  await publisher.close();
  assert.deepEqual(await everything(s, 2), [1, 2]);
});

test("invalid options are rejected", async () => {
  const s = await newStream();
  for (const options of [{ startAt: -1 }, { startAt: 1.5 }, { inFlight: 0 }, { inFlight: 65 }]) await assert.rejects(client.publisher(s, options), TypeError);
  await assert.rejects(client.publisher("a".repeat(22)), { code: "stream_not_found" });
});

test("add waits for the service, and inFlight is not exceeded", async (t) => {
  const s = await newStream();
  let most = 0;
  let flying = 0;
  const gate = deferred();
  const slow = intercepted(async (seq, go) => {
    most = Math.max(most, ++flying);
    if (seq > 10) await gate.promise;
    try {
      return await go();
    } finally {
      flying--;
    }
  });
  const publisher = await slow.publisher(s, { batchEvents: 1, inFlight: 3 });
  await learn(publisher, 10);
  for (const n of numbers(4, 11)) await publisher.add(n); // three batches are in flight, and one event waits in the next batch
  let taken = false;
  const fifth = publisher.add(15).then(() => (taken = true));
  const controller = new AbortController();
  const sixth = publisher.add("never", { signal: controller.signal });
  const seventh = publisher.add(16);
  await new Promise(setImmediate);
  assert.equal(taken, false);
  controller.abort(new Error("no room"));
  await assert.rejects(sixth, { message: "no room" });
  const impatient = new AbortController();
  const flush = publisher.flush({ signal: impatient.signal });
  impatient.abort(new Error("no time"));
  await assert.rejects(flush, { message: "no time" });
  gate.resolve();
  await Promise.all([fifth, seventh]);
  await publisher.close();
  assert.equal(most, 3);
  assert.deepEqual(await everything(s, 16), numbers(16));
});

test("a publisher starts with one batch in flight, and sends more as responses arrive", async (t) => {
  const s = await newStream();
  let flying = 0;
  let gate = deferred();
  const slow = intercepted(async (_, go) => {
    flying++;
    await gate.promise;
    flying--;
    return go();
  });
  const publisher = await slow.publisher(s, { batchEvents: 1, inFlight: 4 });
  for (const [already, want] of [[0, 1], [6, 4]]) {
    if (already > 0) await learn(publisher, already);
    gate = deferred();
    for (const n of numbers(4)) await publisher.add(n);
    while (flying === 0) await new Promise(setImmediate);
    await new Promise(setImmediate);
    assert.equal(flying, want);
    gate.resolve();
    await publisher.flush();
  }
  await publisher.close();
  assert.equal((await client.cursor(s)).cursor, 14);
});

test("add waits while the buffer is full", async () => {
  const gate = deferred();
  const slow = intercepted(async (_, go) => (await gate.promise, go()));
  const s = await newStream();
  const publisher = await slow.publisher(s, { batchEvents: 1, inFlight: 4, buffer: 100 });
  await publisher.add("x".repeat(80));
  await publisher.add("y".repeat(80)); // not in flight yet: the buffer has no room for a second batch
  let taken = false;
  const third = publisher.add("z").then(() => (taken = true));
  await new Promise(setImmediate);
  assert.equal(taken, false);
  gate.resolve();
  await third;
  await publisher.close();
  assert.equal((await client.cursor(s)).cursor, 3);
});

test("after an aborted close, unacknowledged lists the batches that are not known to be stored", async () => {
  const s = await newStream();
  const publisher = await intercepted((_, go, signal) => hanging(signal)).publisher(s, { batchEvents: 2 });
  const adds = numbers(25).map((n) => publisher.add(n).catch((error) => error));
  const controller = new AbortController();
  const close = publisher.close({ signal: controller.signal });
  await assert.rejects(publisher.add(26), { reason: "closed" });
  controller.abort(new Error("enough"));
  await assert.rejects(close, { message: "enough" });
  const results = await Promise.all(adds);
  const left = publisher.unacknowledged();
  assert.deepEqual(left.flatMap((batch) => batch.events), numbers(results.filter((r) => r === undefined).length));
  assert.ok(results.filter((r) => r !== undefined).every((error) => error instanceof PublishError && error.reason === "closed"));
  assert.deepEqual([left[0].seq, left[0].sent, left.at(-1).sent], [1, true, false]);
});

test("a flush during a close is rejected when the close is aborted", async () => {
  const publisher = await intercepted((_, go, signal) => hanging(signal)).publisher(await newStream());
  await publisher.add(1);
  const close = publisher.close({ signal: AbortSignal.abort(new Error("enough")) });
  const flush = publisher.flush();
  await assert.rejects(close, { message: "enough" });
  await assert.rejects(flush, { reason: "closed" });
});

for (const inFlight of [1, 6]) test(`a publisher with up to ${inFlight} batches in flight survives connections that break in every way`, async (t) => {
  const kinds = [
    (n) => ({ up: 100 + n * 37 }), // breaks in the middle of a request
    (n) => ({ down: 50 + n * 61 }), // breaks in the middle of a response
    (n) => ({ down: 900 + n * 13, swallow: 1 }), // the response is lost
    (n) => ({ down: 400 + n * 7, stall: true }), // no more data arrives
    () => ({ down: 100_000 }),
  ];
  const proxy = await Proxy.start(t, server.url, (n) => kinds[n % kinds.length](n));
  const far = new Client({ url: proxy.url, key, timeout: 2000 });
  const s = await newStream();
  let retries = 0;
  const acks = [];
  const publisher = await far.publisher(s, { batchEvents: 5, inFlight, onRetry: () => retries++, onAck: (ack) => acks.push(ack.seq) });
  for (const n of numbers(1000)) await publisher.add(n);
  await publisher.close();
  assert.deepEqual(acks, numbers(200));
  assert.deepEqual(await everything(s, 1000), numbers(1000));
  assert.ok(retries > 3, `${retries} retries`);
});

test("a publisher survives a server that is killed", async (t) => {
  const own = await Server.start(t);
  const near = new Client({ url: own.url, key });
  const s = await near.createStream({ name: "x" });
  const publisher = await near.publisher(s, { batchEvents: 3, inFlight: 4 });
  for (const n of numbers(900)) {
    await publisher.add(n);
    if (n % 300 === 0) {
      await own.kill();
      await own.again();
    }
  }
  await publisher.close();
  const got = (await take(near.subscribe(s, { cursor: "oldest" }), 900)).flatMap((batch) => batch.events);
  assert.deepEqual(got, numbers(900));
});

test("a batch on a hanging connection is sent over another one", async () => {
  const s = await newStream();
  let hung = 0;
  const publisher = await intercepted((seq, go, signal) => (seq === "3" && hung++ < 2 ? hanging(signal) : go())).publisher(s, { batchEvents: 1, inFlight: 4 });
  await learn(publisher, 2);
  for (const n of numbers(8, 3)) await publisher.add(n);
  await publisher.close();
  assert.equal(hung, 3);
  assert.deepEqual(await everything(s, 10), numbers(10));
});

test("a batch whose connection hangs is sent over another one, even if no other batch is in flight", async () => {
  const s = await newStream();
  let hung = 0;
  const onRetry = (error) => assert.fail(error); // the batch must be sent again before the hanging attempt fails
  const publisher = await intercepted((_, go, signal) => (hung++ < 1 ? hanging(signal) : go())).publisher(s, { onRetry });
  await publisher.add(1);
  await publisher.close();
  assert.deepEqual(await everything(s, 1), [1]);
});

test("a batch that overtakes another is refused and sent again, so a long delay leaves no gap", async () => {
  const s = await newStream();
  const late = deferred();
  const publisher = await intercepted(async (seq, go) => {
    if (seq === "3") await late.promise; // longer than 2 s: after that time the service would close a gap below batch 4
    const answer = await go();
    if (seq !== "4" || answer.ok) return answer;
    assert.equal((await answer.clone().json()).error.code, "sequence_not_next");
    setTimeout(late.resolve, 2500);
    return answer;
  }).publisher(s, { batchEvents: 1, inFlight: 4 });
  await learn(publisher, 2);
  for (const n of numbers(8, 3)) await publisher.add(n);
  await publisher.close();
  assert.deepEqual(await everything(s, 10), numbers(10));
});

test("a refusal that arrives after the acknowledgement of the predecessor does not end the publisher", async () => {
  const s = await newStream();
  const [refused, acked] = [deferred(), deferred()];
  const publisher = await intercepted(async (seq, go) => {
    if (seq === "3") await refused.promise;
    const answer = await go();
    if (seq === "4" && !answer.ok) {
      refused.resolve();
      await acked.promise; // when the publisher sees the refusal, batch 4 is the lowest unacknowledged batch
    }
    return answer;
  }).publisher(s, { batchEvents: 1, inFlight: 4, onAck: ({ seq }) => seq === 3 && acked.resolve() });
  await learn(publisher, 2);
  for (const n of [3, 4]) await publisher.add(n);
  await publisher.close();
  assert.deepEqual(await everything(s, 4), numbers(4));
});

test("a rate limit slows a publisher down and does not end it", async () => {
  const s = await newStream();
  let count = 0;
  const limited = intercepted(async (_, go) => {
    if (++count % 3 > 0) return go();
    return new Response('{"error":{"code":"rate_limited","message":"slow down"}}', { status: 429, headers: { "retry-after": "0" } });
  });
  const waits = [];
  const publisher = await limited.publisher(s, { batchEvents: 1, inFlight: 4, onRetry: (error, wait) => waits.push(error.code) });
  for (const n of numbers(30)) await publisher.add(n);
  await publisher.close();
  assert.ok(waits.includes("rate_limited"));
  assert.deepEqual(await everything(s, 30), numbers(30));
});

test("the number of calls of add that wait at the same time is limited", async () => {
  const gate = deferred();
  const publisher = await intercepted(async (_, go) => (await gate.promise, go())).publisher(await newStream(), { batchEvents: 1 });
  const adds = numbers(10_100).map((n) => publisher.add(n).catch((error) => error));
  const closed = publisher.close({ signal: AbortSignal.abort() });
  await assert.rejects(closed, { name: "AbortError" });
  const refused = (await Promise.all(adds)).filter((error) => error instanceof RangeError);
  assert.ok(refused.length > 90 && refused.length < 100, `${refused.length}`);
  gate.resolve();
});

test("startAt may point to stored batches", async () => {
  const s = await newStream();
  const run = async (events, name = "mine") => {
    const publisher = await client.publisher(s, { startAt: 0, name, batchEvents: 1, linger: Infinity });
    for (const event of events) await publisher.add(event);
    await publisher.close();
  };
  await run([0, 1, 2]);
  await run([0, 1, 2, 3]); // the same batches again, and one more
  assert.deepEqual(await everything(s, 4), [0, 1, 2, 3]);
  await assert.rejects(run([0, 1], "other"), { reason: "taken", seq: 0 });
  for (const name of ["", "two words", "x".repeat(65)]) await assert.rejects(run([0], name), TypeError);
});

test("a refused batch makes the publisher fail, and unacknowledged lists it", async () => {
  const s = await newStream();
  const revocable = await server.newKey("--permissions", "read,publish");
  const publisher = await new Client({ url: server.url, key: revocable.key }).publisher(s, { linger: Infinity });
  await publisher.add(1);
  await publisher.flush();
  await server.run("key", "revoke", revocable.id);
  await publisher.add(2);
  await assert.rejects(publisher.flush(), (error) => {
    assert.ok(error instanceof PublishError);
    assert.deepEqual([error.reason, error.seq, error.cause.code, error.cause.status], ["refused", 2, "key_revoked", 401]);
    return true;
  });
  assert.deepEqual(publisher.unacknowledged(), [{ seq: 2, sent: true, events: [2] }]);
  assert.equal(publisher.acknowledged, 1);
});

test("the publisher fails after giveUp, whether attempts fail or hang", async () => {
  for (const handler of [() => Promise.reject(new TypeError("fetch failed")), (_, go, signal) => hanging(signal)]) {
    const failed = deferred();
    const waits = [];
    const publisher = await intercepted(handler).publisher(await newStream(), { giveUp: 300, onRetry: (_, wait) => waits.push(wait), onError: failed.resolve });
    await publisher.add(1);
    const error = await failed.promise; // onError must be called although no add, flush or close is waiting
    assert.deepEqual([error.reason, error.seq], ["given_up", 1]);
    assert.match(error.message, handler.length === 0 ? /gave up after \d+ ms without an acknowledgement: .*fetch failed/ : /gave up after \d+ ms without an acknowledgement$/);
    await assert.rejects(publisher.close(), { reason: "given_up" });
    waits.slice(0, 3).forEach((wait, i) => assert.ok(wait >= 50 * 2 ** i && wait <= 100 * 2 ** i, `${waits}`));
  }
});

test("a retry waits for retry-after", async () => {
  const waited = deferred();
  let refusals = 0;
  const shaky = intercepted(async (_, go) => {
    if (refusals++ > 0) return go();
    return new Response('{"error":{"code":"overloaded","message":"full"}}', { status: 503, headers: { "retry-after": "1" } });
  });
  const publisher = await shaky.publisher(await newStream(), { onRetry: (_, wait) => waited.resolve(wait) });
  await publisher.add(1);
  assert.equal(await waited.promise, 1000);
  await publisher.close();
});
