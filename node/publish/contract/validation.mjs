/** Checks staged bytes against a contract. */

import { matchesName } from "../../model/patterns.mjs";
import { counted, rpartition } from "../../model/wording.mjs";
import { formatOf } from "./streams.mjs";
import { TableChecks, Tally } from "./table.mjs";

/** @typedef {import("../../types.js").Asset} Asset */
/** @typedef {import("../../types.js").Check} Check */

/** Every check over all assets of a run. @param {any} contract @param {Asset[]} assets @param {(sha256: string) => any} open @param {number} nowMs @param {import("../../types.js").Window} window @param {boolean} _showValues @param {() => void} tick @returns {Check[]} */
export function validateAssets(contract, assets, open, nowMs, window, _showValues, tick) {
  // From the end of the window, so that a backfill is not called stale.
  const referenceMs = Math.min(window.end_ms, nowMs);
  /** @type {Map<any, Asset[]>} */
  const matched = new Map(contract.objects.map((/** @type {any} */ table) => [table, []]));
  const uncovered = new Tally();
  for (const asset of assets) {
    const table = objectFor(contract, asset);
    if (table) matched.get(table)?.push(asset);
    else uncovered.add(asset.path);
  }
  const checks = [covered(uncovered, assets.length, contract.uncoveredAllowed)];
  for (const [table, files] of matched) {
    const runner = new TableChecks(contract, table, contract.objects.length > 1, tick);
    try {
      for (const asset of files) {
        const reader = open(asset.sha256);
        try {
          runner.read(asset, reader, table.format ?? formatOf(asset), files.length > 1 ? `${asset.path} ` : "");
        } finally {
          reader.close();
        }
      }
      checks.push(...runner.checks(files, referenceMs));
    } finally {
      runner.close();
    }
  }
  return checks;
}

/** The first schema object whose pattern matches the path, or the bare file name. @param {any} contract @param {Asset} asset */
function objectFor(contract, asset) {
  const name = rpartition(asset.path, "/")[2];
  return contract.objects.find((/** @type {any} */ table) => table.pathPattern === null || matchesName(asset.path, table.pathPattern) || matchesName(name, table.pathPattern)) ?? null;
}

/** @param {Tally} uncovered @param {number} total @param {boolean} allowed @returns {Check} */
function covered(uncovered, total, allowed) {
  const files = counted(total, "file");
  if (!uncovered.count) return { name: "schema.covered", passed: true, detail: `The contract covers all of ${files}.`, path: null, sample: [] };
  const detail = `The contract says nothing about ${uncovered.count} of ${files}${uncovered.where()}.${allowed ? " It allows that." : ""}`;
  return { name: "schema.covered", passed: allowed, detail, path: null, sample: uncovered.places };
}
