/** The language-neutral files that come with kfm: the twin restates none of them. */

import { existsSync, readFileSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** In a checkout they lie in the Python package; beside the twin where it was copied elsewhere. */
const HOMES = ["../../src/kfm/contracts/", "../contracts/"];

export const CONTRACTS = place();

/** @returns {string} */
function place() {
  const named = process.env.KFM_CONTRACTS;
  if (named) return named.replace(/\/*$/, "/");
  for (const home of HOMES) {
    const path = fileURLToPath(new URL(home, import.meta.url));
    if (existsSync(path)) return path;
  }
  throw new Error("The contracts are not beside the twin: name their folder in KFM_CONTRACTS.");
}

/** @param {string} name @returns {string} */
export function contractText(name) {
  return readFileSync(CONTRACTS + name, "utf8");
}

/** @type {Map<string, any>} */
const kept = new Map();

/** @param {string} name @returns {any} A JSON contract; read once. */
export function contract(name) {
  let found = kept.get(name);
  if (found === undefined) {
    found = JSON.parse(contractText(name));
    kept.set(name, found);
  }
  return found;
}

/** @param {string} folder @param {string} suffix @returns {string[]} */
export function contractNames(folder, suffix) {
  const path = CONTRACTS + folder;
  return existsSync(path) ? readdirSync(path).filter((name) => name.endsWith(suffix)).sort() : [];
}
