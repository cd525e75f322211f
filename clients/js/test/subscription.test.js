import assert from "node:assert/strict";
import { after, test } from "node:test";

import { Client, ConnectionError, GapError, ResetError, Subscription } from "../src/index.js";
import { Proxy, Server, batch, deferred, id, key, numbers, scripted, service, stream, take } from "./fixtures.js";

const { server, client, newStream } = await service(after);
const seqs = (batches) => batches.map((batch) => batch.seq);

test("stored and new batches are delivered once and in order", async () => {
  const { id: s } = await newStream();
  for (const n of [1, 2, 3]) await client.publish(s, [n]);
  const got = [];
  for await (const b of client.subscribe(s, { cursor: "oldest" })) {
    got.push(b);
    if (b.seq === 6) break;
    if (b.seq >= 3) await client.publish(s, [b.seq + 1, "more"]);
  }
  assert.deepEqual(seqs(got), [1, 2, 3, 4, 5, 6]);
  assert.deepEqual(got[5].events, [6, "more"]);
  assert.ok(got[0].time instanceof Date && got[0].time <= got[5].time);
  assert.deepEqual(seqs(await take(client.subscribe(s, { after: 4 }), 4)), [5, 6]);
  assert.deepEqual(seqs(await take(client.subscribe(s, { cursor: "oldest" }), 3)), [1, 2, 3]);
});

test("sequence 0 is delivered, and not repeated", async () => {
  const s = await newStream();
  await client.publishAt(s, 0, ["zero"]);
  await client.publishAt(s, 1, ["one"]);
  const subscription = client.subscribe(s, { cursor: "oldest" });
  assert.equal(subscription.position, undefined);
  assert.deepEqual(seqs(await take(subscription, 1)), [0]);
  assert.equal(subscription.position.seq, 0);
  const saved = JSON.parse(JSON.stringify(subscription.position));
  assert.deepEqual(seqs(await take(subscription, 1)), [1]); // the same subscription continues
  for (const after of [0, saved]) assert.deepEqual(seqs(await take(client.subscribe(s, { after }), 1)), [1]);
});

test("after: 0 does not mean the oldest batch: batches above 0 that were evicted are reported as a gap", async () => {
  const s = await newStream({ maxBytes: 1 << 20 });
  await client.publishAt(s, 0, ["zero"]);
  for (let n = 1; n <= 5; n++) await client.publish(s, ["x".repeat(400_000)]);
  const [first] = await take(client.subscribe(s, { after: 0 }), 0);
  assert.deepEqual(first.gap, { from: 1, to: 3, reason: "evicted" });
  assert.deepEqual(seqs(await take(client.subscribe(s, { cursor: "oldest" }), 1)), [4]);
});

test("a stream that was deleted and created again is reported", async () => {
  const s = await newStream();
  for (const n of [1, 2, 3]) await client.publish(s, [n]);
  const subscription = client.subscribe(s, { cursor: "oldest" });
  await take(subscription, 3);
  const after = JSON.parse(JSON.stringify(subscription.position));
  await client.deleteStream(s);
  await newStream({ id: s.id });
  await client.publish(s, ["new"]);
  for (const old of [subscription, client.subscribe(s, { after })]) {
    await assert.rejects(take(old, 1), (error) => {
      assert.ok(error instanceof ResetError);
      assert.equal(error.before, after.created);
      assert.ok(error.created > error.before);
      return true;
    });
  }
  assert.deepEqual(seqs(await take(client.subscribe(s, { cursor: "oldest" }), 1)), [1]);
});

