/** A dry-run: the same decisions and the same work, with nothing to write with. */

import { mayStart } from "../model/admission.mjs";
import { refusal } from "../model/gates.mjs";
import * as files from "../objects/files.mjs";
import { reached } from "../model/targets.mjs";
import { mergeItems } from "../publish/manifest.mjs";
import { NoopPublisher } from "../publish/publisher.mjs";
import { Trace } from "../publish/publisher_trace.mjs";
import { askedFor, compared, errorOf, factsOfRun, keyDocuments } from "./admission.mjs";
import { RunLog } from "./artifacts.mjs";
import * as runGates from "./gates.mjs";
import { Unrecorded } from "./nodes.mjs";
import { ending, failedChecks } from "./outcome.mjs";
import { makePlan, planText } from "./plan.mjs";
import * as preparation from "./preparation.mjs";
import { forced, newRun } from "./subject.mjs";

/** @typedef {import("./subject.mjs").Subject} Subject */

/** @param {any} kernel @param {Subject} given @param {import("./admission.mjs").Start} start */
export async function preview(kernel, given, start) {
  const { artifactsDir } = start;
  const startedMs = kernel.clock.monotonicMs();
  const subject = start.force ? forced(given, kernel.ledger.forces(given.workBase) + 1) : given;
  const admission = runGates.atAdmission(kernel, subject, true);
  const asked = askedFor(subject, start);
  const seen = kernel.ledger.latestRun(subject.workBase);
  const known = factsOfRun(kernel, subject, seen, admission);
  let decision = mayStart(asked, seen, known, kernel.ledger.nowMs());
  const run = seen ?? newRun(subject, decision.revision, kernel.clock.nowMs());
  const head = kernel.ledger.head(subject.dataset.id);
  const documents = keyDocuments(kernel.ledger, subject, run.revision, seen);
  const log = new RunLog(artifactsDir, kernel, run, true);
  const report = (/** @type {string} */ outcome, /** @type {string} */ word, /** @type {string} */ reason, /** @type {any} */ more) => {
    log.runEvent("run.end", { outcome, reason });
    log.ledgerRecord(run, documents, outcome);
    return {
      outcome,
      word,
      reason,
      sourceId: subject.source.id,
      datasetId: subject.dataset.id,
      windowStartMs: subject.window.start_ms,
      windowEndMs: subject.window.end_ms,
      invocationId: null,
      run: seen,
      artifactsDir,
      sequence: head?.[0].sequence ?? null,
      durationMs: kernel.clock.monotonicMs() - startedMs,
      ...more,
    };
  };
  try {
    log.runEvent("run.start", { trigger: subject.trigger.type, window: subject.window.spec, verdict: decision.kind });
    const upstream = kernel.upstream(subject.source);
    let discovered = null;
    if (decision.kind === "compare") {
      discovered = await preparation.discover(upstream, subject);
      decision = mayStart(asked, seen, compared(kernel.ledger, subject, seen, known, discovered.fingerprint), kernel.ledger.nowMs());
    }
    if (decision.kind === "duplicate") return report("noop", "unchanged", decision.reason, { gates: admission.results });
    if (["refused", "waits"].includes(decision.kind)) {
      const error = errorOf(decision, admission, () => "");
      const [outcome, word] = ending(error);
      return report(outcome, word, error.message, { error, gates: admission.results });
    }
    discovered ??= await preparation.discover(upstream, subject);
    const { plan, allowed, prepared } = await planned(kernel, subject, upstream, discovered, run, log, admission, decision.revision);
    if (artifactsDir !== null) {
      const writer = files.fresh(`${artifactsDir}/plan.jsonl`);
      writer.write(planText(plan));
      writer.close();
    }
    const facts = { plan, gates: plan.header.gates, changes: plan.changes, versionId: plan.header.version_id };
    if (allowed.allowed) return report("planned", "planned", decision.reason, facts);
    const error = refusal(allowed, true);
    return report("refused", "blocked", error.message, { error, failedChecks: failedChecks(prepared.report), checksMade: prepared.report?.checks.length ?? 0, ...facts });
  } finally {
    log.close();
  }
}

/** @param {any} kernel @param {Subject} subject @param {any} upstream @param {any} discovered @param {import("../types.js").Run} run @param {RunLog} log @param {any} admission @param {number} revision */
async function planned(kernel, subject, upstream, discovered, run, log, admission, revision) {
  const objects = kernel.scratch();
  const publisher = new NoopPublisher(traceOf(kernel, subject, log, run, true), { scratch: objects, limits: kernel.settings.limits, leaks: kernel.leaks });
  let prepared;
  try {
    // The run that would do it: what is published names it.
    const runId = newRun(subject, revision, run.start_time_ms).run_id;
    prepared = await preparation.prepare(kernel, subject, upstream, discovered, objects, publisher, log, () => {}, new Unrecorded(kernel), runId);
    publisher.noopGuard();
  } finally {
    publisher.close();
  }
  const allowed = runGates.atPromotion(kernel, subject, prepared.report, { dryRun: true });
  const head = kernel.ledger.head(subject.dataset.id);
  return { plan: planFor(kernel, subject, prepared, head, [...admission.results, ...allowed.results]), allowed, prepared };
}

/** What promoting this over that head would change. @param {any} kernel @param {Subject} subject @param {preparation.Prepared} prepared @param {import("../types.js").Head} head @param {any[]} gates */
export function planFor(kernel, subject, prepared, head, gates) {
  const old = head ? head[1] : null;
  const manifest = prepared.item ? mergeItems(old, subject.dataset, [prepared.item], subject.source.mode) : old;
  const { start_ms, end_ms, spec } = subject.window;
  return makePlan({
    base: head,
    manifest: manifest ?? mergeItems(null, subject.dataset, [], "merge"),
    source_id: subject.source.id,
    partition: subject.work.partition,
    window: { start_ms, end_ms, spec },
    fingerprint: prepared.fingerprint,
    output_version: subject.work.output_version,
    gates,
    targets: reached(kernel.settings, subject.dataset),
    kfm_version: kernel.version,
    made_at_ms: kernel.clock.nowMs(),
  });
}

/** The publisher's trace of one attempt; names of data that is not public are masked in it. @param {any} kernel @param {Subject} subject @param {RunLog} log @param {import("../types.js").Run} run @param {boolean} dryRun */
export function traceOf(kernel, subject, log, run, dryRun) {
  const restricted = subject.dataset.rights?.care.level !== "public";
  return new Trace((line) => log.traceLine(line), () => kernel.clock.nowMs(), run.run_id, { publisher: dryRun ? "noop" : "staging", dryRun, restricted });
}
