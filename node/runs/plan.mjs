/** A plan: what a run would publish, frozen with a digest, so that what is applied is what was read. */

import { canonicalText, sha256Text, strictLoads } from "../model/canonical.mjs";
import { KfmError, PlanError } from "../model/errors.mjs";
import { requireValid } from "../model/schemas.mjs";
import { reachedText } from "../model/targets.mjs";
import { rfc3339 } from "../model/times.mjs";
import { isSame, versionOf } from "../model/versions.mjs";
import { byPoints, counted, readableSize, sortedByPoints, span } from "../model/wording.mjs";
import { diff, tally } from "../publish/manifest.mjs";

/** @typedef {{header: any, changes: any[]}} Plan */

export const PLAN_BYTES_MAX = 256 * 1024 * 1024;
const NAMES_SHOWN_MAX = 5;
const ROWS_SHOWN_MAX = 200;
const SIGNS = /** @type {Record<string, string>} */ ({ added: "+", changed: "~", removed: "-" });

/** @param {Plan} plan */
export const isUnchanged = (plan) => plan.header.version_id === plan.header.base_version_id;

/** The plan of publishing `manifest` over the head that it was merged from. @param {any} given @returns {Plan} */
export function makePlan({ base, manifest, made_at_ms, ...fields }) {
  const [promotion, old] = base ?? [null, null];
  const changes = diff(old, manifest).sort(order);
  const header = {
    plan: 1,
    dataset_id: manifest.dataset_id,
    ...fields,
    base_sequence: promotion?.sequence ?? 0,
    base_version_id: promotion?.version_id ?? null,
    version_id: old && isSame(old, manifest) ? promotion.version_id : versionOf(manifest).versionId,
    tally: tally(old, manifest),
  };
  const digest = sha256Text(canonicalText({ header, changes }));
  return { header: { ...header, made_at: rfc3339(made_at_ms), digest }, changes };
}

/** @param {any} one @param {any} other */
function order(one, other) {
  return Number(one.what === "asset") - Number(other.what === "asset") || byPoints(one.what, other.what) || byPoints(one.name, other.name) || byPoints(one.kind, other.kind);
}

/** The plan as JSON Lines, each line in canonical form. @param {Plan} plan */
export function planText(plan) {
  const lines = [plan.header, ...plan.changes];
  for (const line of lines) requireValid("plan", line);
  return lines.map((line) => `${canonicalText(line)}\n`).join("");
}

/** The plan of these bytes; refused unless it is whole, well-formed and as it was written. @param {Buffer} data @returns {Plan} */
export function readPlan(data) {
  if (data.length > PLAN_BYTES_MAX) throw new PlanError(`It is larger than ${PLAN_BYTES_MAX} bytes.`);
  if (data.at(-1) !== 0x0a) throw new PlanError("It is empty or was cut short.");
  let header, changes;
  try {
    [header, ...changes] = data.subarray(0, -1).toString().split("\n").map((line) => strictLoads(Buffer.from(line)));
    for (const line of [header, ...changes]) requireValid("plan", line);
  } catch (error) {
    if (error instanceof KfmError) throw new PlanError(`It is not a plan: ${error.detail}`);
    throw error;
  }
  const { made_at: _made, digest, ...rest } = header;
  if (digest !== sha256Text(canonicalText({ header: rest, changes }))) throw new PlanError("Its digest does not match: it was changed after it was made.");
  if (canonicalText(changes) !== canonicalText([...changes].sort(order))) throw new PlanError("Its lines are not in order.");
  return { header, changes };
}

/** What is no longer as the plan says, in sentences; empty if the plan may be applied. @param {Plan} plan @param {Plan} actual @returns {string[]} */
export function comparePlans(plan, actual) {
  const [was, now] = [plan.header, actual.header];
  const sentences = [];
  const none = (/** @type {any} */ value) => value ?? "None";
  for (const [name, label] of [["dataset_id", "dataset"], ["source_id", "source"], ["partition", "partition"]])
    if (was[/** @type {string} */ (name)] !== now[/** @type {string} */ (name)]) sentences.push(`the ${label} is ${none(now[/** @type {string} */ (name)])}, not ${none(was[/** @type {string} */ (name)])}`);
  if (was.window.start_ms !== now.window.start_ms || was.window.end_ms !== now.window.end_ms) sentences.push(`the window is ${spanOf(now)}, not ${spanOf(was)}`);
  if (was.base_sequence !== now.base_sequence || was.base_version_id !== now.base_version_id) sentences.push(`the dataset is at version ${now.base_sequence}, not ${was.base_sequence}`);
  if (was.output_version !== now.output_version) sentences.push(`the pipeline is ${now.output_version}, not ${was.output_version}`);
  const moved = movedNames(plan, actual);
  if (moved.length) {
    const more = moved.length > NAMES_SHOWN_MAX ? ` and ${moved.length - NAMES_SHOWN_MAX} more` : "";
    sentences.push(`${counted(moved.length, "asset")} changed since: ${moved.slice(0, NAMES_SHOWN_MAX).join(", ")}${more}`);
  }
  if (was.fingerprint !== now.fingerprint && !moved.length) sentences.push("the upstream fingerprint changed");
  if (gatesOf(was) !== gatesOf(now)) sentences.push("the gates decide otherwise");
  const elsewhere = otherTargets(was, now.targets);
  if (elsewhere) sentences.push(elsewhere);
  if (was.version_id !== now.version_id && !sentences.length) sentences.push("the outcome would be another version");
  return sentences.map((sentence) => `plan made at ${was.made_at}, ${sentence}`);
}

