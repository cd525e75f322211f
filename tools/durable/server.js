import { spawn } from "node:child_process";
import { randomBytes, randomInt } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const key = "svc_live_00112233445566778899aabbccddeeff";

/**
 * Returns ports that are free at this moment. They are outside the range from which the system chooses ports: otherwise
 * another program could get the port of a server while the server restarts.
 */
export async function freePorts(count) {
  const ports = new Set();
  while (ports.size < count) {
    const port = randomInt(10_000, 30_000);
    const probe = createServer().listen(port, "127.0.0.1");
    if (await once(probe, "listening").then(() => true, () => false)) {
      ports.add(port);
      probe.close();
      await once(probe, "close");
    }
  }
  return [...ports];
}

/** Starts a server whose project "open" needs no key under /ds, and waits until it is ready. */
export async function start(data, port, ...flags) {
  const args = ["serve", "--data", data, "--http", `127.0.0.1:${port}`, "--https", "off", "--metrics", "off", "--demo=false"];
  args.push("--bootstrap-keys", `open:${key}`, "--ds-open", "open", "--ds-long-poll", "1s", "--rate-anonymous", "0", "--log-format", "json", ...flags);
  const server = spawn(process.env.WEIR_BINARY, args, { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  await new Promise((resolve, reject) => {
    server.stderr.on("data", (text) => {
      log += text;
      if (log.includes('"msg":"ready"')) resolve(undefined);
    });
    server.on("exit", (code) => reject(new Error(`the server ended with ${code}: ${log}`)));
  });
  return server;
}

/** Ends a server and waits for its end. */
export async function stop(server, signal) {
  const ended = once(server, "exit");
  server.kill(signal);
  await ended;
}

/** Returns a new directory and a function that removes it. */
export function directory() {
  const path = mkdtempSync(join(tmpdir(), "weir-durable-"));
  return { path, remove: () => rmSync(path, { recursive: true }) };
}

/** Starts a server on the journal. Returns its address and a function that ends it. */
export async function startJournal() {
  const { path, remove } = directory();
  const [port] = await freePorts(1);
  const server = await start(path, port);
  return { urls: [`http://127.0.0.1:${port}`], end: () => stop(server, "SIGTERM").then(remove) };
}

/** Starts three nodes of a cluster. Returns their addresses and a function that ends them. */
export async function startCluster() {
  const { path, remove } = directory();
  const ports = await freePorts(6);
  const [http, peers] = [ports.slice(0, 3), ports.slice(3).map((port) => `127.0.0.1:${port}`)];
  const secret = join(path, "cluster.secret");
  writeFileSync(secret, randomBytes(32), { mode: 0o600 });
  const shared = ["--engine", "nats", "--cluster-peers", peers.join(","), "--cluster-secret", secret];
  const nodes = await Promise.all(http.map((port, i) => start(join(path, `node${i}`), port, ...shared, "--cluster-listen", peers[i])));
  return {
    urls: http.map((port) => `http://127.0.0.1:${port}`),
    end: () => Promise.all(nodes.map((node) => stop(node, "SIGTERM"))).then(remove),
  };
}
