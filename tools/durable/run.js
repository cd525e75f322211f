// Runs the conformance suite and the tests of the protocol's client. On a cluster, where each request
// takes longer, only a part of the suite runs, unless the argument is "whole". A case that fails and is
// not listed in known-failing.txt is an error, and so is a listed case that passes.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, rmSync } from "node:fs";
import { basename } from "node:path";

const core = 332; // cases of the suite, without the optional subscriptions
const part = "^(Basic Stream Operations|HTTP Protocol|Idempotent Producer|Fork - Deletion|Stream Closure)"; // the cases that run on a cluster
const timed = /^TTL Expiration Behavior /; // cases that fail if the machine is half a second late
const whole = process.argv[2] === "whole";

/** Runs test files in a process of their own, and returns the results by file. */
async function run(name, ...args) {
  const output = `result-${name}.json`;
  rmSync(output, { force: true });
  const vitest = spawn("node_modules/.bin/vitest", ["run", "--reporter=default", "--reporter=json", `--outputFile.json=${output}`, ...args]);
  let log = "";
  for (const out of [vitest.stdout, vitest.stderr]) out.on("data", (text) => (log += text));
  await once(vitest, "close");
  console.log(log);
  return JSON.parse(readFileSync(output, "utf8")).testResults;
}

/** Repeats the failed cases of timed, up to three times. A busy machine is not late every time. */
async function repeat(name, file, results) {
  const late = results.flatMap((r) => r.assertionResults).filter((c) => c.status === "failed" && timed.test(c.fullName));
  for (let n = 0; n < 3; n++) {
    const failed = late.filter((c) => c.status === "failed").map((c) => c.fullName.replace(/[^\w ]/g, "\\$&"));
    if (!failed.length) return;
    const again = await run(`${name}-again`, file, "-t", `^(${failed.join("|")})$`);
    for (const c of again.flatMap((r) => r.assertionResults))
      if (c.status === "passed") late.find((l) => l.fullName === c.fullName).status = "passed";
  }
}

const known = readFileSync("known-failing.txt", "utf8").split("\n").filter((line) => line && !line.startsWith("#"));
const wrong = [];
const failures = new Set();
const results = await Promise.all([
  run("journal", "journal.test.js", "client.test.js"),
  run("cluster", "cluster.test.js", ...(whole ? [] : ["-t", part])),
]);
await repeat("journal", "journal.test.js", results[0]);
await repeat("cluster", "cluster.test.js", results[1]);
const least = { "journal.test.js": core, "cluster.test.js": whole ? core : 80, "client.test.js": 2 };
for (const { name, assertionResults: cases, message } of results.flat()) {
  const file = basename(name);
  const failed = cases.filter((c) => c.status === "failed").map((c) => c.fullName);
  const passed = cases.filter((c) => c.status === "passed").length;
  console.log(`${file}: ${passed} cases passed, ${failed.length} failed`);
  for (const one of failed) {
    failures.add(one);
    if (!known.includes(one)) wrong.push(`${file} fails: ${one}`);
  }
  if (message) wrong.push(`${file}: ${message}`);
  if (passed + failed.length < least[file]) wrong.push(`${file}: only ${passed + failed.length} of ${least[file]} cases ran`);
  delete least[file];
}
for (const file of Object.keys(least)) wrong.push(`${file} did not run`);
for (const one of known) if (!failures.has(one)) wrong.push(`is listed in known-failing.txt, but does not fail: ${one}`);
for (const text of wrong) console.error(text);
process.exit(wrong.length ? 1 : 0);
