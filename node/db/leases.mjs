/** Leases on datasets and domains: their holders, expiry, takeover. */

import { holds } from "../model/times.mjs";
import * as rows from "./rows.mjs";

/** @typedef {import("./sqlite.mjs").Session} Session */
/** @typedef {import("../types.js").Lock} Lock */
/** @typedef {(workerId: string) => boolean} Dead */
/** @typedef {import("./outbox.mjs").Journal} Journal */

export const LEASE_EXPIRED = "LEASE_EXPIRED";
export const WORKER_DIED = "WORKER_DIED";
const CANCELLED = "CANCELLED";
export const GONE = "The process that ran it is gone.";
export const COLLECTOR = "gc";

/** @param {Lock} lock @param {number} nowMs */
function lapsed(lock, nowMs) {
  return !holds(lock.lease_until_ms, nowMs);
}

/** @param {Lock} lock @param {number} nowMs @param {Dead} dead */
export function isGone(lock, nowMs, dead) {
  return lock.holder !== null && (lapsed(lock, nowMs) || dead(lock.holder.worker_id));
}

/** @param {Session} session @param {string} scope */
export function lockForUpdate(session, scope) {
  let row = session.one("locks.get_for_update", { scope });
  if (row === null) {
    session.all("locks.ensure", { scope });
    row = session.one("locks.get_for_update", { scope });
  }
  return rows.lockFrom(/** @type {any[]} */ (row));
}

/** @param {Session} session @param {Lock} lock @param {number} fence @param {string | null} worker_id @param {string | null} run_id @param {number} nowMs @param {number} lease_until_ms */
export function take(session, lock, fence, worker_id, run_id, nowMs, lease_until_ms) {
  const taken = session.one("locks.take", { scope: lock.scope, seen_fence: lock.fence, fence, worker_id, run_id, acquired_at_ms: nowMs, lease_until_ms });
  if (taken === null) throw new Error("the lock's row is ours inside this transaction");
}

/** The fence grows, so whatever the last holder still tries is refused. @param {Session} session @param {Lock} lock @param {number} nowMs */
export function free(session, lock, nowMs) {
  take(session, lock, lock.fence + 1, null, null, nowMs, 0);
}

/** The runs that a lock is held for: its holder's, then those that are promoted together with it. @param {Session} session @param {Lock} lock @returns {string[]} */
export function runsUnder(session, lock) {
  const { run_id } = /** @type {NonNullable<Lock["holder"]>} */ (lock.holder);
  const beside = session.all("runs.beside", { run_id, fence: lock.fence }).map((/** @type {any[]} */ row) => String(row[0]));
  // The fence of another scope may be the same number.
  const others = new Set(beside.length ? session.all("locks.held").map((/** @type {any[]} */ row) => row[3]) : []);
  return [run_id, ...beside.filter((/** @type {string} */ one) => !others.has(one))];
}

/** The runs of a holder that is gone have failed; without those that are not its runs any more. @param {Session} session @param {Lock} lock @param {number} nowMs @param {Journal} journal @param {string[]} [runIds] which they were before another run took the lock @param {string | null} [heir] that run: if it is one of them, it goes on */
export function evict(session, lock, nowMs, journal, runIds = runsUnder(session, lock), heir = null) {
  return runIds.flatMap((run_id) => evictRun(session, lock, run_id, nowMs, journal, heir) ?? []);
}

/** @param {Session} session @param {Lock} lock @param {string} run_id @param {number} nowMs @param {Journal} journal @param {string | null} heir */
function evictRun(session, lock, run_id, nowMs, journal, heir) {
  const holder = /** @type {NonNullable<Lock["holder"]>} */ (lock.holder);
  const isLapsed = lapsed(lock, nowMs);
  let [code, reason] = [isLapsed ? LEASE_EXPIRED : WORKER_DIED, GONE];
  const cancelled = session.one("requests.cancelled", { run_id });
  if (cancelled !== null) {
    // Its process was told to stop, and did.
    [code, reason] = [CANCELLED, String(cancelled[0])];
  }
  if (session.one("runs.fail", { run_id, fence: lock.fence, end_time_ms: nowMs, error_code: code, error_message: reason }) === null && run_id !== heir) {
    session.all("invocations.interrupt_earlier", { run_id, reason, reason_code: code });
    return null;
  }
  if (cancelled !== null) session.all("requests.end_cancelled", { run_id, ended_at_ms: nowMs });
  session.all("invocations.interrupt", { run_id, reason, reason_code: code });
  journal.abandon(session, run_id, code, reason, nowMs);
  return { run_id, scope: lock.scope, worker_id: holder.worker_id, lapsed: isLapsed };
}

/** Locks whose runs the twin knows how to end; those of pipeline runs are ended where the next one begins. @param {Lock} lock */
export function isOurs(lock) {
  return lock.scope === COLLECTOR || lock.scope.startsWith("dataset:") || lock.scope.startsWith("domain:");
}

/** Evict every holder that is gone; the runs that this ended. @param {Session} session @param {number} nowMs @param {Dead} dead @param {Journal} journal */
export function sweep(session, nowMs, dead, journal) {
  const reaped = [];
  for (const row of session.all("locks.held")) {
    let lock = rows.lockFrom(row);
    if (!isOurs(lock) || !isGone(lock, nowMs, dead)) continue;
    lock = lockForUpdate(session, lock.scope); // it may have changed hands before we had it
    if (lock.holder === null || !isGone(lock, nowMs, dead)) continue;
    reaped.push(...evict(session, lock, nowMs, journal));
    free(session, lock, nowMs);
  }
  return reaped;
}
