/** Outcomes of runs: what is recorded, and the word that people read. */

import { isA } from "../model/errors.mjs";

/** The outcome on record, and the word that people read. @param {import("../model/errors.mjs").KfmError} error @returns {[string, string]} */
export function ending(error) {
  if (isA(error, "WaitsUntil")) return ["busy", "waiting"];
  if (isA(error, "Busy")) return ["busy", "busy"];
  return isA(error, "Refused") ? ["refused", "blocked"] : ["failed", "failed"];
}

/** @param {any} report */
export const failedChecks = (report) => (report?.checks ?? []).filter((/** @type {any} */ check) => !check.passed);
