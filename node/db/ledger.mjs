/**
 * The idempotency ledger: the file that Python's runners use, with the same statements in the same transactions.
 *
 * Each method that changes something is one transaction; its answer says whether it landed.
 */

import { isWithdrawn } from "../model/withdrawals.mjs";
import { checkTransition } from "../model/states.mjs";
import { itemFrom } from "../model/version_trees.mjs";
import { sortedByPoints } from "../model/wording.mjs";
import * as governance from "./governance.mjs";
import * as leases from "./leases.mjs";
import { LedgerReader } from "./ledger_reader.mjs";
import { Journal } from "./outbox.mjs";
import * as requests from "./requests.mjs";
import * as rows from "./rows.mjs";
import { putVersion } from "./versions.mjs";

/** @typedef {import("../types.js").Run} Run */
/** @typedef {import("./sqlite.mjs").Session} Session */

const MASKED_NAMES = "masked_names"; // the mark that remembers every name that was ever masked

/** Roll back, and answer this. */
class Undo extends Error {
  /** @param {any} answer */
  constructor(answer) {
    super(answer.answer);
    this.answer = answer;
  }
}

/** The ledger's writes. */
export class Ledger extends LedgerReader {
  /** @param {import("./sqlite.mjs").SqliteDatabase} database @param {any} emitter @param {any} renderer */
  constructor(database, emitter, renderer) {
    super(database);
    this.journal = new Journal(emitter, renderer);
  }

  /** Key, gate decision and lock, together or not at all. @param {any} request @param {leases.Dead} dead @returns {{answer: string, run?: Run | null, lock?: import("../types.js").Lock}} */
  admit(request, dead) {
    return this.database.write((/** @type {Session} */ session) => this.#admit(session, request, dead));
  }

  /** @param {Session} session @param {any} request @param {leases.Dead} dead */
  #admit(session, request, dead) {
    const nowMs = session.nowMs();
    const collecting = rows.lockFrom(/** @type {any[]} */ (session.one("locks.get_for_share", { scope: leases.COLLECTOR })));
    const lock = leases.lockForUpdate(session, request.scope);
    if (governance.heldEpoch(session) !== request.policy_epoch) return { answer: "epoch-moved" };
    for (const held of [lock, collecting]) if (held.holder !== null && !leases.isGone(held, nowMs, dead)) return { answer: "locked", lock: held };
    if (collecting.holder !== null) leases.free(session, collecting, nowMs);
    if (!isUsable(session, request.approval, nowMs)) return { answer: "moved" };
    if (isJudgedAnew(session, request)) return { answer: "moved" };
    const wasFor = lock.holder !== null ? leases.runsUnder(session, lock) : [];
    // Above the run's own fence, too: its scope may have been another one last time.
    const fence = Math.max(lock.fence, request.seen?.fence ?? 0) + 1;
    const stored = storeRun(session, { ...request.run, fence }, request.seen);
    if (stored === null) return { answer: "moved" };
    if (lock.holder !== null) leases.evict(session, lock, nowMs, this.journal, wasFor, stored.run_id);
    leases.take(session, lock, fence, request.worker_id, request.run.run_id, nowMs, nowMs + request.lease_ms);
    if (request.asked) requests.accept(session, request.asked);
    requests.keepPreview(session, request.plan ?? null);
    session.all("invocations.insert", rows.invocationParameters(request.invocation));
    if (request.seen) this.journal.abandon(session, stored.run_id, leases.LEASE_EXPIRED, leases.GONE, nowMs);
    else session.all("run_documents.insert", { run_id: stored.run_id, documents: kept(request) });
    this.journal.admitted(session, request, stored, nowMs);
    if (request.grant) session.all("retry_states.put", request.grant);
    if (request.approval) session.one("approvals.use", { request_id: request.approval[0], used_by: stored.run_id, used_attempt: stored.attempts, used_at_ms: nowMs });
    governance.append(session, request.entries);
    return { answer: "admitted", run: stored };
  }

