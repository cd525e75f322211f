import assert from "node:assert/strict";
import { after, test } from "node:test";

import { Client, ConnectionError, Subscription } from "../src/index.js";
import { Proxy, Server, deferred, key, numbers, take } from "./fixtures.js";

const server = await Server.start({ after });
const client = new Client({ url: server.url, key });

const newStream = (options) => client.createStream({ name: "x", ...options });
const seqs = (batches) => batches.map((batch) => batch.seq);

/**
 * Returns a client of a simulated service. For each request, `answer` returns the bytes of the response, in one chunk or
 * several, and what happens then: the response ends (`end`), breaks off (`cut`), or hangs (`hang`).
 */
function scripted(answer) {
  const requests = [];
  const fetch = async (url, init) => {
    requests.push({ url, headers: init.headers });
    const { status = 200, headers = stream, bytes = "", then = "cut" } = answer(requests.at(-1), requests.length);
    const body = new ReadableStream({
      start(controller) {
        for (const piece of [bytes].flat()) {
          if (piece.length > 0) controller.enqueue(typeof piece === "string" ? new TextEncoder().encode(piece) : piece);
        }
        if (then === "end") controller.close();
        init.signal.addEventListener("abort", () => then === "hang" && controller.error(init.signal.reason));
      },
      pull(controller) {
        if (then === "cut") controller.error(new TypeError("terminated")); // the enqueued bytes are delivered first
      },
    });
    return new Response(body, { status, headers });
  };
  return { client: new Client({ url: "http://weir.test", key, fetch }), requests };
}

const id = "a".repeat(22);
const batch = (seq) => `id: ${seq}\nevent: batch\ndata: {"seq":${seq},"ts":"2026-11-15T00:00:00.000Z","events":["ä${seq}"]}\n\n`;
const stream = { "content-type": "text/event-stream" };

test("stored and new batches are delivered once and in order", async () => {
  const { id: s } = await newStream();
  for (const n of [1, 2, 3]) await client.publish(s, [n]);
  const got = [];
  for await (const b of client.subscribe(s, { cursor: 0 })) {
    got.push(b);
    if (b.seq === 6) break;
    if (b.seq >= 3) await client.publish(s, [b.seq + 1, "more"]);
  }
  assert.deepEqual(seqs(got), [1, 2, 3, 4, 5, 6]);
  assert.deepEqual(got[5].events, [6, "more"]);
  assert.ok(got[0].time instanceof Date && got[0].time <= got[5].time);
  assert.deepEqual(seqs(await take(client.subscribe(s, { cursor: 4 }), 4)), [5, 6]);
  assert.deepEqual(seqs(await take(client.subscribe(s, { cursor: "oldest" }), 3)), [1, 2, 3]);
});

test("sequence 0 is delivered, and not repeated", async () => {
  const s = await newStream();
  await client.publishAt(s, 0, ["zero"]);
  await client.publishAt(s, 1, ["one"]);
  const subscription = client.subscribe(s, { cursor: 0 });
  assert.equal(subscription.position, undefined);
  assert.deepEqual(seqs(await take(subscription, 1)), [0]);
  assert.equal(subscription.position, 0);
  assert.deepEqual(seqs(await take(subscription, 1)), [1]); // the same subscription continues
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
    assert.equal(subscription.position, cursor);
    await client.publish(s, ["after"]);
    assert.deepEqual((await next).value.events, ["after"]);
    await loop.return();
  }
});

test("invalid cursors are rejected", () => {
  for (const cursor of [-1, 1.5, NaN, "tail", null, "7"]) assert.throws(() => client.subscribe(id, { cursor }), TypeError);
  assert.ok(client.subscribe(id, { cursor: 7 }) instanceof Subscription);
});

test("raw batches have bytes and a content type", async () => {
  const s = await newStream({ mode: "raw" });
  const bytes = new Uint8Array(numbers(256, 0));
  await client.publish(s, bytes);
  await client.publish(s, new Uint8Array());
  const got = [];
  for await (const b of client.subscribe(s, { cursor: 0 })) {
    got.push(b);
    if (b.seq === 2) break;
  }
  assert.deepEqual(got[0].data, bytes);
  assert.deepEqual(got[1].data, new Uint8Array());
  assert.equal(got[0].contentType, "application/octet-stream");
  assert.deepEqual(got[0].events, []);
});

test("the largest batch", async () => {
  const s = await newStream({ mode: "raw" });
  const bytes = new Uint8Array(8 << 20).map((_, i) => (i * 7) ^ (i >> 8));
  await client.publish(s, bytes);
  for await (const b of client.subscribe(s, { cursor: 0 })) {
    assert.ok(Buffer.from(b.data).equals(Buffer.from(bytes)));
    break;
  }
});

