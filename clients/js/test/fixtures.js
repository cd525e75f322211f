// Test fixtures: a real server, and a proxy that breaks connections to it.

import { execFile, execFileSync, spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { Client } from "../src/index.js";

export const key = "svc_live_a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0";

const root = fileURLToPath(new URL("../../../", import.meta.url));

/**
 * Returns a function that returns the path of a program of this repository. If no environment variable names the program, the
 * first call builds it.
 */
function program(variable, name, room) {
  return () => {
    if (!process.env[variable]) {
      const built = path.join(root, "bin", name);
      execFileSync("go", ["build", "-o", built, room], { cwd: root, stdio: "inherit" });
      process.env[variable] = built;
    }
    return process.env[variable];
  };
}

const weir = program("WEIR_BINARY", "weir-clients", "./cmd/weir");
const faultproxy = program("WEIR_FAULTPROXY", "weir-faultproxy", "./internal/faultnet/faultproxy");

const children = new Set();
process.on("exit", () => children.forEach((child) => child.kill("SIGKILL")));
process.once("SIGTERM", () => process.exit(1)); // sent by the test runner after a timeout

/** Starts a program, and kills it when this process exits. */
export function start(...args) {
  const child = spawn(...args);
  children.add(child);
  child.once("exit", () => children.delete(child));
  return child;
}

/** A running `weir serve` with its own data directory. After the test, it is stopped, and the directory is removed. */
export class Server {
  /** @param {import("node:test").TestContext} t */
  static start(t, ...flags) {
    return Server.on(undefined, t, ...flags);
  }

  /**
   * Starts a server. If a small disk is given, the server keeps its data there.
   *
   * @param {Disk | undefined} disk
   * @param {import("node:test").TestContext} t
   */
  static async on(disk, t, ...flags) {
    const server = new Server();
    server.versions = {};
    const own = await mkdtemp(path.join(tmpdir(), "weir-js-"));
    server.disk = disk;
    server.data = disk?.data ?? path.join(own, "data");
    server.config = path.join(own, "weir.toml");
    server.flags = ["--config", server.config, ...flags];
    await writeFile(server.config, "");
    t.after(async () => {
      await server.kill("SIGTERM");
      await disk?.unmount();
      await rm(own, { recursive: true, force: true });
    });
    await server.serve("127.0.0.1:0");
    return server;
  }

  /** Makes the server read a configuration file with this text. */
  async configure(text) {
    await writeFile(this.config, text);
    await this.starting; // SIGHUP would end a server that does not handle signals yet
    this.process.kill("SIGHUP");
  }

  /** Starts the server again at the same address. */
  again() {
    return this.serve(this.address);
  }

  /** Starts a server that also serves HTTPS. `versions` counts its requests by HTTP version. */
  static secure(t, ...flags) {
    return Server.start(t, ...Server.secureFlags, ...flags);
  }

  static secureFlags = ["--https", "127.0.0.1:0", "--log-level", "debug"];

  serve(address) {
    return (this.starting = this.launch(address));
  }

  async launch(address) {
    const args = ["serve", "--data", this.data, "--http", address, "--https", "off", "--metrics", "off", "--log-format", "json",
      "--demo=false", "--bootstrap-keys", `a:${key}`, ...this.flags];
    this.process = start(weir(), args, { stdio: ["ignore", "ignore", "pipe"] });
    this.exited = new Promise((resolve) => this.process.once("exit", resolve));
    const log = [];
    const lines = createInterface({ input: this.process.stderr });
    const ready = new Promise((resolve) => {
      lines.on("line", (line) => {
        if (log.length < 1000) log.push(line);
        if (line.includes('"msg":"ready"')) resolve(JSON.parse(line));
        if (line.includes('"msg":"request"')) {
          const { protocol } = JSON.parse(line);
          this.versions[protocol] = (this.versions[protocol] ?? 0) + 1;
        }
      });
      lines.on("close", () => resolve(undefined));
    });
    const at = await ready;
    if (!at) throw new Error(`weir serve did not start:\n${log.join("\n")}`);
    this.url = at.http;
    this.secureURL = at.https;
    this.address = new URL(this.url).host;
  }

  async kill(signal = "SIGKILL") {
    this.process.kill(signal);
    await this.exited;
  }

  /** Returns the certificate authority of the server. */
  authority() {
    return readFile(path.join(this.data, "tls", "ca.pem"), "utf8");
  }

  /** Creates a key, for example one with fewer permissions. */
  async newKey(...flags) {
    const made = await this.run("key", "create", "--json", "--project", "a", "--kind", "live", ...flags);
    const { id, secret, key } = JSON.parse(made);
    return { id, key: secret ?? key };
  }

  /** Runs an operator command, and returns its output. */
  async run(...args) {
    return (await promisify(execFile)(weir(), [...args, "--data", this.data])).stdout;
  }
}

/** The fault proxy that the tests of all clients use, in a process of its own. internal/faultnet describes it. */
export class Faults {
  /**
   * @param {import("node:test").TestContext} t
   * @param {{Backend: string, HTTP?: boolean}} options
   */
  static async start(t, options) {
    const faults = await Faults.process(t);
    faults.address = (await faults.do({ start: options })).address;
    return faults;
  }

  /** Starts the process, still without a proxy. */
  static async process(t) {
    const faults = new Faults();
    // The child is not killed when this process exits: it ends when its input ends, and then unmounts its disk.
    const child = spawn(faultproxy(), [], { stdio: ["pipe", "pipe", "inherit"] });
    const exited = new Promise((resolve) => child.once("exit", resolve));
    faults.end = () => (child.stdin.end(), exited);
    t?.after(faults.end);
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    let last = Promise.resolve();
    /** Sends a command to the proxy, after the earlier commands, and returns the answer. */
    faults.do = (command) =>
      (last = last.then(async () => {
        child.stdin.write(`${JSON.stringify(command)}\n`);
        const { error, ...answer } = JSON.parse((await lines.next()).value);
        if (error) throw new Error(error);
        return answer;
      }));
    return faults;
  }
}

/** A small disk that can be filled up, so that a server with its data on it refuses batches. */
export class Disk {
  /** Mounts a disk. Returns undefined if this process may not mount. */
  static async mount() {
    const faults = await Faults.process();
    const at = await mkdtemp(path.join(tmpdir(), "weir-js-"));
    const { mounted } = await faults.do({ disk: at });
    const end = async () => {
      await faults.end(); // unmounts the disk
      await rm(at, { recursive: true });
    };
    if (!mounted) return void (await end());
    const disk = new Disk();
    disk.data = path.join(at, "data");
    disk.unmount = end;
    /** Fills the disk, or frees it again. */
    disk.fill = (full) => faults.do({ fill: full });
    return disk;
  }
}

/**
 * A proxy that breaks connections. The fate of a connection says how: it is cut after `up` bytes to the server or `down`
 * bytes from it. With `swallow`, the proxy drops that many further bytes from the server before it cuts the connection, so
 * that requests arrive but their responses are lost. With `stall`, it forwards nothing after `down` bytes, and leaves the
 * connection open.
 */
export class Proxy {
  /**
   * @param {import("node:test").TestContext} t
   * @param {string} to the address of the server
   * @param {(n: number) => object} fate returns the fate of the n-th connection, counted from 1
   */
  static async start(t, to, fate = () => ({})) {
    const proxy = new Proxy();
    proxy.sockets = new Set();
    proxy.count = 0;
    proxy.server = net.createServer((client) => {
      const server = net.connect({ host: new URL(to).hostname, port: new URL(to).port });
      carry(client, server, proxy.refusing ? { up: 1 } : fate(++proxy.count));
      for (const socket of [client, server]) {
        proxy.sockets.add(socket);
        socket.on("close", () => proxy.sockets.delete(socket));
      }
    });
    await new Promise((resolve) => proxy.server.listen(0, "127.0.0.1", resolve));
    proxy.url = `http://127.0.0.1:${proxy.server.address().port}`;
    t.after(() => {
      proxy.server.close();
      proxy.cut();
    });
    return proxy;
  }

  /** Cuts all connections. */
  cut() {
    for (const socket of this.sockets) socket.destroy();
  }
}

function carry(client, server, { up = Infinity, down = Infinity, swallow = 0, stall = false }) {
  const end = () => {
    client.destroy();
    server.destroy();
  };
  for (const socket of [client, server]) {
    socket.setNoDelay(true);
    socket.on("error", end);
    socket.on("close", end);
  }
  client.on("data", (data) => {
    const some = data.subarray(0, up);
    up -= some.length;
    server.write(some, () => up <= 0 && end());
  });
  server.on("data", (data) => {
    const some = data.subarray(0, down);
    down -= some.length;
    if (some.length > 0) client.write(some);
    if (down > 0 || stall) return;
    swallow -= data.length - some.length;
    if (swallow <= 0) setImmediate(end); // after the pending write
  });
}

/** Returns a promise with its resolve and reject functions. */
export function deferred() {
  let resolve, reject;
  const promise = new Promise((...handles) => ([resolve, reject] = handles));
  return { promise, resolve, reject };
}

/** Returns the batches of a subscription, until they hold `count` events. */
export async function take(subscription, count) {
  const batches = [];
  let seen = 0;
  for await (const batch of subscription) {
    batches.push(batch);
    if ((seen += batch.events.length) >= count) break;
  }
  return batches;
}

export const numbers = (n, from = 1) => Array.from({ length: n }, (_, i) => from + i);

/** Returns a client that passes every publish request to `handler`, with its sequence, a function that sends it, and its signal. */
function intercepted(server, handler) {
  const through = (url, init) => {
    const seq = init.method === "POST" ? /\/(\d+|publish)$/.exec(url)?.[1] : undefined;
    return seq === undefined ? fetch(url, init) : handler(seq, () => fetch(url, init), init.signal);
  };
  return new Client({ url: server.url, key, fetch: through });
}

/** Starts a server for all tests of a file, and returns it with a client and helper functions. */
export async function service(after) {
  const server = await Server.start({ after });
  const client = new Client({ url: server.url, key });
  return {
    server,
    client,
    newStream: (options) => client.createStream({ name: "x", ...options }),
    /** Returns the first `count` events of a stream. */
    everything: async (stream, count) => (await take(client.subscribe(stream, { cursor: "oldest" }), count)).flatMap((batch) => batch.events),
    intercepted: (handler) => intercepted(server, handler),
  };
}

/** Lets a publisher store numbers one at a time. After each response, the publisher may keep one more batch in flight. */
export async function learn(publisher, count) {
  for (const n of numbers(count)) {
    await publisher.add(n);
    await publisher.flush();
  }
}

/** Returns a response that never arrives. */
export const hanging = (signal) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));

/**
 * Returns a client of a simulated service. For each request, `answer` returns the bytes of the response, in one or several
 * chunks, and what happens after these bytes: the response ends (`end`), breaks off (`cut`), or hangs (`hang`).
 */
export function scripted(answer) {
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

/** The parts of a simulated service. */
export const id = "a".repeat(22);
export const batch = (seq) => `id: ${seq}\nevent: batch\ndata: {"seq":${seq},"ts":"2026-11-15T00:00:00.000Z","events":["ä${seq}"]}\n\n`;
export const stream = { "content-type": "text/event-stream" };
