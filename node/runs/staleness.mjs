/** Staleness: is a successful run still the published one? Reads only. */

import { isSame } from "../model/versions.mjs";
import { filesOfWindow, mergeItems, shows } from "../publish/manifest.mjs";

const NEWER_MAX = 20; // successful runs for newer windows that are looked at, the newest first

/** Does the head show what this run published, or found published? @param {any} ledger @param {NonNullable<import("../types.js").Head>} head @param {import("../types.js").Run} run */
function isShown(ledger, head, run) {
  if (run.version_id === head[0].version_id) return true;
  const published = run.version_id ? ledger.manifest(run.version_id) : null;
  return published !== null && shows(head[1], published, run.source_id);
}

/** The newest window whose content the dataset shows of this source. @param {any} ledger @param {import("./subject.mjs").Subject} subject @returns {{start_ms: number, end_ms: number} | null} */
export function newestShown(ledger, subject) {
  const head = ledger.head(subject.dataset.id);
  const shown = (head?.[1].items ?? []).filter((/** @type {any} */ item) => item.source_id === subject.source.id);
  if (!shown.length) return null;
  const newest = shown.reduce((/** @type {any} */ a, /** @type {any} */ b) => (b.window_end_ms > a.window_end_ms ? b : a));
  const runs = ledger.newerSuccesses(subject.source.id, newest.window_end_ms, NEWER_MAX);
  const { window_start_ms: start_ms, window_end_ms: end_ms } = runs.find((/** @type {any} */ run) => isShown(ledger, head, run)) ?? newest;
  return { start_ms, end_ms };
}

/** Why the work is done again although upstream is unchanged; null if it is not. @param {any} ledger @param {import("./subject.mjs").Subject} subject @param {import("../types.js").Run} run @returns {import("../model/admission.mjs").Reason | null} */
export function staleReason(ledger, subject, run) {
  const newest = ledger.latestSuccess(subject.work);
  if (newest && newest.run_id !== run.run_id) return { code: "other-pipeline-published", text: `Pipeline version ${newest.pipeline_version} has published this window since.` };
  const head = ledger.head(subject.dataset.id);
  if (!head) return run.version_id ? { code: "not-published", text: "Nothing of this dataset is published." } : null;
  if (subject.source.mode === "replace" && run.version_id && !isShown(ledger, head, run)) return { code: "not-shown", text: "The dataset shows another window." };
  const changed = changedByPerson(ledger, head[1], subject, run);
  if (changed) return { code: "not-published", text: changed };
  const described = mergeItems(head[1], subject.dataset, [], "merge");
  return isSame(described, head[1]) ? null : { code: "description-changed", text: "The dataset's description or rights have changed." };
}

/** Does a person's change show something else, or nothing, in the place of what this run published? @param {any} ledger @param {any} head @param {import("./subject.mjs").Subject} subject @param {import("../types.js").Run} run @returns {string | null} */
function changedByPerson(ledger, head, { dataset, source, window }, run) {
  const changed = run.version_id ? ledger.newestChange(dataset.id) : null;
  if (changed === null || source.mode === "replace" || (run.end_time_ms ?? 0) > changed[1]) return null;
  const published = ledger.manifest(run.version_id);
  const shown = filesOfWindow(head, source.id, window);
  const was = published ? filesOfWindow(published, source.id, window) : [];
  if (was.length && !shown.length) return "A rollback or withdrawal has removed it since.";
  return JSON.stringify(shown) === JSON.stringify(was) ? null : "Since a rollback the dataset shows something else.";
}
