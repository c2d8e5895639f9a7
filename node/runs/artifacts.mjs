/** The files that a run leaves behind: run.jsonl, event_log.jsonl, publisher_trace.jsonl, idempotency.json. */

import { INT_MAX, canonicalText, pythonFloat } from "../model/canonical.mjs";
import { isSystemError, strerror } from "../model/errors.mjs";
import { attemptId } from "../model/keys.mjs";
import { within } from "../model/redaction.mjs";
import { requireValid } from "../model/schemas.mjs";
import { rfc3339 } from "../model/times.mjs";
import { whole } from "../model/wording.mjs";
import * as files from "../objects/files.mjs";

/** @typedef {import("../types.js").Run} Run */

const NAMES = ["run.jsonl", "event_log.jsonl", "publisher_trace.jsonl"];

/** Writes whole, valid lines. Without a folder it writes nothing: a dry-run without --artifacts. */
export class RunLog {
  /** @param {string | null} folder @param {any} kernel @param {Run} run @param {boolean} dryRun */
  constructor(folder, kernel, run, dryRun) {
    this.folder = folder;
    this.kernel = kernel;
    this.run = run;
    this.dryRun = dryRun;
    this.traceId = attemptId(run.run_id, run.attempts).replaceAll("-", "");
    this.phase = "admit";
    /** @type {Map<string, files.Writer>} */
    this.open = new Map();
    if (folder === null) return;
    files.makeDirs(folder);
    for (const name of NAMES) this.open.set(name, files.fresh(`${folder}/${name}`));
  }

  /** @param {string} name @param {string} schema @param {any} record */
  #line(name, schema, record) {
    if (!this.open.has(name)) return;
    requireValid(schema, record);
    this.#write(name, `${canonicalText(record)}\n`);
  }

  /** A copy of what the ledger knows: that it can't be written is logged once and changes nothing. @param {string} name @param {string} line */
  #write(name, line) {
    const writer = this.open.get(name);
    if (!writer) return;
    try {
      writer.write(line);
    } catch (error) {
      if (!isSystemError(error)) throw error;
      this.kernel.warn(`artifacts: ${name} ends here: ${strerror(error)}`);
      this.open.delete(name);
    }
  }

  /** @param {"run.start" | "run.metrics" | "run.end"} event @param {Record<string, any>} facts */
  runEvent(event, facts) {
    const { run_id, attempts } = this.run;
    const at = rfc3339(this.kernel.clock.nowMs());
    this.#line("run.jsonl", "run-event", { at, event, run_id, attempt: attempts, trace_id: this.traceId, dry_run: this.dryRun, facts: this.#kept(facts) });
  }

  /** @param {string} givenPhase @param {string} givenMessage @param {{level?: "info" | "warning" | "error", facts?: Record<string, any>}} [more] */
  step(givenPhase, givenMessage, { level = "info", facts = {} } = {}) {
    this.phase = givenPhase;
    const [phase, message] = [givenPhase, givenMessage].map((text) => this.kernel.redact(whole(text)));
    this.kernel.log(`${phase}: ${message}`);
    const at = rfc3339(this.kernel.clock.nowMs());
    this.#line("event_log.jsonl", "event-log", { at, run_id: this.run.run_id, trace_id: this.traceId, phase, level, message, facts: this.#kept(facts) });
  }

  /** @param {Record<string, any>} facts */
  #kept(facts) {
    return within(loggable(facts), this.kernel.redact);
  }

  /** The sink of the publisher's trace. @param {string} line */
  traceLine(line) {
    this.#write("publisher_trace.jsonl", line);
  }

  /** idempotency.json: the ledger's row, and what its keys were made of. @param {Run} run @param {Record<string, any>} documents @param {string} outcome */
  ledgerRecord(run, documents, outcome) {
    if (this.folder === null) return;
    const document = idempotencyDocument(run, documents, outcome, this.dryRun);
    requireValid("idempotency", document);
    const path = `${this.folder}/idempotency.json`;
    const writer = files.fresh(`${path}.tmp`);
    writer.write(`${canonicalText(document)}\n`);
    writer.close();
    files.rename(`${path}.tmp`, path);
  }

  close() {
    for (const writer of this.open.values()) writer.close();
    this.open.clear();
  }
}

/** Anything as a value that every reader of JSON takes: what is none becomes its text. @param {any} value @returns {any} */
function loggable(value) {
  if (Array.isArray(value)) return value.map(loggable);
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([name, each]) => [whole(name), loggable(each)]));
  if (value === null || value === undefined) return null;
  if (typeof value === "boolean") return value;
  if (typeof value === "number") return Number.isInteger(value) && Math.abs(value) <= INT_MAX ? value : pythonFloat(value);
  return whole(String(value));
}

/** @param {Run} run @param {Record<string, any>} documents @param {string} outcome @param {boolean} dryRun */
function idempotencyDocument(run, documents, outcome, dryRun) {
  return {
    run_id: run.run_id,
    dataset_id: run.dataset_id,
    pipeline_id: run.pipeline_id,
    idempotency_key: run.idempotency_key,
    work_key: run.work_key,
    revision: run.revision,
    trigger_type: run.trigger_type,
    window_spec: run.window_spec,
    window_start_utc: rfc3339(run.window_start_ms),
    window_end_utc: rfc3339(run.window_end_ms),
    pipeline_version: run.pipeline_version,
    start_time_utc: rfc3339(run.start_time_ms),
    end_time_utc: run.end_time_ms === null ? null : rfc3339(run.end_time_ms),
    status: run.status,
    outcome,
    attempts: run.attempts,
    fence: run.fence,
    fingerprint: run.fingerprint,
    version_id: run.version_id,
    error_code: run.error_code,
    dry_run: dryRun,
    key_documents: { ...("trigger" in documents ? { trigger: documents.trigger } : {}), work: documents.work },
  };
}
