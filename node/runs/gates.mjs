/** The gates of a run, asked at admission and again at promotion. */

import { approvalSeen, attemptDigest, usableApproval } from "../model/approvals.mjs";
import { combine, contractGate, freezeGate, lengthGates, renamedGate, rightsGate, switchGate, windowGate, withdrawalGates } from "../model/gates.mjs";
import { runCommand } from "../model/next_steps.mjs";
import { reached } from "../model/targets.mjs";
import { rfc3339 } from "../model/times.mjs";
import { newestShown } from "./staleness.mjs";

/** @typedef {import("./subject.mjs").Subject} Subject */
/** @typedef {import("../types.js").GateDecision} GateDecision */

/** @param {Subject} subject */
function forceRequest({ trigger }) {
  return trigger.force ? { actor: trigger.actor, rationale: trigger.rationale, ticket: trigger.ticket } : null;
}

/** @param {string} trigger @param {string | null} rationale @param {string | null} ticket @param {any} approval @param {boolean} halted @param {boolean} dryRun */
function facts(trigger, rationale, ticket, approval = null, halted = false, dryRun = false) {
  return { trigger, rationale: rationale ?? "", ticket: ticket ?? "", approvals: approval ? [approval.dataset_id] : [], halted, is_dry_run: dryRun };
}

/** An unused approval of one attempt at exactly this work. @param {any} kernel @param {Subject} subject */
function usable(kernel, subject) {
  const known = kernel.ledger.approvals(subject.workBase);
  return known.length ? usableApproval(known, attemptDigest(subject.dataset, subject.workBase, reached(kernel.settings, subject.dataset)), kernel.ledger.nowMs()) : null;
}

/** The approval under which the present attempt of this run was begun. @param {any} ledger @param {import("../types.js").Run} run */
export function approvalOf(ledger, run) {
  return ledger.approvals(run.work_base).find((/** @type {any} */ one) => one.used_by === run.run_id && one.used_attempt === run.attempts) ?? null;
}

/** It was for the rights and the targets as they were declared then. @param {any} kernel @param {any} approval @param {any} dataset @param {string} workBase */
const still = (kernel, approval, dataset, workBase) => (approval && approval.digest === attemptDigest(dataset, workBase, reached(kernel.settings, dataset)) ? approval : null);

/** @param {any} kernel @param {Subject} subject @param {string} action @param {any} approval @param {boolean} dryRun */
function policies(kernel, subject, action, approval, dryRun) {
  const { dataset, trigger } = subject;
  const halted = kernel.ledger.halted(dataset.id);
  const named = {
    source: subject.source.id,
    window: `${rfc3339(subject.window.start_ms)}/${rfc3339(subject.window.end_ms)}`,
    ...(halted ? { held: halted.held_id } : {}),
  };
  const context = { ...facts(trigger.type, trigger.rationale, trigger.ticket, approval, halted !== null, dryRun), named };
  const results = kernel.policies.decide(action, dataset, trigger.actor, context);
  return approval ? [...results, approvalSeen(approval)] : results;
}

/** @param {any} kernel @param {any} dataset @param {boolean} inFlight */
const switches = (kernel, dataset, inFlight) => switchGate(kernel.ledger.switches(), dataset.id, dataset.domain, inFlight);
/** @param {any} kernel @param {Subject} subject */
const freezes = (kernel, { dataset, source, window }) => freezeGate(kernel.settings.freezes, dataset.id, dataset.domain, kernel.ledger.nowMs(), runCommand(source.id, window.start_ms, window.end_ms));

/** Where windows replace each other, an older one never takes the place of a newer one by itself. @param {any} kernel @param {Subject} subject */
function windows(kernel, subject) {
  const { source, dataset, window } = subject;
  if (source.mode === "merge") return lengthGates(source, kernel.ledger.windowRule(source.id));
  return source.mode === "replace" ? [windowGate(dataset.id, window, newestShown(kernel.ledger, subject), runCommand(source.id, window.start_ms, window.end_ms))] : [];
}

/** A gate that is there only where it refuses. @param {any} kernel @param {Subject} subject */
const withdrawn = (kernel, { dataset, source, window }) => [
  ...withdrawalGates(kernel.ledger.withdrawals(dataset.id), source.id, window.start_ms, window.end_ms),
  ...(kernel.ledger.isRenamed(dataset.id) ? [renamedGate(dataset.id)] : []),
];

/** @param {any} kernel @param {Subject} subject @param {boolean} [dryRun] @returns {GateDecision} */
export function atAdmission(kernel, subject, dryRun = false) {
  const { dataset } = subject;
  const approval = usable(kernel, subject);
  const results = [switches(kernel, dataset, false), freezes(kernel, subject), ...windows(kernel, subject), rightsGate(dataset), ...policies(kernel, subject, "run", approval, dryRun), ...withdrawn(kernel, subject)];
  const decision = combine(results, forceRequest(subject));
  return approval ? { ...decision, approval: [approval.request_id, approval.digest] } : decision;
}

/** With the approval that the run's attempt has used up; a dry-run with one that it could use. @param {any} kernel @param {Subject} subject @param {any} report @param {{run?: import("../types.js").Run, dryRun?: boolean}} [about] @returns {GateDecision} */
export function atPromotion(kernel, subject, report, { run, dryRun = false } = {}) {
  const { dataset } = subject;
  const approval = still(kernel, run ? approvalOf(kernel.ledger, run) : usable(kernel, subject), dataset, subject.workBase);
  const results = [
    contractGate(report),
    switches(kernel, dataset, true),
    freezes(kernel, subject),
    ...windows(kernel, subject),
    rightsGate(dataset),
    ...policies(kernel, subject, "publish", approval, dryRun),
    ...withdrawn(kernel, subject),
  ];
  return combine(results, forceRequest(subject));
}

/** May what was promoted be shown now? @param {any} kernel @param {any} dataset @param {import("../types.js").Promotion} head @returns {GateDecision} */
export function atProjection(kernel, dataset, head) {
  const run = kernel.ledger.run(head.run_id);
  const entry = kernel.ledger.newestEntry("promotion", head.run_id);
  const approval = run ? still(kernel, approvalOf(kernel.ledger, run), dataset, run.work_base) : null;
  const context = facts(run?.trigger_type ?? "manual", entry?.rationale ?? null, entry?.ticket ?? null, approval);
  return combine([switches(kernel, dataset, true), rightsGate(dataset), ...kernel.policies.decide("publish", dataset, entry?.actor ?? "unknown", context)]);
}

/** Only the switches: asked when the policy epoch has moved under a running run. @param {any} kernel @param {Subject} subject @returns {GateDecision} */
export const inFlight = (kernel, subject) => combine([switches(kernel, subject.dataset, true)]);