  /** Record an invocation that started no run: a no-op, a refusal, a busy answer. @param {import("../types.js").Invocation} invocation @param {any[]} [entries] @param {any} [known] */
  recordInvocation(invocation, entries = [], known = null) {
    this.database.write((/** @type {Session} */ session) => {
      session.all("invocations.insert", rows.invocationParameters(invocation));
      if (known) this.journal.notAdmitted(session, invocation, known, session.nowMs());
      if (invocation.outcome === "noop" && invocation.run_id) this.#foundDone(session, invocation.run_id);
      governance.append(session, entries);
    });
  }

  /** The work was asked for again and is done: requests for its window that are held are settled. @param {Session} session @param {string} run_id */
  #foundDone(session, run_id) {
    const nowMs = session.nowMs();
    if (!session.all("held.resolve_requests", { run_id, released_at_ms: nowMs }).length) return;
    const run = rows.runFrom(/** @type {any[]} */ (session.one("runs.by_id", { run_id })));
    this.journal.incidents.succeeded(session, run, nowMs, run.outcome !== "absent");
  }

  /** The policy epoch, and why its request is cancelled if it is; null if the lease is not ours. The claims of the requests that the run works for are renewed with it. @param {string} scope @param {number} fence @param {number} leaseMs @returns {[number, string | null] | null} */
  renew(scope, fence, leaseMs) {
    return this.database.write((/** @type {Session} */ session) => {
      const until_ms = session.nowMs() + leaseMs;
      const row = session.one("locks.renew", { scope, fence, lease_until_ms: until_ms });
      if (row === null) return null;
      const run_id = row[1];
      if (run_id) session.all("requests.renew_of_run", { run_id, until_ms });
      const cancel = run_id ? session.one("requests.cancelled", { run_id }) : null;
      return [Number(/** @type {any[]} */ (session.one("policy.epoch"))[0]), cancel ? cancel[0] : null];
    });
  }

  /** @param {any} request @returns {boolean} */
  step(request) {
    return this.database.write((/** @type {Session} */ session) => this.journal.step(session, request));
  }

  /** The version, the pointer, the run's success and the lock's release in one transaction. @param {any} request @returns {{answer: string, sequence: number}} */
  promote(request) {
    const staged = request.manifest ? this.versions.stage(request.dataset_id, request.manifest) : null;
    try {
      return this.database.write((/** @type {Session} */ session) => this.#promote(session, request, staged));
    } catch (error) {
      if (error instanceof Undo) return error.answer;
      throw error;
    }
  }

  /** @param {Session} session @param {any} request @param {import("./versions.mjs").Staged | null} staged on top of the head that the request names */
  #promote(session, request, staged) {
    const { run_id, dataset_id, scope, fence, version_id } = request;
    const row = session.one("locks.get_for_update", { scope });
    const lock = row ? rows.lockFrom(row) : null;
    if (!(lock && lock.fence === fence && lock.holder?.run_id === run_id)) return { answer: "lost", sequence: 0 };
    if (governance.heldEpoch(session) !== request.policy_epoch) return { answer: "epoch-moved", sequence: 0 };
    const head = session.one("promotions.head", { dataset_id });
    let sequence = head ? rows.promotionFrom(head).sequence : 0;
    if (sequence !== request.base_sequence) return { answer: "head-moved", sequence };
    if (staged && bringsWithdrawn(session, dataset_id, staged)) return { answer: "withdrawn", sequence };
    if (request.window_length && !keepLength(session, request.window_length)) return { answer: "rewindowed", sequence };
    const nowMs = session.nowMs();
    const succeeded = session.one("runs.succeed", { run_id, fence, end_time_ms: nowMs, fingerprint: request.fingerprint, version_id, outcome: outcomeOf(request) });
    if (succeeded === null) return { answer: "lost", sequence: 0 }; // taken over under another scope
    const answered = requests.endWithRun(session, run_id, "success", request.reason, nowMs);
    if (!answered.includes(request.request_id) && requests.isCancelled(session, request.request_id)) throw new Undo({ answer: "cancelled", sequence: 0 });
    if (staged) {
      sequence += 1;
      putVersion(session, version_id, dataset_id, staged);
      const landed = session.one("promotions.insert", { dataset_id, sequence, version_id, run_id, fence, policy_epoch: request.policy_epoch, promoted_at_ms: nowMs });
      // A run with a lock of another scope promoted between our look and our row.
      if (landed === null) throw new Undo({ answer: "head-moved", sequence: 0 });
    }
    session.all("invocations.finish", { run_id, invocation_id: request.invocation_id, outcome: "success", reason: rows.storable(request.reason), reason_code: request.reason_code, gates: rows.proseOf(request.gates) });
    for (const [state_key, value] of request.states) session.all("states.set", { dataset_id, state_key, value: rows.textOf(value), run_id });
    for (const [event_type, payload] of request.events) session.all("events.append", { run_id, dataset_id, event_type, payload: rows.textOf(payload), emitted_at_ms: nowMs });
    session.all("locks.release", { scope, fence });
    const run = rows.runFrom(/** @type {any[]} */ (session.one("runs.by_id", { run_id })));
    this.journal.end(session, request.closes, request.retries, run, nowMs);
    session.all("retry_states.remove", { run_id });
    session.all("held.resolve_work", { run_id, released_at_ms: nowMs });
    this.journal.incidents.succeeded(session, run, nowMs, outcomeOf(request) !== "absent");
    // What the version was given in this transaction, in the chain, too: else its row could tell another.
    const placed = (/** @type {any} */ entry) => entry.kind !== "promotion" ? entry : { ...entry, recorded_at_ms: nowMs, details: { ...entry.details, sequence, policy_epoch: request.policy_epoch } };
    governance.append(session, request.entries.map(placed));
    return { answer: request.manifest ? "promoted" : "unchanged", sequence };
  }

  /** The end of an attempt without a promotion; false if the run has passed to another process. @param {any} request @returns {boolean} */
  fail(request) {
    return this.database.write((/** @type {Session} */ session) => {
      const { run_id, scope, fence } = request;
      const nowMs = session.nowMs();
      session.one("locks.get_for_update", { scope });
      const error_message = rows.storable(request.error_message);
      const landed = session.one("runs.fail", { run_id, fence, end_time_ms: nowMs, error_code: request.error_code, error_message });
      session.all("invocations.finish", { run_id, invocation_id: request.invocation_id, outcome: request.outcome, reason: error_message, reason_code: request.error_code, gates: rows.proseOf(request.gates) });
      if (landed === null) return false;
      const run = rows.runFrom(/** @type {any[]} */ (session.one("runs.by_id", { run_id })));
      this.journal.discovered(session, request.fingerprint, request.inputs);
      this.journal.end(session, request.closes, request.retries, run, nowMs);
      this.#ended(session, request.retry, request.held, nowMs);
      if (request.cancels) requests.cancel(session, request.cancels[0], request.cancels[1]);
      requests.settleRun(session, run_id, request.settle, nowMs);
      if (request.pause) governance.setSwitch(session, request.pause);
      this.journal.incidents.gaveUp(session, request.held, request.retry, nowMs, Boolean(request.pause));
      session.all("locks.release", { scope, fence });
      governance.append(session, request.entries);
      return true;
    });
  }

  /** @param {Session} session @param {any} state @param {any} held @param {number} nowMs */
  #ended(session, state, held, nowMs) {
    session.all("retry_states.put", state);
    if (held) session.all("held.put", rows.heldParameters(held));
    else session.all("held.resolve", { subject: state.run_id, released_at_ms: nowMs, released_by: `attempt ${state.attempt}` });
  }

  /** Decide about a run that has ended already; false if it was decided on or retried meanwhile. @param {any} request @returns {boolean} */
  judge({ run, seen, retry, held, entries, settle }) {
    return this.database.write((/** @type {Session} */ session) => {
      const { run_id, attempts } = run;
      if (session.one("runs.ended", { run_id, attempts }) === null) return false;
      const row = session.one("retry_states.get", { run_id });
      if (JSON.stringify(row ? rows.retryStateFrom(row) : null) !== JSON.stringify(seen)) return false;
      const nowMs = session.nowMs();
      session.all("retry_states.put", retry);
      if (held) session.all("held.put", rows.heldParameters(held));
      this.journal.incidents.gaveUp(session, held, retry, nowMs, false);
      requests.settleRun(session, run_id, settle, nowMs);
      governance.append(session, entries);
      return true;
    });
  }

  /** What is about to be changed, before it is: for this request, and for all that end with its run. @param {string} request_id @param {string} run_id @param {[string, string]} plan */
  keepPreview(request_id, run_id, plan) {
    this.database.write((/** @type {Session} */ session) => {
      requests.keepPreview(session, plan);
      session.all("requests.previewed", { request_id, run_id, plan_digest: plan[0] });
    });
  }

  /** End the runs whose holder is gone, and free their locks. @param {leases.Dead} dead @returns {any[]} */
  reap(dead) {
    const nowMs = this.nowMs();
    if (!this.locks().some((lock) => leases.isOurs(lock) && leases.isGone(lock, nowMs, dead))) return [];
    return this.database.write((/** @type {Session} */ session) => leases.sweep(session, session.nowMs(), dead, this.journal));
  }

  /** The circuit breaker before and after. What changes nothing takes no transaction. @param {string} given @param {(breaker: import("../types.js").Breaker, nowMs: number) => import("../types.js").Breaker} decide */
  changeBreaker(given, decide) {
    const provider = rows.storable(given);
    const now = this.breaker(provider);
    if (sameBreaker(decide(now, this.nowMs()), now)) return [now, now];
    return this.database.write((/** @type {Session} */ session) => {
      session.all("breakers.ensure", { provider });
      const seen = rows.breakerFrom(/** @type {any[]} */ (session.one("breakers.get_for_update", { provider })));
      const decided = decide(seen, session.nowMs());
      const kept = sameBreaker(decided, seen) ? seen : decided;
      if (kept !== seen) {
        const before = Object.fromEntries(Object.entries(seen).map(([name, value]) => [`seen_${name}`, value]));
        session.one("breakers.change", { ...kept, ...before });
      }
      if (seen.state !== "closed" && kept.state === "closed") requests.wake(session, `circuit:${provider}`);
      this.journal.incidents.circuit(session, seen, kept, session.nowMs());
      return [seen, kept];
    });
  }

  /** @param {string} dataset_id @param {string} target @param {number} sequence */
  raiseProjected(dataset_id, target, sequence) {
    this.database.write((/** @type {Session} */ session) => session.all("projections.raise", { dataset_id, target, sequence }));
  }

  /** @param {string} bundle_id @param {Record<string, string>} texts */
  keepPolicies(bundle_id, texts) {
    this.database.write((/** @type {Session} */ session) => session.all("policies.keep", { bundle_id, texts: rows.textOf(texts) }));
  }

  /** @param {string} name @param {string} value @returns {string} */
  ensureMark(name, value) {
    return this.database.write((/** @type {Session} */ session) => {
      session.all("marks.ensure", { name, value });
      return /** @type {any[]} */ (session.one("marks.get", { name }))[0];
    });
  }

  /** From now on windows are expected of these sources, by these rules, unless that is known. @param {[string, string][]} rules */
  rememberExpectations(rules) {
    const known = new Set(this.session.all("expectations.list", {}).map(([source, rule]) => `${source} ${rule}`));
    const fresh = rules.filter(([source, rule]) => !known.has(`${source} ${rule}`));
    if (!fresh.length) return;
    this.database.write((/** @type {Session} */ session) => {
      const since_ms = session.nowMs();
      for (const [source_id, rule] of fresh) session.all("expectations.ensure", { source_id, rule, since_ms });
    });
  }

  /** Masked names, by dataset, are kept for good: they stay masked when no configuration has them. @param {Record<string, string[]>} names */
  rememberNames(names) {
    if (!Object.keys(names).length) return;
    const known = rows.valueOf(this.mark(MASKED_NAMES) ?? "{}");
    if (Object.entries(names).every(([dataset, some]) => some.every((name) => known[dataset]?.includes(name)))) return;
    this.database.write((/** @type {Session} */ session) => {
      session.all("marks.ensure", { name: MASKED_NAMES, value: "{}" });
      const [seen] = /** @type {any[]} */ (session.one("marks.get", { name: MASKED_NAMES }));
      const merged = rows.valueOf(seen);
      for (const [dataset, some] of Object.entries(names)) merged[dataset] = sortedByPoints([...new Set([...(merged[dataset] ?? []), ...some])]);
      session.all("marks.move", { name: MASKED_NAMES, seen, value: rows.textOf(merged) });
    });
  }
}

