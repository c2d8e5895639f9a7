/** Runs the command line and prints, last on standard error, its peak memory in kilobytes. */

import { readFileSync, writeSync } from "node:fs";

process.on("exit", () => {
  // Not `maxRSS`: that of a child begins with what its parent had when it was started.
  const status = readFileSync("/proc/self/status", "utf8");
  writeSync(2, `${/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1] ?? process.resourceUsage().maxRSS}\n`);
});
await import("../runner.mjs");
