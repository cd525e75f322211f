import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const key = "svc_live_00112233445566778899aabbccddeeff";

/** Returns a port that is free at this moment. */
export async function freePort() {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address();
  probe.close();
  await once(probe, "close");
  return port;
}

/** Starts a server whose project "open" needs no key under /ds, and waits until it is ready. */
export async function start(data, port) {
  const args = ["serve", "--data", data, "--http", `127.0.0.1:${port}`, "--https", "off", "--metrics", "off", "--demo=false"];
  args.push("--bootstrap-keys", `open:${key}`, "--ds-open", "open", "--ds-long-poll", "1s", "--rate-anonymous", "0", "--log-format", "json");
  const server = spawn(process.env.WEIR_BINARY, args, { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  await new Promise((resolve, reject) => {
    server.stderr.on("data", (text) => {
      log += text;
      if (log.includes("ready")) resolve(undefined);
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

/** Starts the server that the conformance suite uses. */
export default async function setup(project) {
  const data = mkdtempSync(join(tmpdir(), "weir-durable-"));
  const port = await freePort();
  const server = await start(data, port);
  project.provide("url", `http://127.0.0.1:${port}/ds`);
  return async () => {
    await stop(server, "SIGTERM");
    rmSync(data, { recursive: true });
  };
}