/** Would this version bring anything that may not be published? Its head holds nothing such. @param {Session} session @param {string} dataset_id @param {import("./versions.mjs").Staged} staged */
function bringsWithdrawn(session, dataset_id, { items }) {
  const withdrawals = session.all("withdrawals.list", { dataset_id }).map(rows.withdrawalFrom);
  return withdrawals.length > 0 && isWithdrawn(withdrawals, items.map(([digest, document]) => itemFrom(digest, document)));
}

/** What a successful run came to. @param {any} request */
function outcomeOf({ found, manifest }) {
  if (found !== "data") return found;
  return manifest ? "published" : "unchanged";
}

/** @param {import("../types.js").Breaker} one @param {import("../types.js").Breaker} other */
function sameBreaker(one, other) {
  return Object.keys(one).every((name) => /** @type {any} */ (one)[name] === /** @type {any} */ (other)[name]);
}

/** What later attempts tell of the first: the document of the run's key, its envelope, what asked. @param {any} request @returns {string} */
function kept({ known, invocation }) {
  const { work: _work, ...documents } = known.key_documents;
  return rows.proseOf({ ...documents, first: { type: invocation.trigger_type, actor: invocation.actor } });
}

/** May an attempt begin with this approval? @param {Session} session @param {[string, string] | null} approval @param {number} now_ms */
function isUsable(session, approval, now_ms) {
  return !approval || session.one("approvals.usable", { request_id: approval[0], digest: approval[1], now_ms }) !== null;
}

