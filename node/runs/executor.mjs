/** The run executor: one invocation, from admission to the last target. All control flow is here. */

import { settlement } from "../model/admission.mjs";
import { isOpenAttempt } from "../model/approvals.mjs";
import { BackendUnavailable, Busy, Cancelled, CircuitOpen, DataWithdrawn, KfmError, LostLease, PlanDrifted, WorkFailed, codeOnRecord, isA, isSystemError, refusingCodes, strerror } from "../model/errors.mjs";
import { combine, refusal, undeclaredGate } from "../model/gates.mjs";
import { runStep } from "../model/next_steps.mjs";
import { factsOf, heldRun } from "../model/quarantine.mjs";
import { causesOf } from "../model/retry.mjs";
import { advise, attended, budgetEndsMs, hasOpened, judged, kindOf } from "../model/retry_budgets.mjs";
import { reached } from "../model/targets.mjs";
import { head as firstChars } from "../model/wording.mjs";
import { diff } from "../publish/manifest.mjs";
import { StagingPublisher } from "../publish/publisher.mjs";
import { Admission, NotAdmitted } from "./admission.mjs";
import { RunLog } from "./artifacts.mjs";
import * as runGates from "./gates.mjs";
import { HeldLease } from "./lease.mjs";
import { RecordedNodes } from "./nodes.mjs";
import { ending, failedChecks } from "./outcome.mjs";
import { comparePlans, otherTargets, planText } from "./plan.mjs";
import * as preparation from "./preparation.mjs";
import { planFor, traceOf } from "./preview.mjs";
import { judgeReaped } from "./retry.mjs";
import { updateTargets } from "./target_updates.mjs";

/** @typedef {import("./subject.mjs").Subject} Subject */
/** @typedef {import("../types.js").Run} Run */

const ROUNDS_MAX = 10;
/** @type {Record<string, string>} */
const NOTHING = {
  empty: "There is nothing for this window: upstream or the pipeline says so.",
  absent: "Upstream has no data for this window; it stays expected.",
};
const CALLS_MAX = 20; // invocations of a run that are looked at

/** The gates refused at promotion. */
class Denied extends Error {
  /** @param {any} decision @param {any} [report] */
  constructor(decision, report = null) {
    super();
    this.decision = decision;
    this.failedChecks = failedChecks(report);
    this.checksMade = report?.checks.length ?? 0;
  }
}

/** Executes one request. */
export class RunExecutor {
  /** @param {any} kernel @param {Subject} subject @param {import("./admission.mjs").Start} start */
  constructor(kernel, subject, start) {
    this.kernel = kernel;
    this.subject = subject;
    this.start = start;
    this.plan = start.plan;
    this.startedMs = kernel.clock.monotonicMs();
    /** @type {any} */
    this.upstream = null;
    /** @type {any} */
    this.discovered = null;
  }

  async run() {
    try {
      return await this.#answer();
    } finally {
      this.kernel.providers.release();
    }
  }

  async #answer() {
    const { kernel } = this;
    kernel.liveness.claim(kernel.workerId);
    for (const each of kernel.store.reap((/** @type {string} */ id) => kernel.liveness.isDead(id)))
      kernel.log(`recover: run ${each.run_id} was interrupted (${each.lapsed ? "its lease has lapsed" : "its process is gone"}); ${each.scope} is free again`);
    if (!kernel.ledger.hasPolicies(kernel.policies.bundleId)) kernel.store.keepPolicies(kernel.policies.bundleId, kernel.policies.texts);
    judgeReaped(kernel);
    const admission = new Admission(kernel, { start: this.start, fingerprint: async () => (await this.#discover()).fingerprint });
    let answer;
    try {
      await this.#refuseDrift(admission);
      answer = await admission.admit(this.subject);
    } catch (error) {
      if (!(error instanceof NotAdmitted)) throw error;
      const [outcome, word] = ending(error.error);
      return this.#report(outcome, word, kernel.redact(error.error.message), {
        invocation: error.invocation,
        run: error.run,
        error: error.error,
        nextStep: error.run?.status === "failed" ? this.#nextStep(error.run.run_id) : null,
        gates: error.invocation.gates,
      });
    }
    if (!answer.admitted) {
      const { invocation, run } = answer;
      const report = this.#report("noop", "unchanged", answer.reason, { invocation, run, gates: invocation.gates, versionId: run.version_id, sequence: this.#headSequence() });
      return this.#withTargets(report);
    }
    this.subject = answer.subject;
    return this.#work(answer);
  }

