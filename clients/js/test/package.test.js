import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import * as modules from "../src/index.js";
import { Server, key, numbers, take } from "./fixtures.js";

const run = promisify(execFile);
const here = fileURLToPath(new URL("../", import.meta.url));
const server = await Server.start({ after });

async function directory(t) {
  const dir = await mkdtemp(path.join(tmpdir(), "weir-js-"));
  t.after(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

test("the package contains exactly the needed files, and works after unpacking", async (t) => {
  const dir = await directory(t);
  const { stdout } = await run("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", dir], { cwd: here });
  const [{ filename, files }] = JSON.parse(stdout);
  const sources = await readdir(path.join(here, "src"));
  const want = ["LICENSE", "README.md", "package.json", ...sources.flatMap((name) => [`src/${name}`, `types/${name.replace(/js$/, "d.ts")}`])];
  assert.deepEqual(files.map((file) => file.path).sort(), want.sort());

  const unpacked = path.join(dir, "node_modules", "weir-client");
  await mkdir(unpacked, { recursive: true });
  await run("tar", ["-xzf", path.join(dir, filename), "--strip-components=1", "-C", unpacked]);
  const manifest = JSON.parse(await readFile(path.join(unpacked, "package.json"), "utf8"));
  assert.equal(manifest.dependencies, undefined);
  assert.deepEqual(manifest.engines, { node: ">=20" });
  await writeFile(path.join(dir, "use.mjs"), 'import * as weir from "weir-client"; console.log(Object.keys(weir).join());');
  assert.equal((await run(process.execPath, ["use.mjs"], { cwd: dir })).stdout.trim(), Object.keys(modules).join());
});

test("the server serves the same client, bundled into one module", async () => {
  const response = await fetch(`${server.url}/client.js`);
  assert.equal(response.headers.get("content-type"), "text/javascript; charset=utf-8");
  assert.equal(response.headers.get("access-control-allow-origin"), "*");
  const text = await response.text();
  const served = await import(`data:text/javascript;base64,${Buffer.from(text).toString("base64")}`);
  assert.deepEqual(Object.keys(served), Object.keys(modules));
  const client = new served.Client({ url: server.url, key });
  const stream = await client.createStream({ name: "x" });
  const publisher = await client.publisher(stream);
  for (const n of numbers(100)) await publisher.add(n);
  await publisher.close();
  const got = await take(client.subscribe(stream, { cursor: "oldest" }), 100);
  assert.deepEqual(got.flatMap((batch) => batch.events), numbers(100));
  await assert.rejects(client.stream("a".repeat(22)), (error) => error instanceof served.WeirError && error.code === "stream_not_found");
});

test("a program exits when it is done: no timer or connection keeps it alive", async (t) => {
  const dir = await directory(t);
  const program = `
    import { Client } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
    const client = new Client({ url: process.argv[2], key: process.argv[3] });
    const stream = await client.createStream({ name: "x" });
    const publisher = await client.publisher(stream);
    for (let n = 1; n <= 100; n++) await publisher.add(n);
    await publisher.close();
    for await (const batch of client.subscribe(stream, { cursor: "oldest" })) break;
    const fails = async (promise) => {
      try {
        await promise;
      } catch {
        return;
      }
      throw new Error("the promise was not rejected");
    };
    const waiting = async (c) => {
      for await (const batch of c.subscribe(stream, { signal: AbortSignal.timeout(300) })) throw new Error("unexpected batch");
    };
    await waiting(client);
    await waiting(new Client({ url: "http://127.0.0.1:1" })); // the signal ends this loop between two attempts
    const stuck = await client.publisher(stream, { linger: Infinity });
    await stuck.add("never flushed");
    await fails(stuck.close({ signal: AbortSignal.abort() }));
    const left = process.getActiveResourcesInfo().filter((name) => name === "Timeout");
    console.log("done", left.length);
  `;
  await writeFile(path.join(dir, "program.mjs"), program);
  const { stdout } = await run(process.execPath, [path.join(dir, "program.mjs"), server.url, key], { timeout: 60_000 });
  assert.equal(stdout.trim(), "done 0");
});

test("the examples in the README run unchanged", async (t) => {
  const dir = await directory(t);
  const text = await readFile(path.join(here, "README.md"), "utf8");
  const examples = [...text.matchAll(/^```js\n([^]*?)^```$/gm)].map(([, code]) => code);
  assert.ok(examples.length >= 3);
  await mkdir(path.join(dir, "node_modules"));
  const { symlink } = await import("node:fs/promises");
  await symlink(here, path.join(dir, "node_modules", "weir-client"));
  for (const [i, code] of examples.entries()) {
    const file = path.join(dir, `example${i}.mjs`);
    await writeFile(file, code);
    const env = { ...process.env, WEIR_URL: server.url, WEIR_KEY: key };
    await run(process.execPath, [file], { env, cwd: dir, timeout: 60_000 }).catch((error) => assert.fail(`example ${i + 1}:\n${code}\n${error.stderr}`));
  }
});

test("the React hook of the manual follows a stream until the component goes away", async (t) => {
  const dir = await directory(t);
  const manual = await readFile(path.join(here, "../../docs/manual/subscribing.md"), "utf8");
  const [, hook] = /^```js file=useEvents.js\n([^]*?)^```$/m.exec(manual);
  await mkdir(path.join(dir, "node_modules", "react"), { recursive: true });
  await writeFile(path.join(dir, "node_modules", "react", "package.json"), '{"type":"module","exports":"./index.js"}');
  // As much of React as the hook needs: one component that is shown once.
  await writeFile(path.join(dir, "node_modules", "react", "index.js"), `
    export const states = [], changed = { call: () => {} };
    export const useState = (first) => {
      const n = states.push(first) - 1;
      return [first, (next) => {
        states[n] = typeof next === "function" ? next(states[n]) : next;
        changed.call();
      }];
    };
    export const useEffect = (effect) => (changed.end = effect());
  `);
  await writeFile(path.join(dir, "useEvents.mjs"), hook);
  const { useEvents } = await import(path.join(dir, "useEvents.mjs"));
  const react = await import(path.join(dir, "node_modules", "react", "index.js"));
  const client = new modules.Client({ url: server.url, key });
  const stream = await client.createStream({ name: "x" });
  await client.publish(stream, [1, 2]);
  let subscription;
  const spy = { subscribe: (...args) => (subscription = client.subscribe(...args)) };
  const until = (ready) => new Promise((resolve) => (react.changed.call = () => ready() && resolve()));
  const all = until(() => react.states[0].length === 3);
  useEvents(spy, stream, 3);
  await client.publish(stream, [3]);
  await all;
  assert.deepEqual(react.states, [[1, 2, 3], undefined]);
  react.changed.end();
  while (subscription.state !== "idle") await new Promise(setImmediate);
  assert.deepEqual(react.states, [[1, 2, 3], undefined]);
});
