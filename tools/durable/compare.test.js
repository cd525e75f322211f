// Tests compare.js, which decides whether a run of the suite succeeded.
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

// compare runs compare.js on the result of a run. It returns the exit status and the errors.
function compare(files, known = "") {
  const dir = mkdtempSync(join(tmpdir(), "compare-"));
  try {
    writeFileSync(join(dir, "known-failing.txt"), known);
    if (files) writeFileSync(join(dir, "result.json"), JSON.stringify({ testResults: files }));
    const run = spawnSync(process.execPath, [fileURLToPath(new URL("compare.js", import.meta.url))], { cwd: dir, encoding: "utf8" });
    return [run.status, run.stderr];
  } finally {
    rmSync(dir, { recursive: true });
  }
}

const passing = Array.from({ length: 300 }, (_, i) => ({ fullName: `case ${i}`, status: "passed" }));
const suite = { name: "suite", status: "passed", message: "", assertionResults: passing };
const failing = { ...suite, status: "failed", assertionResults: [...passing, { fullName: "hard", status: "failed" }] };

test("compare.js accepts a run that is as expected", () => {
  expect(compare([suite])).toEqual([0, ""]);
  expect(compare([failing], "hard\n")).toEqual([0, ""]);
});

test("compare.js reports cases that do not behave as listed", () => {
  expect(compare([failing])).toEqual([1, "fails: hard\n"]);
  expect(compare([suite], "hard\n")).toEqual([1, "is listed in known-failing.txt, but does not fail: hard\n"]);
});

test("compare.js reports files and suites that did not run", () => {
  const broken = { name: "broken", status: "failed", message: "no such module", assertionResults: [] };
  expect(compare([suite, broken])).toEqual([1, "did not run: broken: no such module\n"]);
  expect(compare([])[0]).toBe(1);
  expect(compare(null)[0]).toBe(1);
});
