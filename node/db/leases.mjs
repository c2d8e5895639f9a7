/** Leases on datasets and domains: their holders, expiry, takeover. */

import * as rows from "./rows.mjs";

/** @typedef {import("./sqlite.mjs").Session} Session */
/** @typedef {import("../types.js").Lock} Lock */
/** @typedef {(workerId: string) => boolean} Dead */
/** @typedef {import("./outbox.mjs").Journal} Journal */

const LEASE_MAX_MS = 2 * 86_400_000;
export const LEASE_EXPIRED = "LEASE_EXPIRED";
export const WORKER_DIED = "WORKER_DIED";
const CANCELLED = "CANCELLED";
export const GONE = "The process that ran it is gone.";
export const COLLECTOR = "gc";

/** @param {Lock} lock @param {number} nowMs */
function lapsed(lock, nowMs) {
  const left = lock.lease_until_ms - nowMs;
  // A lease beyond any that can be configured was written by a clock that was far ahead.
  return !(left > 0 && left <= LEASE_MAX_MS);
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

/** The run of a holder that is gone has failed; null if it is not the run's holder any more. @param {Session} session @param {Lock} lock @param {number} nowMs @param {Journal} journal @param {string | null} [heir] the run that takes the lock: if it is the same one, it goes on */
export function evict(session, lock, nowMs, journal, heir = null) {
  const holder = /** @type {NonNullable<Lock["holder"]>} */ (lock.holder);
  const { run_id } = holder;
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
    const ended = evict(session, lock, nowMs, journal);
    free(session, lock, nowMs);
    if (ended !== null) reaped.push(ended);
  }
  return reaped;
}
