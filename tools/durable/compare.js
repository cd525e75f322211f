// Compares the result of the tests with the list of cases that are known to fail. A case that fails
// and is not listed is an error, and so is a listed case that passes.
import { readFileSync } from "node:fs";

const known = readFileSync("known-failing.txt", "utf8").split("\n").filter((line) => line && !line.startsWith("#"));
const cases = JSON.parse(readFileSync("result.json", "utf8")).testResults.flatMap((file) => file.assertionResults);
const failed = cases.filter((c) => c.status === "failed").map((c) => c.fullName);
const passed = cases.filter((c) => c.status === "passed").map((c) => c.fullName);
const wrong = [
  ...failed.filter((name) => !known.includes(name)).map((name) => `fails: ${name}`),
  ...known.filter((name) => !failed.includes(name)).map((name) => `is listed in known-failing.txt, but does not fail: ${name}`),
];
if (passed.length < 300) wrong.push(`only ${passed.length} cases passed: the suite did not run`);
console.log(`${passed.length} cases passed, ${failed.length} failed`);
for (const text of wrong) console.error(text);
process.exit(wrong.length ? 1 : 0);
