/** The results of `run`: lines for people, documents for programs. */

import { join, relative } from "node:path";
import { contract } from "../model/contracts.mjs";
import { codeOf, isA } from "../model/errors.mjs";
import { checkText, checksFailed, furtherRefusals } from "../model/gates.mjs";
import { stepLine } from "../model/next_steps.mjs";
import { duration, instant, oneLine, shortId, span } from "../model/wording.mjs";
import { isUnchanged, planLines } from "../runs/plan.mjs";

/** @typedef {"info" | "warning" | "error"} Level */

const CHECKS_SHOWN_MAX = 10;
const COLOURS = /** @type {Record<string, number>} */ ({ published: 32, unchanged: 32, planned: 36, blocked: 33, busy: 33, failed: 31 });
const SIGN_COLOURS = /** @type {Record<string, number>} */ ({ "+": 32, "~": 33, "-": 31, "!": 31 });

/** @param {string} text @param {number | undefined} colour */
const styled = (text, colour) => (colour === undefined ? text : `\x1b[${colour}m${text}\x1b[0m`);

/** @param {any} report @returns {number} */
export function exitCode(report) {
  if (report.error) return report.error.exitCode;
  if ((report.projections ?? []).some((/** @type {any} */ one) => one.error && !isPutOff(one.error))) return 4;
  return /** @type {Record<string, number>} */ ({ failed: 1, refused: 3, busy: 5 })[report.outcome] ?? 0;
}

/** With several sources the worst ending decides. @param {number[]} codes */
export function worst(codes) {
  /** @type {number[]} */
  const order = contract("tables/run-command.json").worst_first;
  return codes.length ? /** @type {number} */ (codes.toSorted((a, b) => order.indexOf(a) - order.indexOf(b))[0]) : 0;
}

/** The target was not called, because the circuit of its provider is open. @param {any} error */
const isPutOff = (error) => error.code === codeOf("CircuitOpen");

/** Result lines of one call. They are printed one by one, and still stand in columns. */
export class Lineup {
  /** @param {import("../config/loader.mjs").Loaded} loaded @param {string[]} sourceIds */
  constructor(loaded, sourceIds) {
    const datasets = sourceIds.map((id) => loaded.source(id).dataset);
    this.names = new Map(sourceIds.map((id, at) => [id, datasets.filter((one) => one === datasets[at]).length > 1 ? `${datasets[at]} from ${id}` : datasets[at]]));
    this.aligned = sourceIds.length > 1;
  }

  /** @param {any} report */
  line(report) {
    const parts = [
      this.names.get(report.sourceId),
      report.windowEndMs ? span(report.windowStartMs, report.windowEndMs) : "-",
      versionOf(report),
      report.run ? `run ${shortId(report.run.run_id)}` : "no run",
    ];
    const widths = [Math.max(...[...this.names.values()].map((name) => name.length)), 39, 12, 17];
    const shown = this.aligned ? parts.map((part, at) => part.padEnd(/** @type {number} */ (widths[at]))) : parts;
    return styled([shownWord(report.word).padEnd(9), ...shown, duration(report.durationMs)].join("  "), COLOURS[report.word]);
  }
}

/** @param {any} report */
function versionOf(report) {
  const has = report.sequence !== null && report.sequence !== undefined;
  if (report.word === "planned") return has ? `on version ${report.sequence}` : "no version";
  return has ? `version ${report.sequence}` : "-";
}

/** @param {any} report */
export function colouredPlan(report) {
  if (!report.plan) return [];
  return planLines(report.plan).map(([sign, line]) => styled(line, SIGN_COLOURS[sign]));
}

/** Why it ended like this, and the way out. @param {any} report @param {Record<string, any>} options @returns {[Level, string][]} */
export function remarks(report, { verbose, quiet }) {
  /** @type {[Level, string][]} */
  const lines = [];
  const fail = (/** @type {string[]} */ [what, ...rest]) => lines.push(["error", what ?? ""], ...informed(rest));
  if (report.error) fail(failureLines(report));
  else if (!quiet && (saysMore(report) || verbose)) lines.push(["info", `  ${oneLine(report.reason)}`]);
  for (const one of report.projections ?? []) {
    if (!one.error) continue;
    if (isPutOff(one.error)) lines.push(["warning", `put off: ${one.target} is shown later, with \`kfm project\`: ${oneLine(one.error.message)}`]);
    else fail([`error ${one.error.code}: ${one.error.message}`, `fix: ${one.error.remedy}`]);
  }
  return verbose ? [...lines, ...informed(details(report))] : lines;
}

/** @param {string[]} lines @returns {[Level, string][]} */
const informed = (lines) => lines.map((line) => ["info", line]);

/** The word of a report for people: `blocked` stands for a refusal. @param {string} word */
export const shownWord = (word) => (word === "blocked" ? "refused" : word);

