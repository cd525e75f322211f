// Random faults between the client and a server with default settings. WEIR_SCHEDULES is the number of schedules for each
// protocol, 1 by default. WEIR_SEED repeats those of a failed run.

import assert from "node:assert/strict";
import { after, test } from "node:test";

import { Client } from "../src/index.js";
import { publishAndSubscribe } from "./faults.js";
import { Faults, Server, key, numbers } from "./fixtures.js";
import { browser, openPage } from "./pages.js";

// Runs the same in a page. The page does not load the client from the server under test, which may be dead at that moment.
const page = `
  const { Client } = await import("/client.js");
  ${publishAndSubscribe}
  return publishAndSubscribe(Client, settings.settings, settings.work);
`;

const count = Number(process.env.WEIR_SCHEDULES || 1);
const seed = Number(process.env.WEIR_SEED || Math.floor(Math.random() * 2 ** 47));

const plain = await Server.start({ after });
const secure = await Server.secure({ after });

/** Repeats random choices. */
function chance(seed) {
  let state = seed % 2147483647 || 1;
  const next = () => (state = (state * 48271) % 2147483647) / 2147483647;
  for (let n = 0; n < 5; n++) next(); // the first numbers of similar seeds are similar
  return { less: (than) => next() < than, choice: (list) => list[Math.floor(next() * list.length)] };
}

const backend = (server) => (server === secure ? new URL(server.secureURL).host : server.address);

/**
 * Runs one schedule, and checks that every event is stored once and in order, delivered once and in order, and that every
 * acknowledgement is true.
 *
 * @param {(work: object) => Promise<object>} run publishes and subscribes through the proxy
 */
async function schedule(server, faults, seed, run) {
  const { less, choice } = chance(seed);
  const near = new Client({ url: server.url, key });
  const stream = await near.createStream({ name: "faults" });
  const events = 1500;
  const work = { stream: stream.id, events, batchEvents: choice([1, 10, 1000]), inFlight: choice([1, 4, 16]), size: choice([1, 200, 5000]), refuse: choice([50, 400, 1e9]) };
  const kill = less(0.5);
  const playing = (async () => {
    await faults.do({ play: { seed, steps: 4 } });
    if (kill) {
      await server.kill();
      await server.again();
      await faults.do({ backend: backend(server) });
    }
    await faults.do({ play: { seed: seed + 2 ** 32, steps: 2 } });
  })();
  const { seen, numbers: delivered, acks } = await run(work);
  await playing;
  assert.deepEqual(acks, numbers(acks.length));
  assert.deepEqual(seen, acks);
  assert.deepEqual(delivered, numbers(events, 0));
  assert.equal((await near.cursor(stream)).cursor, acks.length);
}

const timeout = 240_000 + count * 60_000;

for (const [where, server] of [["Node, HTTP/1.1", plain], ["a page, HTTP/1.1", plain], ["a page, HTTP/2", secure]]) {
  const inPage = where.startsWith("a page");
  const skip = inPage && !browser && "Chromium is not installed: tools/browser can install it";
  test(`random faults: ${where}`, { skip, timeout }, async (t) => {
    for (let n = 0; n < count; n++) {
      await t.test(`WEIR_SEED=${seed + n} WEIR_SCHEDULES=1`, { timeout }, async (t) => {
        const safe = server === secure;
        // TLS passes through the proxy, so the proxy cannot answer requests itself.
        const faults = await Faults.start(t, { Backend: backend(server), HTTP: !safe });
        const settings = { url: `${safe ? "https" : "http"}://${faults.address}`, key };
        const flags = safe ? ["--disable-quic", "--ignore-certificate-errors"] : [];
        await schedule(server, faults, seed + n, (work) =>
          inPage ? openPage(t, page, { settings, work }, { flags }) : publishAndSubscribe(Client, settings, work),
        );
      });
    }
  });
}

test("the pages used HTTP/2", { skip: !browser }, async () => {
  await secure.kill("SIGTERM"); // after that its log is complete
  assert.ok(secure.versions["HTTP/2.0"] > 0);
});
