/** Runs the command line and prints, last on standard error, its peak memory in kilobytes. */

import { readFileSync } from "node:fs";

await import("../runner.mjs");
// Not `maxRSS`: that of a child begins with what its parent had when it was started.
const status = readFileSync("/proc/self/status", "utf8");
process.stderr.write(`${/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1] ?? process.resourceUsage().maxRSS}\n`);
