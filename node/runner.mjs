#!/usr/bin/env node
/** `node runner.mjs run --config C --window P1D …`: the same command as `python -m updater.runner`. */

const VERSION = "0.1.0"; // of kfm; a test compares
const NODE_MIN = 24;

const [first, ...rest] = process.argv.slice(2);
if (!rest.length && (first === "--version" || first === "-V")) {
  process.stdout.write(`kfm ${VERSION}\n`);
} else if (Number(process.versions.node.split(".")[0]) < NODE_MIN) {
  process.stderr.write(`error KFM200: The command can't be carried out. Node.js ${process.versions.node} is too old; ${NODE_MIN} is needed.\n`);
  process.stderr.write("fix: `make node` brings one, or use the one that its folder holds.\n");
  process.exitCode = 2;
} else {
  // A run is short: compiling Cedar twice, the second time well, costs more time and memory than it saves.
  (await import("node:v8")).setFlagsFromString("--wasm-tiering-budget=2000000000");
  const { main } = await import("./cli/main.mjs");
  process.exit(await main(process.argv.slice(2), { version: VERSION })); // a function that was abandoned is not waited for
}