test("a stream that was restored from an older backup is reported", async () => {
  const created = "2026-11-15T00:00:00.000Z";
  const headers = { ...stream, "x-svc-stream-created": created };
  let cursor = 41;
  const { client: other, requests } = scripted(({ url }) =>
    url.endsWith("/cursor") ? { headers, bytes: JSON.stringify({ cursor, updated_at: created }), then: "end" } : { headers, bytes: `retry: 1\nid: 41\n\n${batch(42)}` },
  );
  const resumed = other.subscribe(id, { after: { seq: 41, created } });
  const got = [];
  const follow = async () => {
    for await (const { seq } of resumed) {
      got.push(seq);
      cursor = 3; // the stream is restored, and the connection breaks
    }
  };
  const reset = (error) => error instanceof ResetError && error.before === created && error.created === created && /ends at 3, below the position 42/.test(error.message);
  await assert.rejects(follow(), reset);
  assert.deepEqual(got, [42]);
  assert.equal(requests.length, 3, "it must not subscribe again");
  const future = scripted(() => ({ headers, bytes: "event: end\ndata: {}\n\n" }));
  for await (const b of future.client.subscribe(id, { after: 41 })) assert.fail(b); // a sequence in the future is not checked
  assert.equal(future.requests.length, 1);
});

test("events are read one by one, or as a ReadableStream", async () => {
  const s = await newStream();
  await client.publish(s, [1, 2]);
  await client.publish(s, []);
  await client.publish(s, [3, 4]);
  const got = [];
  for await (const event of client.subscribe(s, { cursor: "oldest" }).events()) {
    got.push(event);
    if (event === 4) break;
  }
  assert.deepEqual(got, numbers(4));
  const subscription = client.subscribe(s, { cursor: "oldest" });
  const reader = subscription.readable().getReader();
  for (const n of numbers(3)) assert.deepEqual(await reader.read(), { done: false, value: n });
  assert.equal(subscription.state, "open");
  await reader.cancel();
  assert.equal(subscription.state, "idle");
  const waiting = client.subscribe(s, { after: 3 });
  const idle = waiting.readable().getReader();
  const next = idle.read();
  while (waiting.state !== "open") await new Promise(setImmediate);
  await idle.cancel(); // while it waits for a batch
  assert.equal((await next).done, true);
  const deleted = client.subscribe(s, { after: 2 }).readable().getReader();
  assert.equal((await deleted.read()).value, 3);
  assert.equal((await deleted.read()).value, 4);
  await client.deleteStream(s);
  assert.equal((await deleted.read()).done, true);
});

test("the loop over events reports a gap to onGap, and throws without onGap", async () => {
  const s = await newStream({ maxBytes: 1 << 20 });
  for (let n = 1; n <= 5; n++) await client.publish(s, ["x".repeat(400_000)]);
  const subscription = client.subscribe(s, { after: 1 });
  await assert.rejects(subscription.events().next(), (error) => {
    assert.ok(error instanceof GapError);
    assert.deepEqual(error.gap, { from: 2, to: 3, reason: "evicted" });
    return true;
  });
  assert.equal((await subscription.events().next()).value.length, 400_000); // the next loop continues after the gap
  const gaps = [];
  const events = client.subscribe(s, { after: 1 }).events({ onGap: (gap) => gaps.push(gap.to) });
  assert.equal((await events.next()).value.length, 400_000);
  await events.return();
  assert.deepEqual(gaps, [3]);
});

test("onOpen and state tell what a subscription does", async () => {
  const states = [];
  const { client: other } = scripted((_, n) => (n === 1 ? { status: 502, then: "end" } : n === 2 ? { bytes: batch(1) } : { bytes: "event: end\ndata: {}\n\n" }));
  const note = (what) => states.push(`${what}: ${subscription.state}`);
  const subscription = other.subscribe(id, { cursor: "oldest", onOpen: () => note("open"), onRetry: (error) => note(error.message) });
  note("before");
  for await (const b of subscription) note(b.seq);
  note("after");
  assert.deepEqual(states, [
    "before: idle",
    "unexpected response, not from Weir: status 502: waiting",
    "open: open",
    "1: open",
    "cannot reach the service: terminated: waiting",
    "open: open",
    "after: ended",
  ]);
});

