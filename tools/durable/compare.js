// Compares the result of the tests with the list of cases that are known to fail. A case that fails
// and is not listed is an error, and so is a listed case that passes. The exit status of vitest says
// nothing, because it is also 1 if only the listed cases fail. So the test script removes the result
// of an earlier run, and an error outside of a case counts here.
import { readFileSync } from "node:fs";

const known = readFileSync("known-failing.txt", "utf8").split("\n").filter((line) => line && !line.startsWith("#"));
const files = JSON.parse(readFileSync("result.json", "utf8")).testResults;
const cases = files.flatMap((file) => file.assertionResults);
const failed = cases.filter((c) => c.status === "failed").map((c) => c.fullName);
const passed = cases.filter((c) => c.status === "passed").map((c) => c.fullName);
const hasFailedCase = (file) => file.assertionResults.some((c) => c.status === "failed");
const wrong = [
  ...files.filter((file) => file.status === "failed" && !hasFailedCase(file)).map((file) => `did not run: ${file.name}: ${file.message}`),
  ...failed.filter((name) => !known.includes(name)).map((name) => `fails: ${name}`),
  ...known.filter((name) => !failed.includes(name)).map((name) => `is listed in known-failing.txt, but does not fail: ${name}`),
];
if (passed.length < 300) wrong.push(`only ${passed.length} cases passed: the suite did not run`);
console.log(`${passed.length} cases passed, ${failed.length} failed`);
for (const text of wrong) console.error(text);
process.exit(wrong.length ? 1 : 0);
