import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";

import { chromium } from "playwright-core";

import { tokensOf } from "../script.js";

const executablePath = ["chromium", "chromium-browser", "google-chrome"].map((name) => spawnSync("which", [name]).stdout.toString().trim()).find(Boolean);
const skip = !executablePath && "Chromium is not installed: tools/browser can install it";
const key = "svc_live_00112233445566778899aabbccddeeff";
const home = new URL("..", import.meta.url);

/** A program that can be killed and started again. */
class Program {
  constructor(ready, command, args, env) {
    Object.assign(this, { ready, command, args, env });
  }

  async start() {
    this.process = spawn(this.command, this.args, { cwd: home, env: { ...process.env, ...this.env }, stdio: ["ignore", "pipe", "pipe"] });
    let log = "";
    await new Promise((resolve, reject) => {
      for (const out of [this.process.stdout, this.process.stderr]) {
        out.on("data", (text) => {
          log += text;
          if (log.includes(this.ready)) resolve(undefined);
        });
      }
      this.process.once("exit", () => reject(new Error(`${this.command} ended: ${log}`)));
    });
  }

  async end(signal) {
    if (!this.process || this.process.exitCode !== null || this.process.signalCode !== null) return;
    const exited = once(this.process, "exit");
    this.process.kill(signal);
    await exited;
  }

  async crash() {
    await this.end("SIGKILL");
    await this.start();
  }
}

/** Returns a port that is free, outside the range from which the system chooses ports. */
async function freePort() {
  for (;;) {
    const port = randomInt(10_000, 30_000);
    const probe = createServer().listen(port, "127.0.0.1");
    if (!(await once(probe, "listening").then(() => true, () => false))) continue;
    probe.close();
    await once(probe, "close");
    return port;
  }
}

let data, weir, backend, browser, base;

before(async () => {
  if (skip) return;
  data = await mkdtemp(path.join(tmpdir(), "weir-chat-"));
  const [port, own] = [await freePort(), await freePort()];
  base = `http://127.0.0.1:${own}`;
  const args = ["serve", "--data", path.join(data, "weir"), "--http", `127.0.0.1:${port}`, "--https", "off", "--metrics", "off", "--demo=false", "--bootstrap-keys", `chat:${key}`, "--log-format", "json"];
  weir = new Program('"msg":"ready"', process.env.WEIR_BINARY, args);
  backend = new Program(base, process.execPath, ["server.js"], { PORT: String(own), TOKEN_MS: "25", WEIR_URL: `http://127.0.0.1:${port}`, WEIR_KEY: key });
  await weir.start();
  await backend.start();
  browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server"] });
});

after(async () => {
  await browser?.close();
  await backend?.end("SIGKILL");
  await weir?.end("SIGTERM");
  if (data) await rm(data, { recursive: true });
});

/** Opens a tab. The tab records each text that its last answer ever had. */
async function openTab(context, url) {
  const tab = await context.newPage();
  tab.setDefaultTimeout(60_000);
  tab.on("pageerror", (error) => assert.match(String(error), /network error/)); // expected while the backend is down
  await tab.addInitScript(() => {
    window.texts = [];
    new MutationObserver(() => {
      const last = [...document.querySelectorAll("#messages p")].at(-1);
      if (last?.className === "assistant") window.texts.push(last.textContent);
    }).observe(document, { childList: true, subtree: true, characterData: true });
  });
  await tab.goto(url);
  return tab;
}

/** Waits until the last answer of a tab has at least this many tokens. */
const reached = (tab, tokens) =>
  tab.waitForFunction((count) => {
    const last = [...document.querySelectorAll("#messages p")].at(-1);
    return last?.className === "assistant" && last.textContent.split(" ").length >= count;
  }, tokens);

const messagesOf = (tab) => tab.locator("#messages p").allTextContents();

/** Checks that a tab only ever showed the beginning of an answer. */
async function showedOnly(tab, answer) {
  const texts = await tab.evaluate(() => window.texts);
  assert.ok(texts.length > 0);
  for (const text of texts.filter((text) => text.startsWith(answer.slice(0, 12)))) assert.ok(answer.startsWith(text), `the tab showed ${JSON.stringify(text)}`);
}

test("answers survive reloads, other tabs and crashes, and can be stopped from any tab", { skip }, async () => {
  const chats = ["aisdk", "tanstack"].map((toolkit) => ({ toolkit, url: `${base}/${toolkit}?chat=${toolkit}-1` }));
  const each = (step) => Promise.all(chats.map(step)); // both toolkits at the same time
  const say = async ({ first }, text) => {
    await first.getByLabel("Message").fill(text);
    await first.getByRole("button", { name: "Send" }).click();
  };

  const [one, long, short] = ["one", "a long one", "a short one"].map((prompt) => tokensOf(prompt).join(""));
  await each(async (chat) => {
    chat.context = await browser.newContext();
    chat.first = await openTab(chat.context, chat.url);
    await say(chat, "one");
    await reached(chat.first, 10);
    await chat.first.reload();
    await reached(chat.first, 25);
    chat.second = await openTab(chat.context, chat.url);
    await reached(chat.second, 35);
  });
  await weir.crash();
  await each(({ first, second }) => Promise.all([reached(first, 60), reached(second, 60)]));
  await backend.crash();
  await each(async ({ first, second }) => {
    for (const tab of [first, second]) {
      await reached(tab, tokensOf("one").length);
      assert.deepEqual(await messagesOf(tab), ["one", one]);
      await showedOnly(tab, one);
    }
  });

  await each(async (chat) => {
    const { toolkit, context, url, first, second } = chat;
    await say(chat, "a long one");
    await reached(first, 15);
    if (toolkit === "aisdk") await second.reload(); // this toolkit does not tell other tabs about new messages
    await reached(second, 20);
    const stopping = second.waitForResponse(/\/api\/stop/);
    await second.getByRole("button", { name: "Stop" }).click();
    await stopping;
    const third = await openTab(context, url);
    await third.waitForFunction(() => document.querySelectorAll("#messages p").length === 4);
    chat.stopped = (await messagesOf(third))[3];
    assert.ok(long.startsWith(chat.stopped) && chat.stopped.length < long.length, `the answer is ${chat.stopped}`);
    for (const tab of [first, second, third]) {
      await tab.waitForFunction((text) => document.querySelector("#messages p:last-child").textContent === text, chat.stopped);
      await showedOnly(tab, long);
    }
  });

  await each(async (chat) => {
    await say(chat, "a short one");
    await reached(chat.first, tokensOf("a short one").length);
    const all = ["one", one, "a long one", chat.stopped, "a short one", short];
    assert.deepEqual(await messagesOf(chat.first), all);
    await chat.first.reload();
    await chat.first.waitForFunction((count) => document.querySelectorAll("#messages p").length === count, all.length);
    assert.deepEqual(await messagesOf(chat.first), all);
    await chat.context.close();
  });
});
