/** The ledger's reads: runs, heads, locks, switches, approvals. */

import { closedBreaker } from "../model/breaker.mjs";
import * as rows from "./rows.mjs";
import { VersionReader } from "./versions.mjs";

/** @typedef {import("./sqlite.mjs").Session} Session */

/** The ledger's reads. Nothing here writes. */
export class LedgerReader {
  /** @param {any} database */
  constructor(database) {
    this.database = database;
    /** @type {Session} */
    this.session = database.session;
    this.versions = new VersionReader(this.session);
  }

  /** @template T @param {string} name @param {Record<string, any>} parameters @param {(row: any[]) => T} from @returns {T | null} */
  #one(name, parameters, from) {
    const row = this.session.one(name, parameters);
    return row ? from(row) : null;
  }

  /** @param {string} work_base */
  latestRun(work_base) {
    return this.#one("runs.latest_of_work", { work_base }, rows.runFrom);
  }

  /** What the first attempt of a run kept of its trigger; null: it began before any was kept. @param {string} run_id @returns {Record<string, any> | null} */
  runDocuments(run_id) {
    return this.#one("run_documents.get", { run_id }, (row) => rows.valueOf(row[0]));
  }

  /** @param {import("../types.js").Work} work */
  latestSuccess(work) {
    const { source_id, window, partition } = work;
    return this.#one("runs.latest_success", { source_id, window_start_ms: window.start_ms, window_end_ms: window.end_ms, partition_key: partition ?? "" }, rows.runFrom);
  }

  /** @param {string} work_base @param {string} correction */
  runOfCorrection(work_base, correction) {
    return this.#one("runs.of_correction", { work_base, correction }, rows.runFrom);
  }

  /** @param {string} run_id */
  run(run_id) {
    return this.#one("runs.by_id", { run_id }, rows.runFrom);
  }

  /** @param {string} dataset_id @returns {import("../types.js").Head} */
  head(dataset_id) {
    return this.#one("promotions.head_with_manifest", { dataset_id }, (row) => [rows.promotionFrom(row.slice(0, -3)), ...this.versions.version(row.at(-3), row.at(-2))]);
  }

  /** Successful runs of a source for windows that end later, the newest window first. @param {string} source_id @param {number} after_ms @param {number} row_limit */
  newerSuccesses(source_id, after_ms, row_limit) {
    return this.session.all("runs.newer_successes", { source_id, after_ms, row_limit }).map(rows.runFrom);
  }

  /** @param {string} version_id */
  manifest(version_id) {
    return this.#one("versions.get", { version_id }, (row) => this.versions.version(row[0], row[1])[0]);
  }

  heads() {
    return this.session.all("promotions.heads").map(rows.promotionFrom);
  }

  /** @param {string} dataset_id @param {number} sequence */
  promotion(dataset_id, sequence) {
    return this.#one("promotions.at", { dataset_id, sequence }, rows.promotionFrom);
  }

  /** @param {string} scope */
  lock(scope) {
    return this.#one("locks.get", { scope }, rows.lockFrom);
  }

  locks() {
    return this.session.all("locks.list").map(rows.lockFrom);
  }

  /** What is withdrawn of a dataset, also what was lifted. @param {string} dataset_id @returns {any[]} */
  withdrawals(dataset_id) {
    return this.session.all("withdrawals.list", { dataset_id }).map(rows.withdrawalFrom);
  }

  /** What is withdrawn from one target alone, also what was lifted. @param {string} dataset_id @returns {any[]} */
  targetWithdrawals(dataset_id) {
    return this.session.all("withdrawals.of_targets", { dataset_id }).map(rows.withdrawalFrom);
  }

  /** Does any renaming have this id or name? @param {string} dataset_id @returns {boolean} */
  isRenamed(dataset_id) {
    return this.session.all("dataset_changes.renames").some((/** @type {any[]} */ row) => row[1] === dataset_id || JSON.parse(row[11]).rename.new === dataset_id);
  }

  /** The window length on record of a source, and the change that made it so; null: none is. @param {string} source_id @returns {any[] | null} */
  windowRule(source_id) {
    return this.session.one("window_rules.get", { source_id });
  }

  /** The number of the last version that a person's change made, and when; null: runs made all of them. @param {string} dataset_id @returns {any[] | null} */
  newestChange(dataset_id) {
    return this.session.one("dataset_changes.newest", { dataset_id });
  }

  switches() {
    return this.session.all("switches.list").map(rows.switchFrom);
  }

  policyEpoch() {
    return Number(/** @type {any[]} */ (this.session.one("policy.epoch"))[0]);
  }

  /** @param {string} work_base */
  forces(work_base) {
    return Number(/** @type {any[]} */ (this.session.one("runs.forces", { work_base }))[0]);
  }

  /** @param {string} kind @param {string} subject */
  newestEntry(kind, subject) {
    return this.#one("governance.about", { kind, subject, row_limit: 1 }, rows.entryFrom);
  }

  /** What each target shows, by dataset and target. @returns {Map<string, number>} */
  projected() {
    return new Map(this.session.all("projections.list").map(([dataset, target, sequence]) => [`${dataset}\n${target}`, sequence]));
  }

  /** @param {string} run_id */
  attempts(run_id) {
    return this.session.all("attempts.of_run", { run_id }).map(rows.attemptFrom);
  }

  /** @param {string} bundle_id */
  hasPolicies(bundle_id) {
    return this.session.one("policies.get", { bundle_id }) !== null;
  }

  /** @param {string} run_id */
  retryState(run_id) {
    return this.#one("retry_states.get", { run_id }, rows.retryStateFrom);
  }

  /** What the attempts of a run may have done outside and must not be repeated, by name. @param {string} run_id @returns {string[]} */
  acts(run_id) {
    return [...new Set(this.session.all("acts.of_run", { run_id }).map((row) => row[1]))];
  }

  /** Why a request of this run, which is under way, is cancelled; null: none is. @param {string} run_id @returns {string | null} */
  cancelled(run_id) {
    return this.#one("requests.cancelled", { run_id }, (row) => row[0]);
  }

  /** The digest of the plan that binds the attempts of a run, if one does. @param {string} run_id @returns {string | null} */
  boundTo(run_id) {
    return this.#one("requests.binding", { run_id }, (row) => row[0]);
  }

  /** The requests that a run answers, the oldest first. @param {string} run_id */
  requestsOfRun(run_id) {
    return this.session.all("requests.of_run", { run_id, row_limit: 50 }).map(rows.requestFrom);
  }

  /** Runs whose process died before anything was decided about them, the oldest first. @param {number} row_limit */
  unjudged(row_limit) {
    return this.session.all("runs.unjudged", { row_limit }).map(rows.runFrom);
  }

  /** @param {string} fingerprint @returns {any[]} */
  inputs(fingerprint) {
    return this.#one("inputs.get", { fingerprint }, (row) => rows.valueOf(row[0])) ?? [];
  }

  /** The newest invocations of a run, the newest first. @param {string} run_id @param {number} row_limit */
  invocations(run_id, row_limit) {
    return this.session.all("invocations.of_run", { run_id, row_limit }).map(rows.invocationFrom);
  }

  /** @param {string} dataset_id */
  halted(dataset_id) {
    return this.#one("held.halted", { dataset_id }, rows.heldFrom);
  }

  /** What of this run is held, if it is. @param {string} run_id */
  heldOf(run_id) {
    return this.#one("held.of_subject", { state: "held", kind: "", dataset_id: "", subject: run_id, row_limit: 1 }, rows.heldFrom);
  }

  /** The request for a release that waits for an approval. @param {string} held_id */
  waitingRelease(held_id) {
    return this.#one("approvals.of_subject", { state: "requested", subject: held_id, row_limit: 1 }, rows.approvalFrom);
  }

  /** Requests about one piece of work, the newest first. @param {string} subject @returns {any[]} */
  requests(subject) {
    return this.session.all("approvals.of_subject", { state: "", subject, row_limit: 20 }).map(rows.approvalFrom);
  }

  /** Approved requests about one piece of work. @param {string} subject */
  approvals(subject) {
    return this.session.all("approvals.of_subject", { state: "approved", subject, row_limit: 1000 }).map(rows.approvalFrom);
  }

  /** @param {string} provider */
  breaker(provider) {
    return this.#one("breakers.get", { provider: rows.storable(provider) }, rows.breakerFrom) ?? closedBreaker(provider);
  }

  /** @param {string} name @returns {string | null} */
  mark(name) {
    return this.#one("marks.get", { name }, (row) => row[0]);
  }

  nowMs() {
    return this.session.nowMs();
  }

  close() {
    this.database.close();
  }
}
