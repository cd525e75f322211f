import { defineConfig } from "vitest/config";

// The suite is a package, and vitest looks for tests outside of packages only. So suite.test.js calls
// it, and the package is not kept out of the transformation. The timeouts are for busy machines.
export default defineConfig({
  test: {
    include: ["*.test.js"],
    globalSetup: "./server.js",
    testTimeout: 240_000,
    hookTimeout: 120_000,
    fileParallelism: false,
    server: { deps: { inline: [/durable-streams/] } },
  },
});