  /** A plan that can't come true any more is refused at admission: no run, no key. @param {Admission} admission */
  async #refuseDrift(admission) {
    if (!this.plan) return;
    const planned = this.plan.header;
    const { fingerprint } = await this.#discover();
    /** @type {[string, any, any][]} */
    const now = [
      ["dataset's version", planned.base_sequence, this.#headSequence() ?? 0],
      ["pipeline", planned.output_version, this.subject.work.output_version],
      ["upstream's fingerprint", planned.fingerprint, fingerprint],
    ];
    const drift = now.filter(([, was, is]) => was !== is).map(([what, was, is]) => `the ${what} is ${is}, not ${was}`);
    const elsewhere = otherTargets(planned, reached(this.kernel.settings, this.subject.dataset));
    if (elsewhere) drift.push(elsewhere);
    if (drift.length) admission.refuse(this.subject, new PlanDrifted(`Plan made at ${planned.made_at}: ${drift.join("; ")}.`));
  }

  /** Once per invocation: the comparison at admission and the run see the same upstream. */
  async #discover() {
    this.discovered ??= await preparation.discover(this.#source(), this.subject);
    return this.discovered;
  }

  #source() {
    this.upstream ??= this.kernel.upstream(this.subject.source);
    return this.upstream;
  }

  // --- the work --------------------------------------------------------------------

  /** From here on the run is ours, and whatever happens it gets an end. @param {any} admitted */
  async #work(admitted) {
    const { kernel } = this;
    const { run } = admitted;
    const state = run.attempts > 1 ? kernel.store.retryState(run.run_id) : null;
    const { pipeline } = this.subject.source;
    const known = { ...admitted.known, invocation: admitted.invocation, code: pipeline ? { path: pipeline, sha: this.subject.work.output_version } : null };
    const actsAs = pipeline && !this.subject.source.idempotent ? `pipeline ${pipeline}` : null;
    const endsMs = Math.min(budgetEndsMs(run, state), kernel.store.nowMs() + kernel.runMs(this.subject.source));
    const nodes = new RecordedNodes(kernel, run, admitted.invocation, known, { budgetEndsMs: endsMs, actsAs });
    let log = new RunLog(null, kernel, run, false);
    kernel.observeRetries((/** @type {any} */ retrying) => nodes.retried(retrying));
    let report;
    try {
      log = new RunLog(this.start.artifactsDir ?? `${kernel.runsFolder}/${run.run_id}/attempt-${run.attempts}`, kernel, run, false);
      log.runEvent("run.start", {
        trigger: admitted.invocation.trigger_type,
        window: run.window_spec,
        revision: run.revision,
        reason: admitted.reason,
        idempotency_key: run.idempotency_key,
        work_key: run.work_key,
      });
      report = await this.#attempt(admitted, log, nodes);
    } catch (problem) {
      report = await this.#failed(admitted, problem, log, nodes);
      if (report.outcome === "success") { // the promotion's answer had been lost
        this.#tracePromotion(report);
        this.#traceTargets(report);
      }
    } finally {
      kernel.observeRetries(null);
    }
    try {
      log.runEvent("run.end", { outcome: report.outcome, reason: report.reason, word: report.word });
      // Of a lost one the folder may be the successor's, too.
      if (!(isA(report.error, "LostLease"))) log.ledgerRecord(kernel.store.run(run.run_id) ?? run, admitted.known.key_documents, report.outcome);
    } catch (error) {
      if (!isSystemError(error)) throw error;
      kernel.warn(`artifacts: ${strerror(error)}`); // the ledger has it
    } finally {
      log.close();
    }
    return { ...report, artifactsDir: log.folder };
  }

  /** @param {any} admitted @param {RunLog} log @param {RecordedNodes} nodes */
  async #attempt(admitted, log, nodes) {
    const { kernel, subject } = this;
    const { run } = admitted;
    const lease = new HeldLease(kernel, subject, run, admitted.policyEpoch);
    const check = () => lease.check();
    this.trace = traceOf(kernel, subject, log, run, false);
    const publisher = new StagingPublisher(kernel.objects, this.trace, { limits: kernel.settings.limits, leaks: kernel.leaks, check });
    let report;
    try {
      report = await lease.withHeartbeat(async () => {
        nodes.begin("fetch");
        log.step("discover", subject.source.id);
        const discovered = await this.#discover();
        nodes.discovered(discovered.fingerprint, discovered.found);
        check();
        const prepared = await preparation.prepare(kernel, subject, this.#source(), discovered, kernel.objects, publisher, log, check, nodes, run.run_id);
        nodes.begin("publish", prepared.fingerprint);
        log.step("promote", `${subject.dataset.id} by run ${run.run_id}`, { facts: { fence: run.fence } });
        const promoted = await this.#promote(admitted, prepared, nodes);
        this.#tracePromotion(promoted);
        return promoted;
      });
    } finally {
      publisher.close();
    }
    log.step("project", `version ${report.sequence ?? "None"}`);
    report = await this.#withTargets(report);
    this.#traceTargets(report);
    return report;
  }

  /** @param {any} report */
  #tracePromotion(report) {
    const made = report.word === "published" && report.versionId !== null;
    this.trace?.record("promote", made ? "promoted" : "unchanged", made ? { sequence: report.sequence, version_id: report.versionId } : {});
  }

  /** @param {any} report */
  #traceTargets(report) {
    for (const { target, sequence, error } of report.projections) {
      const shown = sequence === null ? {} : { sequence };
      this.trace?.record("project", error ? "failed" : "shown", { target, ...shown, ...(error ? { error_code: error.code } : {}) });
    }
  }

  /** @param {any} admitted @param {preparation.Prepared} prepared @param {RecordedNodes} nodes */
  async #promote(admitted, prepared, nodes) {
    const { kernel, subject } = this;
    const { run, invocation } = admitted;
    for (let round = 0; round < ROUNDS_MAX; round += 1) {
      // In this order: a switch thrown after the epoch was read moves the epoch.
      const epoch = kernel.store.policyEpoch();
      const head = kernel.store.head(subject.dataset.id);
      const dataset = await kernel.datasetNow(subject.dataset.id);
      const described = dataset ? { ...subject, dataset } : subject; // the gates refuse what is gone
      const decision = dataset ? runGates.atPromotion(kernel, described, prepared.report, { run }) : combine([undeclaredGate(subject.dataset.id)]);
      if (!decision.allowed) throw new Denied(decision, prepared.report);
      const gates = [...invocation.gates, ...decision.results];
      this.#requirePlan(admitted, described, prepared, head, gates);
      const [manifest, version] = preparation.merged(prepared, head, described);
      if (manifest) preparation.requireObjects(manifest, head, kernel.objects);
      nodes.decided(gates);
      nodes.learn({ outputs: prepared.staged.assets, version_id: version || null });
      const facts = { dataset_id: run.dataset_id, version_id: version, policies: kernel.policies.bundleId };
      const answer = kernel.store.promote({
        run_id: run.run_id,
        dataset_id: subject.dataset.id,
        scope: subject.scope,
        fence: run.fence,
        policy_epoch: epoch,
        base_sequence: head ? head[0].sequence : 0,
        fingerprint: prepared.fingerprint,
        version_id: version,
        manifest,
        invocation_id: invocation.invocation_id,
        reason: NOTHING[prepared.found] ?? admitted.reason,
        reason_code: invocation.reason_code,
        gates,
        entries: manifest ? [this.#entry("promotion", run.run_id, facts)] : [],
        states: prepared.staged.states,
        events: prepared.staged.events,
        request_id: admitted.requestId,
        found: prepared.found,
        window_length: manifest && subject.source.mode === "merge" ? [subject.source.id, subject.source.window] : null,
        ...nodes.ending("complete"),
      });
      if (answer.answer === "cancelled") throw new Cancelled(kernel.store.cancelled(run.run_id) ?? "Its request was cancelled.");
      if (answer.answer === "rewindowed") throw new Busy(`The windows of ${subject.source.id} got another length meanwhile.`);
      if (answer.answer === "withdrawn") throw new DataWithdrawn(`${subject.dataset.id}: what this run would publish was withdrawn.`);
      if (answer.answer === "lost") throw new LostLease(`${subject.scope} has passed to another run.`);
      if (!["promoted", "unchanged"].includes(answer.answer)) continue;
      const changed = answer.answer === "promoted";
      let reason = NOTHING[prepared.found] ?? admitted.reason;
      if (prepared.found === "data" && !changed) reason += " The outcome is what is published already.";
      return this.#report("success", changed ? "published" : "unchanged", reason, {
        invocation,
        run: kernel.store.run(run.run_id),
        gates,
        changes: manifest ? diff(head ? head[1] : null, manifest) : [],
        versionId: version || null,
        sequence: answer.sequence || null,
      });
    }
    throw new Busy("Policies or the head kept changing while this run was being promoted.");
  }

  /** What is promoted is what was approved; what a webhook changes is kept before it is changed. @param {any} admitted @param {Subject} subject @param {preparation.Prepared} prepared @param {import("../types.js").Head} head @param {any[]} gates */
  #requirePlan({ run, requestId }, subject, prepared, head, gates) {
    const { store } = this.kernel;
    const isKept = store.requestsOfRun(run.run_id).some((/** @type {any} */ one) => one.kind === "webhook");
    if (!this.plan && !isKept) return;
    const actual = planFor(this.kernel, subject, prepared, head, gates);
    const drift = this.plan ? comparePlans(this.plan, actual) : [];
    if (drift.length) throw new PlanDrifted(`${drift.join("; ")}.`);
    if (isKept) store.keepPreview(requestId, run.run_id, [actual.header.digest, planText(actual)]);
  }

  // --- how it ends -----------------------------------------------------------------

  /** End the run without a promotion, unless it turns out to have been promoted after all. @param {any} admitted @param {unknown} problem @param {RunLog} log @param {RecordedNodes} nodes */
  async #failed(admitted, problem, log, nodes) {
    const { kernel } = this;
    const { run, invocation } = admitted;
    const error = asError(problem, log, kernel.redact);
    const nowMs = kernel.store.nowMs();
    const about = {
      idempotent: this.subject.source.idempotent,
      acted: kernel.store.acts(run.run_id).length > 0,
      nowMs,
      unitRandom: kernel.unitRandom(),
      lastsMs: Math.max(0, nowMs - invocation.requested_at_ms), // as long as this one took
      fingerprint: nodes.inputsHash,
    };
    const state = attended(judged(run, error, kernel.store.retryState(run.run_id), about), runGates.approvalOf(kernel.ledger, run) !== null, nowMs);
    const advice = advise(run, state, kernel.store.nowMs(), isA(error, "Halted"));
    log.step(log.phase, error.message, { level: "error", facts: { code: error.code, error_class: state.error_class } });
    const gates = [...invocation.gates, ...(problem instanceof Denied ? problem.decision.results : (error.facts.gates ?? []))];
    if (!(isA(error, "LostLease"))) {
      nodes.decided(gates);
      const landed = kernel.store.fail(this.#fail(admitted, error, gates, nodes, state));
      const stored = kernel.store.run(run.run_id);
      if (!landed && stored?.status === "success" && stored.fence === run.fence) {
        // The promotion had been committed before its answer was lost.
        const report = this.#report("success", "published", admitted.reason, { invocation, run: stored, versionId: stored.version_id, sequence: this.#headSequence() });
        return this.#withTargets(report);
      }
    }
    const [outcome, word] = ending(error);
    return this.#report(outcome, word, kernel.redact(error.message), {
      invocation,
      run: kernel.store.run(run.run_id),
      error,
      nextStep: isA(error, "LostLease") ? null : this.#nextStep(run.run_id),
      advice: isA(error, "LostLease") ? null : advice,
      gates,
      failedChecks: problem instanceof Denied ? problem.failedChecks : [],
      checksMade: problem instanceof Denied ? problem.checksMade : 0,
    });
  }

  /** What a person does next about a run. @param {string} runId */
  #nextStep(runId) {
    const { store } = this.kernel;
    const run = store.run(runId);
    if (!run || run.status === "success") return null;
    const held = store.heldOf(runId);
    const blocker = refusingCodes().has(run.error_code) ? this.#blocker(runId) : null;
    const nowMs = store.nowMs();
    const attempt = store.requests(run.work_base).find((/** @type {any} */ one) => isOpenAttempt(one, nowMs)) ?? null;
    return runStep(run, { state: store.retryState(runId), held, approval: held && store.waitingRelease(held.held_id), attempt, blocker, nowMs });
  }

  /** The gate that refused the last attempt of a run. @param {string} runId */
  #blocker(runId) {
    const calls = this.kernel.store.invocations(runId, CALLS_MAX); // the newest first
    const ended = calls.find((/** @type {any} */ call) => ["refused", "failed"].includes(call.outcome));
    return ended ? combine(ended.gates.filter((/** @type {any} */ one) => !one.allowed && !one.overridden)).first_blocker : null;
  }

  /** What becomes of the requests of the run. @param {KfmError} error @param {import("../types.js").RetryState} state @returns {import("../model/requests.mjs").Settlement} */
  #settlement(error, state) {
    const [reason, nowMs] = [this.kernel.redact(error.message), this.kernel.store.nowMs()];
    if (isA(error, "Cancelled") && state.fate !== "retry") // others that asked for it still do
      return { not_before_ms: nowMs, blocked_by: "busy", reason: "Another request for it was cancelled." };
    const refusing = /** @type {KfmError | undefined} */ (causesOf(error).find((each) => each instanceof CircuitOpen));
    const outcome = isA(error, "Refused") ? "refused" : "failed";
    return settlement(state, isA(error, "PlanDrifted") ? `Not what was approved: ${reason}` : reason, nowMs, { outcome, provider: refusing?.facts.provider ?? null });
  }

  /** @param {any} admitted @param {KfmError} error @param {any[]} gates @param {RecordedNodes} nodes @param {any} state */
  #fail(admitted, error, gates, nodes, state) {
    const { kernel, subject } = this;
    const { run } = admitted;
    const code = codeOnRecord(error);
    const message = kernel.redact(error.message);
    const kind = kindOf(error);
    nodes.discoveryFailed(kind, hasOpened(error));
    const held = this.#held(run, state, nodes, code, message);
    const stopped = (isA(error, "Cancelled") || isA(error, "Refused")) && !(isA(error, "ContractViolated"));
    const evidence = nodes.ending(stopped ? "abort" : "fail", { error_code: code, error_class: kind.error_class, error_message: message, retryable: kind.retryable });
    const careLabel = subject.dataset.rights?.care.label ?? null;
    return {
      run_id: run.run_id,
      scope: subject.scope,
      fence: run.fence,
      error_code: code,
      error_message: message,
      invocation_id: admitted.invocation.invocation_id,
      outcome: isA(error, "Refused") ? "refused" : "failed",
      gates,
      entries: [...this.#failureEntries(run, error), ...(held ? [this.#entry(held.kind, run.run_id, factsOf(held, careLabel))] : [])],
      pause: this.#pause(error),
      retry: state,
      held,
      settle: this.#settlement(error, state),
      // The request that the attempt was for ends with it.
      cancels: isA(error, "Cancelled") && state.fate !== "retry" ? [admitted.requestId, message] : null,
      ...evidence,
      fingerprint: nodes.fingerprint,
      inputs: nodes.found,
    };
  }

  /** @param {Run} run @param {any} state @param {RecordedNodes} nodes @param {string} error_code @param {string} error_message */
  #held(run, state, nodes, error_code, error_message) {
    if (state.fate === "retry") return null;
    const before = this.kernel.store.attempts(run.run_id).filter((/** @type {any} */ one) => !one.node && one.error_class).map((/** @type {any} */ one) => one.error_class);
    return heldRun(run, state, { payload_hash: nodes.inputsHash, inputs: nodes.known.inputs, error_classes: [...before, state.error_class], error_code, error_message });
  }

  /** @param {Run} run @param {KfmError} error */
  #failureEntries(run, error) {
    const facts = { dataset_id: run.dataset_id, code: error.code, reason: this.kernel.redact(error.message), policies: this.kernel.policies.bundleId };
    if (isA(error, "Halted")) return ["halt", "review", "postmortem"].map((kind) => this.#entry(kind, run.run_id, facts));
    return isA(error, "Refused") ? [this.#entry("gate-refused", run.run_id, facts)] : [];
  }

  /** @param {KfmError} error */
  #pause(error) {
    if (!(isA(error, "Halted"))) return null;
    const rationale = firstChars(this.kernel.redact(error.message), 500);
    return { scope: `dataset:${this.subject.dataset.id}`, position: "paused", rationale, actor: "kfm", set_at_ms: this.kernel.store.nowMs() };
  }

  /** @param {string} kind @param {string} about @param {Record<string, any>} details */
  #entry(kind, about, details) {
    const { actor, rationale, ticket } = this.subject.trigger;
    return { kind, subject: about, actor, recorded_at_ms: this.kernel.store.nowMs(), rationale, ticket, details };
  }

  /** @param {string} outcome @param {string} word @param {string} reason @param {any} more */
  #report(outcome, word, reason, { invocation, ...more }) {
    const { subject, kernel } = this;
    return {
      outcome,
      word,
      reason,
      sourceId: subject.source.id,
      datasetId: subject.dataset.id,
      windowStartMs: subject.window.start_ms,
      windowEndMs: subject.window.end_ms,
      durationMs: kernel.clock.monotonicMs() - this.startedMs,
      invocationId: invocation.invocation_id,
      ...more,
    };
  }

  /** The report, after the dataset's targets were brought up to date. @param {any} report */
  async #withTargets(report) {
    const projections = await updateTargets(this.kernel, this.subject.dataset.id);
    return { ...report, projections, durationMs: this.kernel.clock.monotonicMs() - this.startedMs };
  }

  #headSequence() {
    return this.kernel.ledger.head(this.subject.dataset.id)?.[0].sequence ?? null;
  }
}

/** What went wrong, as an error of ours; the trace of anything unexpected is in the event log. @param {unknown} problem @param {RunLog} log @param {(text: string) => string} redact @returns {KfmError} */
function asError(problem, log, redact) {
  if (problem instanceof Denied) return refusal(problem.decision, true);
  if (problem instanceof KfmError && isA(problem, "PipelineFailed") && problem.cause) log.step("pipeline", stackOf(problem.cause), { level: "error" });
  if (problem instanceof KfmError) return problem;
  if (isSystemError(problem)) return BackendUnavailable.because(`${strerror(problem)}${problem.path ? ` (${problem.path})` : ""}.`, {}, problem);
  log.step(log.phase, stackOf(problem), { level: "error" });
  const found = /** @type {Error} */ (problem);
  return WorkFailed.because(`${found?.constructor?.name ?? typeof problem}: ${redact(String(found?.message ?? problem))}`, {}, problem);
}

/** @param {unknown} problem */
const stackOf = (problem) => String((problem instanceof Error && problem.stack) || problem);
