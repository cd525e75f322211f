import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import tls from "node:tls";

import { Client } from "../src/index.js";
import { Proxy, Server, deferred, key, numbers, start } from "./fixtures.js";

const browser = ["chromium", "chromium-browser", "google-chrome"].find((name) => spawnSync(name, ["--version"]).status === 0);

// The page under test. It imports the client from the Weir server, which has another origin than the page, and reports what
// it saw to the server of the page.
const page = `<!doctype html><meta charset="utf-8"><title>x</title><script type="module">
const { api, far, stream, raw, key, reader } = await (await fetch("/settings")).json();
const report = (what) => fetch("/report", { method: "POST", body: JSON.stringify(what) });
try {
  const { Client, WeirError } = await import(api + "/client.js");
  const client = new Client({ url: far, key });

  const publisher = await client.publisher(stream, { batchEvents: 5 });
  for (let n = 1; n <= 200; n++) {
    await publisher.add(n);
    if (n === 60 || n === 120) await fetch("/cut");
  }
  await publisher.close();

  const events = [];
  for await (const batch of client.subscribe(stream, { cursor: 0 })) {
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
  for await (const batch of client.subscribe(raw, { cursor: 0 })) {
    bytes = [...batch.data];
    break;
  }

  const controller = new AbortController();
  let aborted;
  try {
    for await (const batch of client.subscribe(stream, { cursor: 30, signal: controller.signal })) setTimeout(() => controller.abort(), 0);
  } catch (error) {
    aborted = error.name;
  }

  let refused;
  try {
    await new Client({ url: far, key: reader }).publish(stream, ["no"]);
  } catch (error) {
    refused = { weir: error instanceof WeirError, code: error.code, status: error.status, requestId: error.requestId, docUrl: error.docUrl };
  }
  await report({ origin: location.origin, events, bytes, aborted, refused, cursor: (await client.cursor(stream)).cursor });
} catch (error) {
  await report({ failed: String(error?.stack ?? error) + String(error?.cause ?? "") });
}
</script>`;

const skip = !browser && "Chromium is not installed: tools/browser can install it";

test("a page of another origin publishes and subscribes", { skip }, async (t) => {
  const server = await Server.start(t, "--gap-grace", "60s");
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
  const reported = deferred();
  const origin = await show(t, page, settings, reported, () => proxy.cut());
  await open(t, origin, reported);
  const { refused, ...seen } = await reported.promise;
  assert.equal(seen.failed, undefined);
  assert.deepEqual(seen, { origin, events: numbers(202), bytes: [0, 255, 10, 13], aborted: "AbortError", cursor: 41 });
  assert.match(refused.requestId, /^req_/);
  assert.deepEqual({ ...refused, requestId: "" }, {
    weir: true, code: "project_forbidden", status: 403, requestId: "", docUrl: `${server.url}/docs/errors#project_forbidden`,
  });
  assert.ok(proxy.count > 6, `${proxy.count} connections`);
});

// A page that uses HTTP/3 from the first request on. The log of the server proves it.
const page3 = `<!doctype html><meta charset="utf-8"><title>x</title><script type="module">
const { secure, stream, key } = await (await fetch("/settings")).json();
const report = (what) => fetch("/report", { method: "POST", body: JSON.stringify(what) });
try {
  const { Client } = await import(secure + "/client.js");
  const client = new Client({ url: secure, key });
  const publisher = await client.publisher(stream, { batchEvents: 5 });
  for (let n = 1; n <= 200; n++) await publisher.add(n);
  await publisher.close();
  const events = [];
  for await (const batch of client.subscribe(stream, { cursor: 0 })) {
    events.push(...batch.events);
    if (events.length === 200) await client.publish(stream, [201]); // while the subscription is open
    if (events.length > 200) break;
  }
  await report({ events });
} catch (error) {
  await report({ failed: String(error?.stack ?? error) + String(error?.cause ?? "") });
}
</script>`;

test("a page publishes and subscribes over HTTP/3", { skip }, async (t) => {
  const server = await Server.secure(t);
  const made = await new Client({ url: server.url, key }).createStream({ name: "page" });
  const reported = deferred();
  const origin = await show(t, page3, { secure: server.secureURL, stream: made.id, key }, reported);
  const { hostname, port } = new URL(server.secureURL);
  const pin = await new Promise((resolve, reject) => {
    const socket = tls.connect({ host: hostname, port: Number(port), rejectUnauthorized: false }, () => {
      const { publicKey } = socket.getPeerX509Certificate();
      resolve(createHash("sha256").update(publicKey.export({ type: "spki", format: "der" })).digest("base64"));
      socket.destroy();
    });
    socket.once("error", reject);
  });
  await open(t, origin, reported, "--enable-quic", `--origin-to-force-quic-on=${hostname}:${port}`, `--ignore-certificate-errors-spki-list=${pin}`);
  const seen = await reported.promise;
  assert.deepEqual(seen, { events: numbers(201) });
  await server.kill("SIGTERM"); // after that its log is complete
  const { "HTTP/3.0": all, ...others } = server.versions;
  assert.deepEqual(others, { "HTTP/1.1": 1 }); // the request that created the stream
  assert.ok(all > 40, `${all} requests`);
});

/** Serves a page and its settings. The page reports what it saw, and can ask for its connections to be cut. Returns the origin. */
async function show(t, page, settings, reported, cut = () => {}) {
  const pages = http.createServer(async (request, response) => {
    if (request.url === "/report") {
      let text = "";
      for await (const piece of request) text += piece;
      reported.resolve(JSON.parse(text));
    }
    if (request.url === "/cut") cut();
    if (request.url === "/settings") response.end(JSON.stringify(settings));
    else response.setHeader("content-type", "text/html").end(request.url === "/" ? page : "");
  });
  await new Promise((resolve) => pages.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    pages.close();
    pages.closeAllConnections();
  });
  return `http://127.0.0.1:${pages.address().port}`;
}

/** Opens a page in a headless browser. */
async function open(t, url, reported, ...flags) {
  const profile = await mkdtemp(path.join(tmpdir(), "weir-js-"));
  const args = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-dev-shm-usage", "--no-proxy-server", `--user-data-dir=${profile}`, ...flags, url];
  const chromium = start(browser, args, { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  chromium.stderr.on("data", (text) => (log += text));
  const exited = new Promise((resolve) => chromium.once("exit", resolve));
  exited.then(() => reported.reject(new Error(`the browser exited:\n${log}`)));
  t.after(async () => {
    chromium.kill("SIGTERM"); // SIGTERM, so that it can end its child processes
    const late = setTimeout(() => chromium.kill("SIGKILL"), 20_000);
    await exited;
    clearTimeout(late);
    await rm(profile, { recursive: true, force: true, maxRetries: 5 });
  });
}
