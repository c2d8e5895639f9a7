/** Runs the command line and tells, last on standard error, how many kilobytes it needed at most. */

await import("../runner.mjs");
process.stderr.write(`${process.resourceUsage().maxRSS}\n`);
