/** The subject of an invocation: the work, its keys, its lock. */

import { canonicalText, sha256Hex } from "../model/canonical.mjs";
import * as keys from "../model/keys.mjs";
import { checkTransition } from "../model/states.mjs";
import { rpartition } from "../model/wording.mjs";

/** @typedef {import("../types.js").Run} Run */
/** @typedef {{source: any, dataset: any, window: import("../types.js").Window, work: import("../types.js").Work, workBase: string, trigger: import("../types.js").Trigger, environment: string, scope: string}} Subject */

// What decides which bytes come out. Not the contract, not the credentials, not the schedule.
const DECISIVE = ["dataset", "kind", "mode", "path", "folder", "pattern", "url", "params", "pagination", "bucket", "prefix", "members"];

/** @param {any} source @param {any} dataset @param {import("../types.js").Window} window @param {string} outputVersion @param {import("../types.js").Trigger} trigger @param {string} environment @returns {Subject} */
export function describe(source, dataset, window, outputVersion, trigger, environment) {
  const work = { source_id: source.id, window, partition: source.partition, output_version: outputVersion };
  const scope = dataset.lock === "domain" ? `domain:${dataset.domain}` : `dataset:${dataset.id}`;
  return { source, dataset, window, work, workBase: keys.workBase(work), trigger, environment, scope };
}

/** The same subject, asked for by force for the n-th time. @param {Subject} subject @param {number} number @returns {Subject} */
export const forced = (subject, number) => ({ ...subject, trigger: { ...subject.trigger, force: number } });

/** The row for one revision of the work, on its first attempt. @param {Subject} subject @param {number} revision @param {number} nowMs @returns {Run} */
export function newRun(subject, revision, nowMs) {
  checkTransition("run", null, "running", "started");
  const { trigger, work, source } = subject;
  const workKey = keys.workKey(work, revision);
  return {
    run_id: keys.runId(subject.environment, workKey),
    source_id: work.source_id,
    dataset_id: trigger.dataset_id,
    pipeline_id: source.id,
    idempotency_key: keys.triggerKey(trigger, work, revision),
    work_key: workKey,
    work_base: subject.workBase,
    revision,
    trigger_type: trigger.type,
    window_spec: work.window.spec,
    window_start_ms: work.window.start_ms,
    window_end_ms: work.window.end_ms,
    partition: work.partition,
    pipeline_version: work.output_version,
    status: "running",
    attempts: 1,
    fence: 0,
    start_time_ms: nowMs,
    end_time_ms: null,
    fingerprint: null,
    version_id: null,
    error_code: null,
    error_message: null,
    force: trigger.force ?? 0,
    correction: trigger.correction ?? null,
    outcome: null,
  };
}

/** The next attempt of a run that failed, or whose holder is gone. @param {Run} run @returns {Run} */
export function again(run) {
  checkTransition("run", run.status, "running", run.status === "failed" ? "retried" : "taken_over");
  return { ...run, status: "running", attempts: run.attempts + 1, fence: run.fence + 1, end_time_ms: null, error_code: null, error_message: null };
}

/** Declared, or a hash of the pipeline's own files. @param {any} source @param {any[]} members @param {(path: string) => Uint8Array} read @returns {string} */
export function outputVersion(source, members, read) {
  if (source.output_version !== null) return source.output_version;
  const all = [source, ...members];
  const document = {
    kfm: "output/1",
    sources: all.map((each) => Object.fromEntries(DECISIVE.map((name) => [name, each[name]]))),
    files: all.filter((each) => each.pipeline).map((each) => sha256Hex(read(rpartition(each.pipeline, ":")[0]))),
  };
  return `auto-${sha256Hex(canonicalText(document)).slice(0, 16)}`;
}