/** How the targets differ from those of the plan; null if they do not, or if it names none. @param {any} was @param {import("../model/targets.mjs").ReachedTarget[]} now @returns {string | null} */
export function otherTargets(was, now) {
  if (was.targets === undefined || canonicalText(was.targets) === canonicalText(now)) return null;
  return `it would be ${reachedText(now)}, not ${reachedText(was.targets).replace("shown ", "")}`;
}

/** @param {Plan} plan @param {Plan} actual */
function movedNames(plan, actual) {
  const keyed = (/** @type {Plan} */ one) => new Map(one.changes.map((change) => [`${change.what}\n${change.name}`, change]));
  const [before, after] = [keyed(plan), keyed(actual)];
  const text = (/** @type {any} */ change) => (change ? canonicalText(change) : "");
  const names = [...new Set([...before.keys(), ...after.keys()])].filter((key) => text(before.get(key)) !== text(after.get(key))).map((key) => key.slice(key.indexOf("\n") + 1));
  return sortedByPoints(names);
}

/** @param {any} header */
function gatesOf(header) {
  return JSON.stringify(header.gates.filter((/** @type {any} */ gate) => gate.gate !== "approval").map((/** @type {any} */ gate) => JSON.stringify([gate.gate, gate.allowed, gate.overridden, gate.policy_ids])).sort());
}

/** @param {any} header */
const spanOf = (header) => span(header.window.start_ms, header.window.end_ms);

/** The plan for reading: one line for each change, the totals last; with each its sign, or "". @param {Plan} plan @returns {[string, string][]} */
export function planLines(plan) {
  const { header, changes } = plan;
  const base = header.base_sequence ? `on version ${header.base_sequence}` : "nothing published yet";
  /** @type {[string, string][]} */
  const lines = [["", `${header.dataset_id} from ${header.source_id}, ${spanOf(header)}, ${base}`]];
  if (header.targets !== undefined) lines.push(["", `  ${reachedText(header.targets)}`]);
  for (const gate of header.gates) if (!gate.allowed && !gate.overridden) lines.push(["!", `  ! ${gate.gate}: ${gate.reason}`]);
  for (const change of changes.slice(0, ROWS_SHOWN_MAX)) {
    const sign = SIGNS[change.kind] ?? "";
    lines.push([sign, `  ${sign} ${rowOf(change)}`]);
  }
  if (changes.length > ROWS_SHOWN_MAX) lines.push(["", `  … and ${changes.length - ROWS_SHOWN_MAX} more`]);
  const counts = header.tally;
  if (isUnchanged(plan)) lines.push(["", `unchanged: ${counted(counts.unchanged, "file")}, ${readableSize(counts.bytes_total)}`]);
  else
    lines.push([
      "",
      `${counts.added} added, ${counts.changed} changed, ${counts.removed} removed, ${counts.unchanged} unchanged; ` +
        `${readableSize(counts.bytes_new)} new of ${readableSize(counts.bytes_total)}`,
    ]);
  lines.push(["", `plan ${header.digest}`]);
  return lines;
}

/** @param {any} change */
function rowOf(change) {
  if (change.what === "item") return `item ${change.name}`;
  if (change.what !== "asset") return `${change.name}: ${change.before || "none"} → ${change.after || "none"}`;
  if (change.kind === "added") return `${change.name}  ${readableSize(change.size_after ?? 0)}`;
  if (change.kind === "removed") return `${change.name}  ${readableSize(change.size_before ?? 0)}`;
  if (change.sha256_before === change.sha256_after) return `${change.name}  same bytes; ${change.before || "none"} → ${change.after || "none"}`;
  return `${change.name}  ${readableSize(change.size_before ?? 0)} → ${readableSize(change.size_after ?? 0)}`;
}
