// Random faults between the client and a server with default settings. WEIR_SCHEDULES is the number of schedules for each
// protocol, 1 by default. WEIR_SEED repeats the schedules of a failed run. If WEIR_PROTOCOL is set, only the tests run whose
// names contain it.

import assert from "node:assert/strict";
import { after, test } from "node:test";

import { Client } from "../src/index.js";
import { publishAndSubscribe } from "./faults.js";
import { Disk, Faults, Server, key, numbers } from "./fixtures.js";
import { browser, openPage } from "./pages.js";

// Runs the same schedule in a page. The page does not load the client from the server under test, which may be dead at that
// moment.
const page = `
  const { Client } = await import("/client.js");
  ${publishAndSubscribe}
  return publishAndSubscribe(Client, settings.settings, settings.work);
`;

const count = Number(process.env.WEIR_SCHEDULES || 1);
const only = process.env.WEIR_PROTOCOL || "";
const seed = Number(process.env.WEIR_SEED || Math.floor(Math.random() * 2 ** 47));

const plain = await Server.on(await Disk.mount(), { after });
const secure = await Server.on(await Disk.mount(), { after }, ...Server.secureFlags);

/** Returns functions for random choices. The same seed gives the same choices. */
function chance(seed) {
  let state = seed % 2147483647 || 1;
  const next = () => (state = (state * 48271) % 2147483647) / 2147483647;
  for (let n = 0; n < 5; n++) next(); // skip the first numbers, which are similar for similar seeds
  return { less: (than) => next() < than, choice: (list) => list[Math.floor(next() * list.length)] };
}

/** Fills the disk of a server for a while, so that the server refuses batches. */
async function fillDisk(server, near, hold) {
  const stream = await near.createStream({ name: "fill", mode: "raw" });
  await server.disk.fill(true);
  const send = () =>
    fetch(`${server.url}/v1/streams/${stream.id}/publish`, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/octet-stream" },
      body: new Uint8Array(4096),
    }).then(
      async (response) => (await response.text(), response.status),
      () => 0, // the server was killed
    );
  let status = 202; // a full disk still stores some batches, because the journal has space left in its own files
  for (let n = 0; n < 1000 && status === 202; n++) status = await send();
  await new Promise((resolve) => setTimeout(resolve, hold));
  await server.disk.fill(false);
  await near.deleteStream(stream);
  return status === 503;
}

/**
 * Lowers the rate limit of the key for a while, to a little more than what the key has used. Limited clients wait for the
 * end of the rate limit's window, so this function does nothing unless the window ends soon.
 */
async function limitRate(server, more, hold) {
  const answer = await fetch(`${server.url}/v1/streams`, { headers: { authorization: `Bearer ${key}` } }).catch(() => undefined);
  if (!answer) return false; // the server was killed
  await answer.text();
  const [limit, remaining, reset] = ["limit", "remaining", "reset"].map((name) => Number(answer.headers.get(`x-ratelimit-${name}`)));
  if (reset - Date.now() / 1000 > 15) return false;
  await server.configure(`rate-live = ${limit - remaining + more}\n`);
  await new Promise((resolve) => setTimeout(resolve, hold));
  await server.configure("");
  return true;
}

const backend = (server) => (server === secure ? new URL(server.secureURL).host : server.address);

/**
 * Runs one schedule, and checks that every event is stored once and in order, delivered once and in order, and that every
 * acknowledgement is true.
 *
 * @param {(work: object) => Promise<object>} run publishes and subscribes through the proxy
 */
async function schedule(server, faults, seed, count, run) {
  const { less, choice } = chance(seed);
  const near = new Client({ url: server.url, key, giveUp: 120_000 });
  const stream = await near.createStream({ name: "faults" });
  const batchEvents = choice([1, 10, 1000]);
  const events = batchEvents === 1 ? 600 : 1500;
  const work = { stream: stream.id, events, batchEvents, inFlight: choice([1, 4, 16]), size: choice([1, 200, 5000]) };
  // A kill begins a new window of the rate limit. So after 16 schedules with kills come 16 without, in which windows can end.
  const [kill, full, limited] = [less(0.9) && Math.floor(seed / 16) % 2 === 0, less(0.25), less(0.5)];
  const [more, hold] = [choice([1, 20, 100]), choice([0, 500, 2000])];
  const shortages = Promise.all([
    full && server.disk && fillDisk(server, near, hold).then((refused) => (count.full += refused)),
    limited && limitRate(server, more, hold).then((lowered) => (count.limited += lowered)),
  ]);
  const playing = (async () => {
    await faults.do({ play: { seed, steps: 4 } });
    if (kill) {
      count.killed++;
      await server.kill();
      await server.again();
      await faults.do({ backend: backend(server) });
    }
    await faults.do({ play: { seed: seed + 2 ** 32, steps: 2 } });
  })();
  const { seen, numbers: delivered, acks } = await run(work);
  await playing;
  await shortages;
  assert.deepEqual(acks, numbers(acks.length));
  assert.deepEqual(seen, acks);
  assert.deepEqual(delivered, numbers(events, 0));
  assert.equal((await near.cursor(stream)).cursor, acks.length);
  await near.deleteStream(stream); // frees space, because the disk is small
}

const timeout = 240_000 + count * 60_000;

// The tests in Node do not use HTTP/2: the fetch of Node speaks HTTP/1.1 only, and undici with allowH2 does not survive
// these faults. After a reset, undici 6.29 neither opens a connection nor sends a byte, while each request waits until the
// client aborts it.

for (const [where, server] of [["Node, HTTP/1.1", plain], ["a page, HTTP/1.1", plain], ["a page, HTTP/2", secure]]) {
  const inPage = where.startsWith("a page");
  const skip = (inPage && !browser && "Chromium is not installed: tools/browser can install it") || !where.includes(only);
  test(`random faults: ${where}`, { skip, timeout }, async (t) => {
    const tally = { killed: 0, full: 0, limited: 0 };
    t.after(() => t.diagnostic(`${count} schedules from WEIR_SEED=${seed}: server killed in ${tally.killed}, disk full in ${tally.full}, rate limit lowered in ${tally.limited}`));
    for (let n = 0; n < count; n++) {
      await t.test(`WEIR_SEED=${seed + n} WEIR_SCHEDULES=1`, { timeout }, async (t) => {
        const safe = server === secure;
        // TLS passes through the proxy, so the proxy cannot answer requests itself.
        const faults = await Faults.start(t, { Backend: backend(server), HTTP: !safe });
        const settings = { url: `${safe ? "https" : "http"}://${faults.address}`, key };
        const flags = safe ? ["--disable-quic", "--ignore-certificate-errors"] : [];
        await schedule(server, faults, seed + n, tally, (work) =>
          inPage ? openPage(t, page, { settings, work }, { flags }) : publishAndSubscribe(Client, settings, work),
        );
      });
    }
  });
}

test("the pages used HTTP/2", { skip: !browser || !"a page, HTTP/2".includes(only) }, async () => {
  await secure.kill("SIGTERM"); // after that its log is complete
  assert.ok(secure.versions["HTTP/2.0"] > 0);
});
