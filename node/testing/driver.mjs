/**
 * Plays the steps of many cases with injected clock, ids, chance and processor time: the twin's half of the comparison.
 *
 *     node testing/driver.mjs CASES.jsonl RESULTS.jsonl
 */

import * as fs from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { main } from "../cli/main.mjs";

const [casesPath = "", resultsPath = ""] = process.argv.slice(2);
const VERSION = /VERSION = "([^"]+)"/.exec(fs.readFileSync(new URL("../runner.mjs", import.meta.url), "utf8"))?.[1] ?? "";

/** @param {any} step */
function systemOf(step) {
  let [made, cpu] = [0, 0];
  return {
    clock: { nowMs: () => step.now_ms, monotonicMs: () => step.now_ms, sleepMs() {} },
    ids: { new: () => `00000000-${String(step.number).padStart(4, "0")}-7000-8000-${(made++).toString(16).padStart(12, "0")}` },
    unitRandom: () => 0.5,
    meter: { cpuUs: () => (cpu += 1_000) },
    actor: "tester",
    hasPerson: step.terminal ?? false,
  };
}

/** @param {any} step @returns {Promise<any>} */
async function play(step) {
  for (const [path, text] of Object.entries(step.write ?? {})) {
    fs.mkdirSync(dirname(path), { recursive: true });
    fs.writeFileSync(path, /** @type {string} */ (text));
  }
  for (const path of step.remove ?? []) fs.rmSync(path, { force: true, recursive: true });
  if (step.sql?.length && fs.existsSync(".kfm/kfm.db")) {
    const database = new DatabaseSync(".kfm/kfm.db");
    for (const statement of step.sql) database.exec(statement);
    database.close();
  }
  if (!step.args) return null;
  const written = { 1: "", 2: "" };
  const write = (/** @type {number} */ descriptor, /** @type {string} */ text) => {
    written[/** @type {1 | 2} */ (descriptor)] += text;
  };
  const code = await main(step.args, { version: VERSION, system: systemOf(step), write, environ: step.environ ?? {} });
  return { code, stdout: written[1], stderr: written[2] };
}

const out = fs.openSync(resultsPath, "w");
for (const line of fs.readFileSync(casesPath, "utf8").trim().split("\n")) {
  const { folder, steps } = JSON.parse(line);
  fs.mkdirSync(folder, { recursive: true });
  process.chdir(folder);
  const results = [];
  for (const [number, step] of steps.entries()) results.push(await play({ ...step, number }));
  fs.writeSync(out, `${JSON.stringify({ folder, results })}\n`);
}
fs.closeSync(out);
process.removeAllListeners("SIGINT");