test("giveUp bounds the time without a connection", async (t) => {
  const refused = new Client({ url: "http://127.0.0.1:1", key });
  const reasons = [];
  await assert.rejects(take(refused.subscribe(id, { giveUp: 100, onRetry: (error) => reasons.push(error) }), 1), { name: "ConnectionError", message: /cannot reach/ });
  const { client: portal } = scripted(() => ({ headers: { "content-type": "text/html" }, then: "end" }));
  await assert.rejects(take(portal.subscribe(id, { giveUp: 2000, onRetry: (error) => reasons.push(error) }), 1), { message: /not from Weir: not an event stream, but text\/html/ });
  assert.ok(reasons.length > 0);
  const hung = new Client({ url: "http://weir.test", key, fetch: (_, { signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))) });
  await assert.rejects(take(hung.subscribe(id, { giveUp: 100 }), 1), { message: /silent/ });
});

test("a page that is online or visible again reconnects at once", async (t) => {
  const [window, document] = [new EventTarget(), new EventTarget()];
  for (const name of ["addEventListener", "removeEventListener"]) {
    globalThis[name] = window[name].bind(window);
    t.after(() => delete globalThis[name]);
  }
  globalThis.document = document;
  t.after(() => delete globalThis.document);
  let waits = 0;
  const { client: other, requests } = scripted((_, n) => (n < 4 ? { bytes: n === 1 ? "retry: 999999\n\n" : "" } : { bytes: "event: end\ndata: {}\n\n" }));
  const onRetry = () =>
    setImmediate(() => {
      if (++waits === 1) return window.dispatchEvent(new Event("online"));
      document.visibilityState = "hidden";
      document.dispatchEvent(new Event("visibilitychange"));
      assert.equal(requests.length, waits);
      document.visibilityState = "visible";
      document.dispatchEvent(new Event("visibilitychange"));
    });
  for await (const b of other.subscribe(id, { onRetry })) assert.fail(b);
  assert.equal(waits, 3);
});

test("a subscription from the head gets batches published after it started", async () => {
  const s = await newStream();
  await client.publish(s, ["before"]);
  for (const options of [undefined, {}, { cursor: "head" }]) {
    const { cursor } = await client.cursor(s);
    const subscription = client.subscribe(s, options);
    const loop = subscription[Symbol.asyncIterator]();
    const next = loop.next();
    while (subscription.position === undefined) await new Promise(setImmediate); // until it is connected
    assert.equal(subscription.position.seq, cursor);
    await client.publish(s, ["after"]);
    assert.deepEqual((await next).value.events, ["after"]);
    await loop.return();
  }
});

test("invalid cursors are rejected", () => {
  for (const cursor of [0, 7, "tail", null, "7"]) assert.throws(() => client.subscribe(id, { cursor }), /use after/);
  for (const after of [-1, 1.5, NaN, "7", null, {}, { seq: 7 }]) assert.throws(() => client.subscribe(id, { after }), TypeError);
  assert.ok(client.subscribe(id, { after: 7 }) instanceof Subscription);
});

test("raw batches have bytes and a content type", async () => {
  const s = await newStream({ mode: "raw" });
  const bytes = new Uint8Array(numbers(256, 0));
  await client.publish(s, bytes);
  await client.publish(s, new Uint8Array());
  const got = [];
  for await (const b of client.subscribe(s, { cursor: "oldest" })) {
    got.push(b);
    if (b.seq === 2) break;
  }
  assert.deepEqual(got[0].data, bytes);
  assert.deepEqual(got[1].data, new Uint8Array());
  assert.equal(got[0].contentType, "application/octet-stream");
  assert.deepEqual(got[0].events, []);
});

test("the largest batch is delivered unchanged", async () => {
  const s = await newStream({ mode: "raw" });
  const bytes = new Uint8Array(8 << 20).map((_, i) => (i * 7) ^ (i >> 8));
  await client.publish(s, bytes);
  for await (const b of client.subscribe(s, { cursor: "oldest" })) {
    assert.ok(Buffer.from(b.data).equals(Buffer.from(bytes)));
    break;
  }
});

