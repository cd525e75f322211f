import { defineConfig } from "vitest/config";

// The suite is a package, and vitest looks for tests outside of packages only. So journal.test.js and
// cluster.test.js call the suite, and the option inline makes vitest transform the package like a test
// file. The timeouts are for busy machines.
export default defineConfig({
  test: {
    include: ["*.test.js"],
    testTimeout: 240_000,
    hookTimeout: 120_000,
    server: { deps: { inline: [/durable-streams/] } },
  },
});