/** Insert a new run, or restart the one that was seen; null if its row has changed since. @param {Session} session @param {Run} run @param {Run | null} seen */
function storeRun(session, run, seen) {
  if (seen === null) {
    checkTransition("run", null, run.status, "started");
    return session.one("runs.insert", rows.runParameters(run)) ? run : null;
  }
  checkTransition("run", seen.status, run.status, seen.status === "failed" ? "retried" : "taken_over");
  const { run_id, attempts, fence } = run;
  return session.one("runs.restart", { run_id, attempts, fence, seen_fence: seen.fence, seen_attempts: seen.attempts }) ? run : null;
}

/** The length of a source's windows is on record with its first version; false: it is another one by now. @param {Session} session @param {[string, string]} length */
function keepLength(session, [source_id, window_length]) {
  session.all("window_rules.ensure", { source_id, window_length });
  return session.one("window_rules.get", { source_id })?.[0] === window_length;
}

/** Has the last attempt ended, or was something else decided about it, meanwhile? Then nothing begins before its time. Locks the run's row, as who decides does. @param {Session} session @param {any} request */
function isJudgedAnew(session, { seen, judged }) {
  if (!seen) return false;
  const hasFailed = session.one("runs.ended", { run_id: seen.run_id, attempts: seen.attempts }) !== null;
  if (!hasFailed || seen.status !== "failed") return hasFailed !== (seen.status === "failed");
  const row = session.one("retry_states.get", { run_id: seen.run_id });
  return JSON.stringify(row ? rows.retryStateFrom(row) : null) !== JSON.stringify(judged ?? null);
}