test("evicted batches are yielded as a gap", async () => {
  const s = await newStream({ maxBytes: 1 << 20 });
  const subscription = client.subscribe(s, { cursor: "oldest" });
  await client.publish(s, [1]);
  assert.deepEqual(seqs(await take(subscription, 1)), [1]);
  for (let n = 0; n < 5; n++) await client.publish(s, ["x".repeat(400_000)]);
  const got = [];
  for await (const b of subscription) {
    got.push(b);
    if (b.seq === 6) break;
  }
  assert.deepEqual(got[0], { seq: 4, events: [], gap: { from: 2, to: 4, reason: "evicted" } });
  assert.deepEqual(seqs(got), [4, 5, 6]);
});

test("the loop ends when the stream is deleted", async () => {
  const s = await newStream();
  await client.publish(s, [1]);
  const subscription = client.subscribe(s, { cursor: "oldest" });
  const got = [];
  for await (const b of subscription) {
    got.push(b);
    await client.deleteStream(s);
  }
  assert.deepEqual(seqs(got), [1]);
  for await (const b of subscription) assert.fail(`batch ${b.seq} after the end`);
});

test("permanent errors are thrown and not retried", async () => {
  const s = await newStream();
  const drain = async (c, target) => {
    for await (const b of c.subscribe(target, { cursor: "oldest", onRetry: (error) => assert.fail(error) })) assert.fail(`got ${b.seq}`);
  };
  await assert.rejects(drain(client, id), { code: "stream_not_found", status: 404 });
  await assert.rejects(drain(new Client({ url: server.url }), s), { code: "missing_api_key", status: 401 });
  const publishOnly = new Client({ url: server.url, ...(await server.newKey("--permissions", "publish")) });
  await assert.rejects(drain(publishOnly, s), { code: "project_forbidden", status: 403 });
  await assert.rejects(async () => {
    for await (const b of publishOnly.subscribe(s)) assert.fail(`got ${b.seq}`);
  }, { code: "project_forbidden" });
});

test("a revoked key ends the subscription", async () => {
  const s = await newStream();
  await client.publish(s, [1]);
  const revocable = await server.newKey("--permissions", "read");
  const got = [];
  await assert.rejects(async () => {
    for await (const b of new Client({ url: server.url, key: revocable.key }).subscribe(s, { cursor: "oldest" })) {
      got.push(b.seq);
      await server.run("key", "revoke", revocable.id);
    }
  }, { name: "WeirError", code: "key_revoked", status: 401 });
  assert.deepEqual(got, [1]);
});

test("a signal ends the loop without an error: before the start, while waiting, in the body of the loop, and between two connections", async () => {
  const s = await newStream();
  await client.publish(s, [1]);
  await client.publish(s, [2]);
  const loop = async (c, controller, then, onRetry) => {
    const got = [];
    for await (const b of c.subscribe(s, { cursor: "oldest", signal: controller.signal, onRetry })) {
      got.push(b.seq);
      await then(b, controller);
    }
    return got;
  };
  const before = new AbortController();
  before.abort();
  assert.deepEqual(await loop(client, before), []);
  assert.deepEqual(await loop(client, new AbortController(), (b, c) => b.seq === 2 && setImmediate(() => c.abort(new Error("enough")))), [1, 2]);
  assert.deepEqual(await loop(client, new AbortController(), (_, c) => c.abort()), [1]);
  for (const headers of [{ "retry-after": "3600" }, {}]) {
    const between = new AbortController();
    const { client: other } = scripted(() => ({ status: 503, headers, then: "end", bytes: '{"error":{"code":"overloaded","message":"full"}}' }));
    assert.deepEqual(await loop(other, between, assert.fail, () => setImmediate(() => between.abort())), []);
  }
});

