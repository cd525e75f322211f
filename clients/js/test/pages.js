// Runs scripts in a page of a headless browser.

import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import tls from "node:tls";

import { deferred, start } from "./fixtures.js";

export const browser = ["chromium", "chromium-browser", "google-chrome"].find((name) => spawnSync(name, ["--version"]).status === 0);

/** Returns the flag with which the browser trusts the certificate of a server. */
export function trust(server) {
  const { hostname, port } = new URL(server.secureURL);
  return new Promise((resolve, reject) => {
    const socket = tls.connect({ host: hostname, port: Number(port), rejectUnauthorized: false }, () => {
      const { publicKey } = socket.getPeerX509Certificate();
      const pin = createHash("sha256").update(publicKey.export({ type: "spki", format: "der" })).digest("base64");
      resolve(`--ignore-certificate-errors-spki-list=${pin}`);
      socket.destroy();
    });
    socket.once("error", reject);
  });
}

const bundle = new URL("../dist/client.js", import.meta.url);

const page = (script, settings) => `<!doctype html><meta charset="utf-8"><title>x</title><script type="module">
const settings = ${JSON.stringify(settings)};
const report = (what) => fetch("/report", { method: "POST", body: JSON.stringify(what) });
await fetch("/begun");
try {
  await report(await (async () => {${script}})());
} catch (error) {
  await report({ failed: String(error?.stack ?? error) + String(error?.cause ?? "") });
}
</script>`;

/**
 * Runs a script in a page, and returns what the script returns. The script is the body of an async function and can use
 * `settings`, and import the client as `/client.js`. If it fetches `/cut`, this process calls the function `cut`.
 *
 * @param {import("node:test").TestContext} t
 */
export async function openPage(t, script, settings, { cut = () => {}, flags = [] } = {}) {
  const reported = deferred();
  let begun = false;
  const pages = http.createServer(async (request, response) => {
    if (request.url === "/report") {
      let text = "";
      for await (const piece of request) text += piece;
      reported.resolve(JSON.parse(text));
    }
    if (request.url === "/begun") begun = true;
    if (request.url === "/cut") await cut();
    if (request.url === "/client.js") response.setHeader("content-type", "text/javascript").end(await readFile(bundle));
    else response.setHeader("content-type", "text/html").end(request.url === "/" ? page(script, settings) : "");
  });
  await new Promise((resolve) => pages.listen(0, "127.0.0.1", resolve));
  const profile = await mkdtemp(path.join(tmpdir(), "weir-js-"));
  const args = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-dev-shm-usage", "--no-proxy-server", `--user-data-dir=${profile}`, ...flags, `http://127.0.0.1:${pages.address().port}`];
  let chromium, exited, over = false, launches = 0;
  const launch = () => {
    launches++;
    chromium = start(browser, args, { stdio: ["ignore", "ignore", "pipe"] });
    let log = "";
    chromium.stderr.on("data", (text) => (log += text));
    exited = new Promise((resolve) => chromium.once("exit", resolve));
    // On a busy machine, the browser sometimes starts and never loads the page.
    const late = setTimeout(() => begun || chromium.kill("SIGKILL"), 60_000);
    exited.then(() => {
      clearTimeout(late);
      if (!begun && !over && launches < 5) launch();
      else reported.reject(new Error(`the browser exited:\n${log}`));
    });
  };
  launch();
  t.after(async () => {
    over = true;
    pages.close();
    pages.closeAllConnections();
    chromium.kill("SIGTERM"); // SIGTERM, so that the browser can end its child processes
    const stuck = setTimeout(() => chromium.kill("SIGKILL"), 20_000);
    await exited;
    clearTimeout(stuck);
    await rm(profile, { recursive: true, force: true, maxRetries: 5 });
  });
  const seen = await reported.promise;
  if (seen.failed) throw new Error(`the page failed: ${seen.failed}`);
  return seen;
}
