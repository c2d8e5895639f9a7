/** Requests of runs: made at admission, ended or put off with their run. */

import { spreadMs } from "../model/requests.mjs";
import { WAIT_MAX_MS } from "../model/times.mjs";
import * as rows from "./rows.mjs";

/** @typedef {import("./sqlite.mjs").Session} Session */

/** @param {Session} session @param {import("../types.js").UpdateRequest} request */
export function accept(session, request) {
  session.all("requests.accept", rows.requestParameters(request));
}

/** Also one that waits no more, because its runner was taken for lost when it was cancelled. @param {Session} session @param {string | undefined} request_id */
export function isCancelled(session, request_id) {
  const row = request_id === undefined ? null : session.one("requests.get", { request_id });
  return row !== null && rows.requestFrom(row).cancel !== null;
}

/** The text of a plan, under its digest. @param {Session} session @param {[string, string] | null} plan */
export function keepPreview(session, plan) {
  if (plan) session.all("previews.insert", { digest: plan[0], plan: plan[1], made_at_ms: session.nowMs() });
}

/** The requests of a run have their answer, all but those that are cancelled; the ids. @param {Session} session @param {string} run_id @param {string} outcome @param {string} reason @param {number} nowMs @returns {string[]} */
export function endWithRun(session, run_id, outcome, reason, nowMs) {
  return session.all("requests.ended_with", { run_id, outcome, reason: rows.storable(reason), ended_at_ms: nowMs }).map((row) => row[0]);
}

/** When it is looked at again. Only the end of a freeze may be further ahead: no clock has made it. @param {import("../model/requests.mjs").PutOff} later @param {number} nowMs */
const withinADay = (later, nowMs) => (later.blocked_by === "freeze" ? later.not_before_ms : Math.min(later.not_before_ms, nowMs + WAIT_MAX_MS));

/** An attempt of a run has ended without success: so do its requests, or they wait for the next one. @param {Session} session @param {string} run_id @param {import("../model/requests.mjs").Settlement} settlement @param {number} nowMs */
export function settleRun(session, run_id, settlement, nowMs) {
  const cancelled = session.all("requests.end_cancelled", { run_id, ended_at_ms: nowMs });
  if ("state" in settlement) endWithRun(session, run_id, settlement.outcome ?? "failed", settlement.reason, nowMs);
  else session.all("requests.put_off", { ...settlement, run_id, not_before_ms: withinADay(settlement, nowMs), reason: rows.storable(settlement.reason) });
  // If no other request asks for it, the attempt that was just promised is not made.
  if (cancelled.length) session.all("retry_states.unwanted", { run_id, now_ms: nowMs });
}

/** What waits never begins; what runs is told to stop. @param {Session} session @param {string} request_id @param {string} given */
export function cancel(session, request_id, given) {
  const [now_ms, reason] = [session.nowMs(), rows.storable(given)];
  const waited = session.one("requests.cancel_waiting", { request_id, reason, ended_at_ms: now_ms });
  if (waited === null) session.one("requests.cancel_running", { request_id, reason });
  else if (waited[0] !== null) session.all("retry_states.unwanted", { run_id: waited[0], now_ms });
}

/** What waited for this is due, spread over some seconds. @param {Session} session @param {string} blocked_by */
export function wake(session, blocked_by) {
  const nowMs = session.nowMs();
  for (const [request_id] of session.all("requests.blocked", { blocked_by })) {
    const not_before_ms = nowMs + spreadMs(request_id);
    session.all("requests.wake", { request_id, blocked_by, not_before_ms });
    session.all("retry_states.hasten", { request_id, not_before_ms });
  }
}