test("a connection cut at any byte is resumed", async () => {
  const hello = "retry: 1\n\n:\n\n";
  const all = numbers(5).map(batch);
  const size = Buffer.byteLength(hello + all.join(""));
  const cutAfter = async (cut) => {
    const { client: other, requests } = scripted(({ headers }, n) => {
      const rest = all.slice(Number(headers["last-event-id"] ?? 0)).join("") + "event: end\ndata: {}\n\n";
      const bytes = Buffer.from(hello + rest);
      return n === 1 ? { bytes: bytes.subarray(0, cut) } : { bytes };
    });
    const got = [];
    for await (const b of other.subscribe(id, { cursor: "oldest" })) got.push(b.events[0]);
    assert.deepEqual(got, ["ä1", "ä2", "ä3", "ä4", "ä5"], `cut after ${cut} bytes`);
    assert.equal(requests.length, 2);
    assert.ok(requests[0].url.endsWith("?cursor=0"));
  };
  await Promise.all(numbers(size + 1, 0).map(cutAfter)); // in parallel, because after a cut before the retry line the client waits a second
});

test("the first frame says where to resume", async () => {
  for (const [cursor, first, then, position, next] of [
    ["head", "retry: 1\nid: 7\n\n", "7", 7, 7],
    ["head", "retry: 1\nid: 7\n\n:\n\n", "7", 7, 7],
    ["head", `retry: 1\nid: 7\n\n${batch(8).slice(0, -1)}`, "7", 7, 7],
    ["head", `retry: 1\nid: 7\n\n${batch(8)}:\n\n`, "8", 8, 8],
    ["head", "retry: 1\n\n", "?cursor=0", undefined, "oldest"], // nothing was ever stored
    ["head", "retry: 1\nid: 7\n", "?cursor=head", undefined, "head"], // cut inside the frame
    ["oldest", "retry: 1\nid: 41\n\n", "41", 41, 41],
    ["oldest", "retry: 1\n\n", "?cursor=0", undefined, "oldest"],
    ["oldest", `${batch(3)}:\n\n`, "3", 3, 3],
    [3, "retry: 1\nid: 3\n\n", "3", 3, 3],
  ]) {
    const { client: other, requests } = scripted((_, n) => (n === 1 ? { bytes: first } : { bytes: "event: end\ndata: {}\n\n" }));
    const subscription = other.subscribe(id, typeof cursor === "number" ? { after: cursor } : { cursor });
    const got = [];
    for await (const b of subscription) got.push(b.seq);
    const { url, headers } = requests[1];
    assert.equal(headers["last-event-id"] ?? new URL(url).search, then, `${cursor} after ${first}`);
    assert.equal(subscription.position?.seq, position);
    assert.deepEqual(subscription.resume, typeof next === "number" ? { after: { seq: next, created: "" } } : { cursor: next });
    assert.deepEqual(got, first.endsWith(`${batch(8)}:\n\n`) ? [8] : first.startsWith(batch(3)) ? [3] : []);
  }
});

test("a subscription from the head of a stream in which nothing was ever stored gets batch 0", async () => {
  const { id: s } = await newStream();
  const subscription = client.subscribe(s);
  const first = subscription[Symbol.asyncIterator]();
  const next = first.next();
  while (subscription.state !== "open") await new Promise(setImmediate);
  assert.deepEqual(subscription.resume, { cursor: "oldest" });
  await client.publishAt(s, 0, ["zero"]);
  assert.equal((await next).value.seq, 0);
  await first.return();
});

test("repeated batches are yielded once", async () => {
  const gap = 'id: 6\nevent: gap\ndata: {"from":4,"to":6,"reason":"lost"}\n\n';
  const { client: other } = scripted((_, n) => ({
    bytes: `retry: 0\n\n${[1, 2, 1, 3].map(batch).join("")}${gap}${batch(5)}${gap}${n > 1 ? batch(7) + "event: later\ndata: ?\n\nevent: end\ndata: {}\n\n" : ""}`,
  }));
  const got = [];
  for await (const b of other.subscribe(id, { cursor: "oldest" })) got.push(b);
  assert.deepEqual(seqs(got), [1, 2, 3, 6, 7]);
  assert.deepEqual(got[3].gap, { from: 4, to: 6, reason: "lost" });
});