test("evicted batches are yielded as a gap", async () => {
  const s = await newStream({ maxBytes: 1 << 20 });
  const subscription = client.subscribe(s, { cursor: 0 });
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
  const subscription = client.subscribe(s, { cursor: 0 });
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
    for await (const b of c.subscribe(target, { cursor: 0, onRetry: (error) => assert.fail(error) })) assert.fail(`got ${b.seq}`);
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
    for await (const b of new Client({ url: server.url, key: revocable.key }).subscribe(s, { cursor: 0 })) {
      got.push(b.seq);
      await server.run("key", "revoke", revocable.id);
    }
  }, { name: "WeirError", code: "key_revoked", status: 401 });
  assert.deepEqual(got, [1]);
});

test("a signal ends the loop: before the start, while waiting, in the body, and between two connections", async (t) => {
  const s = await newStream();
  await client.publish(s, [1]);
  await client.publish(s, [2]);
  const loop = async (c, controller, then) => {
    for await (const b of c.subscribe(s, { cursor: 0, signal: controller.signal })) await then(b);
  };
  const before = new AbortController();
  before.abort();
  await assert.rejects(loop(client, before, assert.fail), { name: "AbortError" });

  const waiting = new AbortController();
  await assert.rejects(loop(client, waiting, (b) => b.seq === 2 && setImmediate(() => waiting.abort(new Error("enough")))), { message: "enough" });

  const inside = new AbortController();
  const got = [];
  await assert.rejects(loop(client, inside, (b) => (got.push(b.seq), inside.abort())), { name: "AbortError" });
  assert.deepEqual(got, [1]);

  const between = new AbortController();
  const { client: other } = scripted(() => ({ status: 503, headers: { "retry-after": "3600" }, then: "end" }));
  await assert.rejects(async () => {
    const onRetry = () => setImmediate(() => between.abort());
    for await (const b of other.subscribe(id, { cursor: 0, signal: between.signal, onRetry })) assert.fail(b);
  }, { name: "AbortError" });
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
    for await (const b of other.subscribe(id, { cursor: 0 })) got.push(b.events[0]);
    assert.deepEqual(got, ["ä1", "ä2", "ä3", "ä4", "ä5"], `cut after ${cut} bytes`);
    assert.equal(requests.length, 2);
    assert.ok(requests[0].url.endsWith("?cursor=0"));
  };
  await Promise.all(numbers(size + 1, 0).map(cutAfter)); // in parallel: those cut before the retry line wait for a second
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
    const subscription = other.subscribe(id, { cursor });
    const got = [];
    for await (const b of subscription) got.push(b.seq);
    const { url, headers } = requests[1];
    assert.equal(headers["last-event-id"] ?? new URL(url).search, then, `${cursor} after ${first}`);
    assert.equal(subscription.position, position);
    assert.equal(subscription.cursor, next);
    assert.deepEqual(got, first.endsWith(`${batch(8)}:\n\n`) ? [8] : first.startsWith(batch(3)) ? [3] : []);
  }
});

test("head of a stream in which nothing was ever stored", async () => {
  const { id: s } = await newStream();
  const subscription = client.subscribe(s);
  const first = subscription[Symbol.asyncIterator]();
  const next = first.next();
  while (subscription.cursor === "head") await new Promise(setImmediate); // until it is connected
  assert.equal(subscription.cursor, "oldest");
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
  for await (const b of other.subscribe(id, { cursor: 0 })) got.push(b);
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
  await assert.rejects(async () => {
    for await (const b of other.subscribe(id, { cursor: 0, onRetry, signal: controller.signal })) void b;
  }, { name: "AbortError" });
  [4, 100, 200, 4, 100, 200].forEach((least, i) => assert.ok(waits[i] >= least && waits[i] <= least * 1.5, `${i}: ${waits}`));
});

test("invalid responses are rejected", async () => {
  for (const [answer, want] of [
    [{ headers: { "content-type": "text/html" }, then: "end" }, /not an event stream: its content type is text\/html/],
    [{ bytes: "event: batch\ndata: {}\n\n" }, /cannot read a batch/],
    [{ bytes: 'event: gap\ndata: {"from":2,"to":1}\n\n' }, /cannot read a gap/],
    [{ bytes: new Uint8Array([0xff, 0xff]) }, /not valid UTF-8/],
  ]) {
    const { client: other, requests } = scripted(() => answer);
    await assert.rejects(async () => {
      for await (const b of other.subscribe(id, { cursor: 0 })) assert.fail(b);
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
    cursor: 0,
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
  for await (const b of other.subscribe(id, { cursor: 0, silence: 20, onRetry })) {
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
  for await (const b of new Client({ url: proxy.url, key }).subscribe(s, { cursor: 0 })) {
    got.push(b.seq);
    if (b.seq === count) break;
  }
  await publishing;
  assert.deepEqual(got, numbers(count));
  assert.ok(proxy.count > 3, `${proxy.count} connections`);
});