/** Does the reason say more than the word does? @param {any} report */
function saysMore(report) {
  if (report.outcome === "noop") return false;
  const again = report.run && (report.run.attempts > 1 || report.run.revision > 0);
  return again || ["refused", "busy", "failed"].includes(report.outcome) || report.word === "unchanged";
}

/** What went wrong, and the way out. @param {any} error @returns {[string, string]} */
export function errorLines(error) {
  const message = error.message.split("\n").map(oneLine).join("\n");
  return [`error ${error.code}: ${message}`, `fix: ${error.wayOut}`];
}

/** The error, each failed check on a line of its own, the next step or the way out, where to read on. @param {any} report */
function failureLines(report) {
  const [message, fix] = errorLines(report.error);
  const next = report.nextStep ? [`next: ${oneLine(stepLine(report.nextStep))}`] : [];
  const corrected = report.nextStep?.code === "correct" && report.error.givenRemedy; // how this very cause is corrected
  const ways = !next.length || corrected ? [fix, ...next] : next;
  const checks = (report.failedChecks ?? []).map(checkText);
  const lines = [];
  if (checks.length > 1 && isA(report.error, "ContractViolated")) {
    lines.push(`error ${report.error.code}: ${report.error.page.headline} ${checksFailed(checks.length, report.checksMade)}:`, ...checks.slice(0, CHECKS_SHOWN_MAX).map((/** @type {string} */ check) => `  ${oneLine(check)}`));
    if (checks.length > CHECKS_SHOWN_MAX) lines.push(`  … and ${checks.length - CHECKS_SHOWN_MAX} more in the event log`);
    lines.push(...ways);
  } else lines.push(message, ...ways);
  if (report.error.exitCode === 3) lines.push(...furtherRefusals(report.gates ?? []).map((text) => `also: ${oneLine(text)}`));
  if (report.advice) lines.push(`note: ${oneLine(report.advice)}`);
  if (report.artifactsDir) {
    const path = join(report.artifactsDir, "event_log.jsonl");
    const near = relative(process.cwd(), path);
    lines.push(`log: ${near.length < path.length ? near : path}`);
  }
  return lines;
}

/** @param {any} report */
function details(report) {
  const lines = (report.gates ?? []).map((/** @type {any} */ gate) => `  gate ${gate.gate}: ${gate.overridden ? "overridden" : gate.allowed ? "allowed" : "refused"}: ${oneLine(gate.reason)}`);
  for (const one of report.projections ?? []) if (!one.error) lines.push(`  target ${one.target} shows version ${one.sequence ?? "None"}`);
  if (report.run) lines.push(`  run ${report.run.run_id}, revision ${report.run.revision}`);
  if (report.artifactsDir) lines.push(`  artifacts in ${report.artifactsDir}`);
  return lines;
}

/** The JSON shape of one result. @param {any} report */
export function reportDocument(report) {
  return {
    outcome: report.outcome,
    word: report.word,
    source_id: report.sourceId,
    dataset_id: report.datasetId,
    window_start: report.windowEndMs ? instant(report.windowStartMs) : null,
    window_end: report.windowEndMs ? instant(report.windowEndMs) : null,
    run_id: report.run?.run_id ?? null,
    invocation_id: report.invocationId ?? null,
    reason: report.reason,
    error: report.error?.asDocument() ?? null,
    next_step: report.nextStep ?? null,
    advice: report.advice ?? null,
    gates: (report.gates ?? []).map((/** @type {any} */ one) => ({ gate: one.gate, allowed: one.allowed, reason: one.reason, policy_ids: one.policy_ids, overridable: one.overridable, overridden: one.overridden, halts: one.halts, ...facts(one) })),
    failed_checks: (report.failedChecks ?? []).map((/** @type {any} */ check) => ({ name: check.name, path: check.path, detail: check.detail })),
    version: report.sequence ?? null,
    version_id: report.versionId ?? null,
    projections: report.projections ?? [],
    artifacts: report.artifactsDir ?? null,
    plan: report.plan ? planDocument(report.plan) : null,
    duration_ms: report.durationMs,
  };
}

/** The facts that a gate's refusal is told by, without those that are undefined. @param {import("../types.js").GateResult} gate */
function facts({ code, cause, remedy, command, until_ms }) {
  return Object.fromEntries(Object.entries({ code, cause, remedy, command, until_ms }).filter(([, value]) => value !== undefined));
}

/** @param {import("../runs/plan.mjs").Plan} plan */
function planDocument(plan) {
  const { digest, base_sequence, version_id, fingerprint, made_at, tally, targets } = plan.header;
  return { digest, base_version: base_sequence, version_id, fingerprint, made_at, unchanged: isUnchanged(plan), targets: targets ?? [], tally, changes: plan.changes };
}