test("reconnects wait as long as the service asks, and longer after each failure", async () => {
  const waits = [];
  const controller = new AbortController();
  const onRetry = (error, wait) => {
    waits.push(wait);
    assert.ok(error instanceof Error);
    if (waits.length === 6) controller.abort();
  };
  const { client: other } = scripted((_, n) =>
    n === 1 ? { bytes: `retry: 4\n\n${batch(1)}` } : n === 2 ? { status: 502, then: "end" } : n === 3 ? { then: "end" } : n === 4 ? { bytes: batch(2) } : {},
  );
  for await (const b of other.subscribe(id, { cursor: "oldest", onRetry, signal: controller.signal })) void b;
  [4, 100, 200, 4, 100, 200].forEach((least, i) => assert.ok(waits[i] >= least && waits[i] <= least * 1.5, `${i}: ${waits}`));
});

test("invalid responses are rejected", async () => {
  for (const [answer, want] of [
    [{ bytes: "event: batch\ndata: {}\n\n" }, /cannot read a batch/],
    [{ bytes: 'event: gap\ndata: {"from":2,"to":1}\n\n' }, /cannot read a gap/],
    [{ bytes: new Uint8Array([0xff, 0xff]) }, /not valid UTF-8/],
  ]) {
    const { client: other, requests } = scripted(() => answer);
    await assert.rejects(async () => {
      for await (const b of other.subscribe(id, { cursor: "oldest" })) assert.fail(b);
    }, { name: "WeirError", message: want });
    assert.equal(requests.length, 1);
  }
});

test("a hanging connection is detected, an idle one with heartbeats is kept", async (t) => {
  const own = await Server.start(t, "--heartbeat", "100ms");
  const proxy = await Proxy.start(t, own.url, (n) => (n === 2 ? { down: 600, stall: true } : {})); // the first connection creates the stream
  const far = new Client({ url: proxy.url, key });
  const s = await far.createStream({ name: "x" });
  const reasons = [];
  const stalled = deferred();
  const subscription = far.subscribe(s, {
    cursor: "oldest",
    silence: 1500,
    onRetry: (error) => {
      reasons.push(error);
      stalled.resolve();
    },
  });
  const loop = subscription[Symbol.asyncIterator]();
  proxy.cut(); // so that the subscription uses the second connection
  const next = loop.next();
  await stalled.promise;
  await new Client({ url: own.url, key }).publish(s, ["after the silence"]);
  assert.deepEqual((await next).value.events, ["after the silence"]);
  await loop.return();
  assert.ok(reasons.every((error) => error instanceof ConnectionError && /not even a heartbeat/.test(error.message)), `${reasons}`);
});

test("a slow loop is not mistaken for a dead connection", async () => {
  const end = deferred();
  const { client: other } = scripted(() => ({ bytes: [batch(1), batch(2), "event: end\ndata: {}\n\n"], then: "hang" }));
  const onRetry = (error) => assert.fail(error);
  const got = [];
  setTimeout(end.resolve, 60); // much longer than the silence below
  for await (const b of other.subscribe(id, { cursor: "oldest", silence: 20, onRetry })) {
    got.push(b.seq);
    await end.promise;
  }
  assert.deepEqual(got, [1, 2]);
});

test("a subscription survives cut connections and a killed server", async (t) => {
  const own = await Server.start(t);
  const proxy = await Proxy.start(t, own.url, (n) => ({ down: 2000 + ((n * 997) % 5000) }));
  const near = new Client({ url: own.url, key });
  const s = await near.createStream({ name: "x" });
  const count = 200;
  const publishing = (async () => {
    for (let n = 1; n <= count; n++) {
      if (n === 100) {
        await own.kill();
        await own.again();
      }
      await near.publishAt(s, n, [n, "x".repeat(50)]);
    }
  })();
  const got = [];
  for await (const b of new Client({ url: proxy.url, key }).subscribe(s, { cursor: "oldest" })) {
    got.push(b.seq);
    if (b.seq === count) break;
  }
  await publishing;
  assert.deepEqual(got, numbers(count));
  assert.ok(proxy.count > 3, `${proxy.count} connections`);
});
