import assert from "node:assert/strict";
import http from "node:http";
import { after, test } from "node:test";

import { Client, ConnectionError, WeirError } from "../src/index.js";
import { Faults, Proxy, Server, deferred, key, numbers } from "./fixtures.js";

const server = await Server.start({ after });
const client = new Client({ url: server.url, key });

/** Starts an HTTP server that is not Weir, and returns a client for it. */
async function otherServer(t, answer, options) {
  const requests = [];
  const s = http.createServer((request, response) => {
    requests.push(request);
    request.resume();
    answer(response, requests.length, request);
  });
  await new Promise((resolve) => s.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    s.close();
    s.closeAllConnections();
  });
  const url = `http://127.0.0.1:${s.address().port}`;
  return { client: new Client({ url, key, ...options }), requests, url };
}

const id = "a".repeat(22);
const about = { "x-svc-stream-created": "2026-11-15T00:00:00.000Z" };

test("invalid options are rejected", () => {
  for (const [options, want] of [
    [{ url: "weir" }, /not a valid URL/],
    [{ url: "ftp://weir" }, /http:\/\/ or https:\/\//],
    [{ url: "http://a:b@weir" }, /user name/],
    [{ url: "http://weir/?a" }, /query/],
    [{ url: "http://weir", key: "a\nb" }, /invalid key/],
    [{ url: "http://weir", fetch: 1 }, /no fetch function/],
  ]) {
    assert.throws(() => new Client(options), { name: "TypeError", message: want });
  }
});

test("a path before /v1 is kept", async (t) => {
  const { url, requests } = await otherServer(t, (response) => response.writeHead(404).end());
  await assert.rejects(new Client({ url: `${url}/before/`, key }).stream(id));
  assert.equal(requests[0].url, `/before/v1/streams/${id}`);
  assert.equal(requests[0].headers.authorization, `Bearer ${key}`);
});

test("batches are read page by page", async () => {
  const stream = await client.createStream({ name: "pages" });
  for (let n = 1; n <= 7; n++) await client.publish(stream, [n]);
  const read = async (options) => {
    const seqs = [];
    for await (const batch of client.batches(stream, options)) seqs.push(batch.gap ? -batch.seq : batch.seq);
    return seqs;
  };
  const { time } = await client.batch(stream, 4);
  for (const limit of [undefined, 1, 3, 1000]) {
    assert.deepEqual(await read({ limit }), [1, 2, 3, 4, 5, 6, 7]);
    assert.deepEqual(await read({ from: 5, limit }), [5, 6, 7]);
    assert.deepEqual(await read({ from: "head", limit }), []);
    assert.deepEqual(await read({ last: 2, limit }), [6, 7]);
    assert.deepEqual((await read({ since: time, limit })).slice(-4), [4, 5, 6, 7]);
  }
  const page = await client.page(stream, { from: 3, limit: 2 });
  assert.deepEqual(
    page.batches.map((batch) => batch.events),
    [[3], [4]],
  );
  assert.deepEqual([page.next, page.cursor, page.gap], [5, 7, undefined]);
  await assert.rejects(client.page(stream, { from: 3, last: 2 }), { code: "invalid_request_error" });
  // The service may take longer than the timeout to answer a request that waits.
  const quick = new Client({ url: server.url, key, timeout: 500, giveUp: 500 });
  assert.deepEqual(await quick.page(stream, { from: "head", wait: 1 }), { batches: [], next: 8, cursor: 7 });
});

test("a stream can be changed, and evicted batches are reported as a gap", async () => {
  const stream = await client.createStream({ name: "old", mode: "raw" });
  for (let n = 1; n <= 3; n++) await client.publish(stream, new Uint8Array(1 << 20));
  const changed = await client.updateStream(stream, { name: "new", retentionSeconds: 3600, maxBytes: 1 << 20 });
  assert.deepEqual(changed, { ...stream, name: "new", retentionSeconds: 3600, maxBytes: 1 << 20, cursor: 3, bytesStored: 1 << 20 });
  const got = [];
  for await (const { seq, gap, data } of client.batches(stream, { from: 1 })) got.push(gap ?? [seq, data.length]);
  assert.deepEqual(got, [{ from: 1, to: 2, reason: "evicted" }, [3, 1 << 20]]);
  await assert.rejects(client.updateStream(stream, { retentionSeconds: 1 }), { code: "retention_out_of_range" });
});

test("an unknown member of a new stream is refused", async () => {
  for (const [member, want] of [
    ["retention", /did you mean retentionSeconds/],
    ["retention_seconds", /did you mean retentionSeconds/],
    ["max_bytes", /did you mean maxBytes/],
    ["colour", /it has name, retentionSeconds, maxBytes, mode, ttlSeconds, id/],
  ]) {
    await assert.rejects(client.createStream({ name: "mistaken", [member]: 60 }), { name: "TypeError", message: want });
  }
});

test("an unknown member of a change is refused", async () => {
  const stream = await client.createStream({ name: "changed" });
  for (const [member, want] of [
    ["retention", /did you mean retentionSeconds/],
    ["max_bytes", /did you mean maxBytes/],
    ["ttlSeconds", /a change of a stream has no member ttlSeconds; it has name, retentionSeconds, maxBytes/],
  ]) {
    await assert.rejects(client.updateStream(stream, { name: "mistaken", [member]: 60 }), { name: "TypeError", message: want });
  }
  assert.equal((await client.stream(stream)).name, "changed");
});

test("streams: create, show, list, delete", async () => {
  const made = await client.createStream({ name: "orders", retentionSeconds: 60, maxBytes: 1 << 20, mode: "raw" });
  assert.match(made.id, /^[0-9A-Za-z]{22}$/);
  assert.ok(made.createdAt instanceof Date && made.createdAt.getTime() > 0);
  const { createdAt, ...rest } = made;
  assert.deepEqual(rest, { id: made.id, name: "orders", retentionSeconds: 60, maxBytes: 1 << 20, cursor: 0, bytesStored: 0, mode: "raw", closed: false });
  assert.deepEqual(await client.stream(made), made);
  assert.deepEqual(await client.stream(made.id), made);
  const ids = [];
  for (let n = 0; n < 5; n++) ids.unshift((await client.createStream({ name: `page ${n}` })).id);
  const listed = [];
  for await (const stream of client.streams({ pageSize: 2 })) listed.push(stream.id);
  assert.deepEqual(listed.slice(0, 5), ids);
  assert.ok(listed.includes(made.id));
  await client.deleteStream(made);
  await assert.rejects(client.stream(made), { name: "WeirError", code: "stream_not_found", status: 404 });
  await assert.rejects(client.deleteStream(made), { code: "stream_not_found" });
});

test("a closed stream is read to its end", async () => {
  const s = await client.createStream({ name: "closed" });
  for (const n of [1, 2, 3]) await client.publish(s, [n]);
  const waiting = client.subscribe(s, { after: 2 });
  const got = [];
  for await (const batch of waiting) {
    got.push(batch.seq);
    assert.equal((await client.closeStream(s)).closed, true);
  }
  assert.deepEqual(got, [3]);
  assert.equal(waiting.ended, "stream_closed");
  assert.equal((await client.stream(s)).closed, true);
  await assert.rejects(client.publish(s, [4]), { code: "stream_closed", status: 409 });
  const later = client.subscribe(s, { cursor: "oldest" });
  const all = [];
  for await (const batch of later) all.push(batch.seq);
  assert.deepEqual(all, [1, 2, 3]);
  assert.equal(later.ended, "stream_closed");
});

test("errors have a code, a status, a request id and a link", async () => {
  await assert.rejects(client.createStream({ name: "x", retentionSeconds: 1 }), (error) => {
    assert.ok(error instanceof WeirError && error instanceof Error);
    assert.equal(error.code, "retention_out_of_range");
    assert.equal(error.status, 422);
    assert.equal(error.type, "invalid_request_error");
    assert.match(error.requestId, /^req_[0-9A-Za-z]{16}$/);
    assert.equal(error.docUrl, `${server.url}/docs/errors#retention_out_of_range`);
    assert.match(error.message, /^retention_out_of_range: /);
    return true;
  });
  await assert.rejects(new Client({ url: server.url }).stream(id), { code: "missing_api_key", status: 401 });
  await assert.rejects(new Client({ url: server.url, key: "x" }).stream(id), { code: "invalid_api_key", status: 401 });
  await assert.rejects(client.stream("../health"), { code: "invalid_stream_id" });
  await assert.rejects(client.stream(undefined), { code: "invalid_stream_id" });
  await assert.rejects(client.createStream({ name: "x", id: (await client.createStream({ name: "x" })).id }), { code: "stream_name_taken" });
  const confined = new Client({ url: server.url, ...(await server.newKey("--permissions", "read")) });
  await assert.rejects(confined.createStream({ name: "x" }), { code: "project_forbidden", status: 403 });
});

test("publish and read back", async () => {
  const stream = await client.createStream({ name: "x" });
  const events = [1, "zwei 😀", null, { a: [true, 1.5e-7, ""] }, [], '\u2028\r\n"\\ud800'];
  const ack = await client.publish(stream, events);
  assert.deepEqual(ack, { streamId: stream.id, seq: 1, accepted: events.length, cursor: 1, duplicate: false });
  const batch = await client.batch(stream, 1);
  assert.deepEqual(batch.events, events);
  assert.ok(batch.time instanceof Date && Math.abs(Date.now() - batch.time.getTime()) < 3600_000);
  assert.equal((await client.publish(stream, [])).accepted, 0);
  assert.equal((await client.publishAt(stream, 7, ["seven"])).cursor, 7);
  assert.deepEqual(await client.publishAt(stream, 7, ["eight", 9]), { streamId: stream.id, seq: 7, accepted: 1, cursor: 7, duplicate: true });
  const cursor = await client.cursor(stream);
  assert.equal(cursor.cursor, 7);
  assert.ok(cursor.updatedAt instanceof Date);
  await assert.rejects(client.batch(stream, 9), { code: "stream_not_found" });
  await assert.rejects(client.publishAt(stream, 5000, []), { code: "sequence_too_far_ahead", status: 422 });
  for (const seq of [-1, 1.5, NaN, 2 ** 53, "7", undefined]) await assert.rejects(client.publishAt(stream, seq, []), TypeError);
  const first = await client.publish(stream, ["once"], { idempotencyKey: "mine" });
  assert.deepEqual(await client.publish(stream, ["twice"], { idempotencyKey: "mine" }), { ...first, duplicate: true });
  await assert.rejects(client.publish(stream, [], { idempotencyKey: "two words" }), TypeError);
});

test("raw streams carry bytes", async () => {
  const stream = await client.createStream({ name: "x", mode: "raw" });
  const all = new Uint8Array(numbers(256, 0));
  await client.publish(stream, all);
  await client.publish(stream, all.buffer.slice(10, 20));
  await client.publishAt(stream, 3, new DataView(all.buffer, 1, 3));
  await client.publish(stream, Buffer.from("text"));
  await client.publish(stream, new Uint8Array());
  for (const [seq, want] of [[1, all], [2, all.slice(10, 20)], [3, all.slice(1, 4)], [4, new TextEncoder().encode("text")], [5, new Uint8Array()]]) {
    const batch = await client.batch(stream, seq);
    assert.deepEqual({ ...batch }, { seq, events: [], contentType: "application/octet-stream", data: want });
  }
  await assert.rejects(client.publish(stream, ["event"]), { code: "unsupported_media_type", status: 415 });
});

test("invalid payloads are rejected by the client", async () => {
  const stream = await client.createStream({ name: "x" });
  const cycle = {};
  cycle.cycle = cycle;
  const nested = (n) => JSON.parse("[".repeat(n) + "]".repeat(n));
  for (const bad of [undefined, null, "text", 7, { events: [] }, new Set()]) await assert.rejects(client.publish(stream, bad), TypeError);
  for (const bad of [undefined, () => 1, Symbol("x"), 1n, cycle, "\ud800", { "\udc00": 1 }, ["\ud800\ud83d\ude00"], "\\\ud800", nested(999)]) {
    await assert.rejects(client.publish(stream, [1, bad]), TypeError);
  }
  await assert.rejects(client.publish(stream, ["x".repeat(8 << 20)]), { code: "payload_too_large" });
  await assert.rejects(client.publish(stream, new Uint8Array((8 << 20) + 1)), { code: "payload_too_large" });
  assert.equal((await client.cursor(stream)).cursor, 0);
  const good = [nested(998), "\\ud800", "\ud83d\ude00", "[".repeat(3000), "x".repeat(1 << 20)];
  await client.publish(stream, good);
  assert.deepEqual((await client.batch(stream, 1)).events, good);
});

test("custom parse and stringify keep large numbers exact", async () => {
  const exact = new Client({ url: server.url, key, stringify: (event) => event, parse: (text) => JSON.parse(text.replace(/\[(.*)\]/, (_, list) => JSON.stringify(list.split(",")))) });
  const stream = await exact.createStream({ name: "x" });
  await exact.publish(stream, ["12345678901234567890", "1.10"]);
  assert.deepEqual((await exact.batch(stream, 1)).events, ["12345678901234567890", "1.10"]);
});

test("a custom parse may return BigInt for numbers", async () => {
  const big = new Client({ url: server.url, key, parse: (text) => JSON.parse(text, (_, value) => (typeof value === "number" ? BigInt(value) : value)) });
  const stream = await big.createStream({ name: "x" });
  await big.publish(stream, [7]);
  const { seq, events } = await big.batch(stream, 1);
  assert.deepEqual([seq, events], [1, [7n]]);
});

test("calls are retried until they succeed", async (t) => {
  const stream = await client.createStream({ name: "x" });
  // The first three connections are cut: in the middle of the request, in the middle of the response, and before the response.
  const proxy = await Proxy.start(t, server.url, (n) => [{}, { up: 300 }, { down: 30 }, { down: 0, swallow: 1 }][n] ?? {});
  const far = new Client({ url: proxy.url, key });
  const ack = await far.publish(stream, ["x".repeat(1000)]);
  assert.equal(proxy.count, 4);
  assert.deepEqual(ack, { streamId: stream.id, seq: 1, accepted: 1, cursor: 1, duplicate: true });
});

test("create and delete succeed although the first response is lost", async (t) => {
  let lost = 0;
  const proxy = await Proxy.start(t, server.url, () => (lost-- > 0 ? { down: 0, swallow: 1 } : {}));
  lost = 1;
  const stream = await new Client({ url: proxy.url, key }).createStream({ name: "found" });
  assert.deepEqual(await client.stream(stream), stream);
  proxy.cut();
  lost = 1;
  await new Client({ url: proxy.url, key }).deleteStream(stream);
  await assert.rejects(client.stream(stream), { code: "stream_not_found" });
});

test("calls are retried until the time in giveUp has passed", async (t) => {
  const full = (response) => response.writeHead(503, { "retry-after": "0" }).end('{"error":{"code":"overloaded","message":"full"}}');
  const { client: other, requests } = await otherServer(t, full, { giveUp: 1000 });
  await assert.rejects(other.stream(id), { code: "overloaded", status: 503, message: "overloaded: full", outcomeUnknown: false });
  assert.ok(requests.length > 2, `${requests.length} requests`);
  const gone = new Client({ url: "http://127.0.0.1:1", key, giveUp: 100 });
  await assert.rejects(gone.stream(id), (error) => {
    assert.ok(error instanceof ConnectionError);
    assert.match(error.message, /cannot reach the service: .+/);
    assert.ok(error.cause);
    assert.ok(!String(error).includes(key));
    assert.deepEqual([error.outcomeUnknown, error.idempotencyKey], [false, ""]); // a GET changes nothing
    return true;
  });
});

test("an error says that the outcome is unknown, and has the key for a repeated call", async (t) => {
  const stream = await client.createStream({ name: "x" });
  const lossy = async (url, init) => {
    await fetch(url, init);
    throw new TypeError("terminated"); // the batch is stored, and its acknowledgement lost
  };
  let lost;
  await new Client({ url: server.url, key, fetch: lossy, giveUp: 200 }).publish(stream, ["once"]).catch((error) => (lost = error));
  assert.ok(lost instanceof ConnectionError && lost.outcomeUnknown);
  assert.equal((await client.publish(stream, ["once"], { idempotencyKey: lost.idempotencyKey })).duplicate, true);
  assert.equal((await client.cursor(stream)).cursor, 1);

  const { client: other } = await otherServer(t, (response, n) => {
    if (n === 1) response.destroy();
    else response.writeHead(401).end('{"error":{"code":"key_revoked","message":"revoked"}}');
  });
  await assert.rejects(other.publish(id, [1], { idempotencyKey: "mine" }), { code: "key_revoked", outcomeUnknown: true, idempotencyKey: "mine" });

  const unsure = (response, n) =>
    response.writeHead(503, n === 1 ? { "x-svc-outcome": "unknown" } : {}).end('{"error":{"code":"storage_unavailable","message":"no"}}');
  const { client: third } = await otherServer(t, unsure, { giveUp: 1000 });
  await assert.rejects(third.publish(id, [1], { idempotencyKey: "mine" }), { code: "storage_unavailable", outcomeUnknown: true });
});

test("the outcome is unknown if the last attempt got no response, and known if nothing was sent", async (t) => {
  const { client: other } = await otherServer(t, (response, n) => n === 1 && response.writeHead(429).end('{"error":{"code":"rate_limited","message":"no"}}'), { giveUp: 1000 });
  await assert.rejects(other.publish(id, [1]), { code: "rate_limited", outcomeUnknown: true });
  const keyless = new Client({ url: server.url, giveUp: 200, key: () => Promise.reject(new Error("offline")) });
  await assert.rejects(keyless.publish(id, [1]), { message: "cannot get a key: offline", outcomeUnknown: false });
});

test("a key function that hangs is called again, and a key that its first call returns late is still used", async () => {
  const stream = await client.createStream({ name: "x" });
  let asked = 0;
  const stuck = new Client({ url: server.url, timeout: 100, key: () => (++asked === 1 ? new Promise(() => {}) : key) });
  assert.equal((await stuck.publish(stream, [1])).seq, 1);
  const late = deferred();
  asked = 0;
  const slow = new Client({ url: server.url, timeout: 100, key: () => (++asked === 1 ? late.promise : (late.resolve(key), new Promise(() => {}))) });
  assert.equal((await slow.publish(stream, [2])).seq, 2);
});

test("a retry waits for retry-after", async (t) => {
  const times = [];
  const { client: other } = await otherServer(t, (response, n) => {
    times.push(performance.now());
    if (n === 1) response.writeHead(429, { "retry-after": "1" }).end('{"error":{"code":"rate_limited","message":"slow down"}}');
    else response.writeHead(200, about).end(JSON.stringify({ cursor: 7, updated_at: "2026-11-15T00:00:00.000Z" }));
  });
  assert.equal((await other.cursor(id)).cursor, 7);
  assert.ok(times[1] - times[0] >= 990, `after ${times[1] - times[0]} ms`);
});

test("responses that are not from Weir are retried, and never taken for success", async (t) => {
  const portal = (r) => r.end('{"status":"ok"}');
  for (const [answer, want] of [
    [(r) => r.writeHead(404).end("<h1>nginx"), /not from Weir: status 404/],
    [(r) => r.writeHead(404).end('{"error":{"code":"404","message":"not found"}}'), /not from Weir: status 404/],
    [(r) => r.writeHead(530).end('{"error":"530"}'), /not from Weir: status 530/],
    [(r) => r.writeHead(307, { location: "https://elsewhere.test/" }).end(), /redirected to https:\/\/elsewhere.test\//],
    [(r) => r.end("<h1>nginx"), /not from Weir/],
    [portal, /not from Weir/],
  ]) {
    const calls = [
      (other) => other.stream(id),
      (other) => other.createStream({ name: "x" }),
      (other) => other.deleteStream(id),
      (other) => other.cursor(id),
      (other) => other.batch(id, 1),
      (other) => other.publish(id, [1]),
      (other) => other.publishAt(id, 1, [1]),
      (other) => other.publisher(id),
      (other) => other.streams().next(),
    ];
    const check = async (call) => {
      const { client: other, requests } = await otherServer(t, answer, { giveUp: 3000 });
      await assert.rejects(call(other), { name: "ConnectionError", message: want });
      assert.ok(requests.length > 1, `${call}: ${requests.length} requests`);
    };
    await Promise.all(calls.map(check));
  }
});

test("after giveUp, the error is that of the attempt before the one that giveUp cut short", async (t) => {
  const { client: other } = await otherServer(t, (response, n) => n === 1 && response.writeHead(530).end(), { giveUp: 1500 });
  await assert.rejects(other.cursor(id), { name: "ConnectionError", message: /not from Weir: status 530/ });
});

test("a slow upload is not taken for a dead connection", async (t) => {
  const faults = await Faults.start(t, { Backend: server.address, HTTP: true });
  const stream = await client.createStream({ name: "x" });
  await faults.do({ set: { rate: 40_000 } });
  let requests = 0;
  const counted = (url, init) => (requests++, fetch(url, init));
  const far = new Client({ url: `http://${faults.address}`, key, timeout: 2000, fetch: counted });
  assert.equal((await far.publish(stream, ["x".repeat(200_000)])).seq, 1); // takes five seconds
  assert.equal(requests, 1);
});

test("a signal aborts a call whose key was refused, while the key function hangs for another call", { timeout: 60_000 }, async (t) => {
  const abort = new AbortController();
  const hangs = deferred();
  let asked = 0;
  const ask = () => {
    if (++asked === 1) return "first";
    hangs.resolve();
    return new Promise(() => {});
  };
  let sent = 0;
  const refuse = async () => {
    const second = ++sent === 2;
    if (second) await hangs.promise; // until the first call has asked for another key
    const body = JSON.stringify({ error: { code: "key_revoked", message: "no" } });
    return Object.assign(new Response("", { status: 401 }), {
      text: async () => {
        if (second) setImmediate(() => abort.abort()); // once the second call waits for the key
        return body;
      },
    });
  };
  const c = new Client({ url: "http://weir.invalid", key: ask, fetch: refuse });
  const first = new AbortController();
  t.after(() => first.abort());
  c.stream(id, { signal: first.signal }).catch(() => {});
  await assert.rejects(c.stream(id, { signal: abort.signal }), { name: "AbortError" });
  assert.equal(asked, 2);
});

test("a signal aborts a call while the key function hangs", async () => {
  const stuck = new Client({ url: server.url, key: () => new Promise(() => {}), giveUp: 100 });
  await assert.rejects(stuck.stream(id), { name: "ConnectionError" });
  await assert.rejects(stuck.stream(id, { signal: AbortSignal.abort() }), { name: "AbortError" });
});

test("a signal aborts a call", async (t) => {
  const asked = deferred();
  const { client: other } = await otherServer(t, () => asked.resolve());
  const controller = new AbortController();
  const call = other.stream(id, { signal: controller.signal });
  await asked.promise;
  controller.abort(new Error("enough"));
  await assert.rejects(call, { message: "enough" });
  await assert.rejects(other.stream(id, { signal: controller.signal }), { message: "enough" });
  await assert.rejects(other.stream(id, { signal: AbortSignal.abort() }), { name: "AbortError" });
});

test("a signal aborts the wait between two attempts", async (t) => {
  const controller = new AbortController();
  const { client: other } = await otherServer(t, (response) => {
    response.writeHead(503, { "retry-after": "10" }).end('{"error":{"code":"overloaded","message":"full"}}');
    response.on("close", () => setImmediate(() => controller.abort()));
  });
  await assert.rejects(other.stream(id, { signal: controller.signal }), { name: "AbortError" });
});

test("an attempt ends when nothing arrives, and the call when giveUp has passed", async (t) => {
  const answer = (response, n) => {
    if (n === 2) response.writeHead(200, { "content-length": "100" }).write("{"); // the rest never arrives
    if (n > 2) response.writeHead(200, about).end(JSON.stringify({ cursor: 3 }));
  };
  const { client: other, requests } = await otherServer(t, answer, { timeout: 200 });
  assert.equal((await other.cursor(id)).cursor, 3);
  assert.ok(requests.length > 2);
  const never = await otherServer(t, () => {}, { giveUp: 2000 });
  await assert.rejects(never.client.cursor(id), { name: "ConnectionError", message: /no response within \d+ ms/ });
  assert.equal(never.requests.length, 1);
});

test("a response may take longer than the timeout while it makes progress", async (t) => {
  const { client: other, requests } = await otherServer(t, async (response) => {
    response.writeHead(200, { ...about, "content-type": "application/octet-stream" });
    for (let n = 0; n < 10; n++) {
      response.write(Buffer.from([n]));
      await new Promise((resolve) => setTimeout(resolve, 300));
    }
    response.end();
  }, { timeout: 2000 });
  assert.deepEqual((await other.batch(id, 1)).data, new Uint8Array(numbers(10, 0)));
  assert.equal(requests.length, 1);
});
