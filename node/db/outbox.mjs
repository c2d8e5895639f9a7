/** The outbox: attempts and their lineage events, written in the transaction that they report. */

import { circumstances, newAttempt } from "../model/attempts.mjs";
import { attemptId } from "../model/keys.mjs";
import { IncidentTracker } from "./incidents.mjs";
import * as rows from "./rows.mjs";

/** @typedef {import("./sqlite.mjs").Session} Session */
/** @typedef {import("../types.js").Run} Run */

export class Journal {
  /** @param {any} emitter @param {any} renderer */
  constructor(emitter, renderer) {
    this.emitter = emitter;
    this.incidents = new IncidentTracker(renderer);
  }

  /** The first row of an attempt at a run. @param {Session} session @param {any} request @param {Run} run @param {number} nowMs */
  admitted(session, request, run, nowMs) {
    let delay_ms = 0;
    if (run.attempts > 1) {
      const row = session.one("attempts.last_end", { run_id: run.run_id });
      if (row && row[0] !== null) delay_ms = Math.max(0, nowMs - Number(row[0]));
    }
    const attempt = newAttempt({
      run_id: run.run_id,
      attempt: run.attempts,
      node: "",
      lineage_id: attemptId(run.run_id, run.attempts),
      invocation_id: request.invocation.invocation_id,
      started_at_ms: nowMs,
      delay_ms,
      code_sha: run.pipeline_version,
    });
    this.#open(session, attempt, { ...request.known, invocation: request.invocation }, run);
  }

  /** Close a node and open the next; false if the run has passed to another. @param {Session} session @param {any} request */
  step(session, request) {
    const run = request.run;
    if (session.one("runs.held", { run_id: run.run_id, fence: run.fence }) === null) return false;
    this.discovered(session, request.fingerprint, request.inputs);
    this.keep(session, request.retries);
    if (request.closes) this.close(session, request.closes, run);
    // An act that must not be repeated is about to be made.
    if (request.act) session.all("acts.add", { run_id: run.run_id, attempt: run.attempts, name: rows.storable(request.act), at_ms: session.nowMs() });
    if (request.opens) this.#open(session, request.opens.attempt, request.opens.known, run);
    return true;
  }

  /** @param {Session} session @param {string | null} fingerprint @param {any[]} inputs */
  discovered(session, fingerprint, inputs) {
    if (fingerprint !== null) session.all("inputs.keep", { fingerprint, found: rows.foundText(inputs) });
  }

  /** @param {Session} session @param {any} account @param {Run} run */
  close(session, account, run) {
    const attempt = account.attempt;
    if (session.one("attempts.close", rows.closingParameters(attempt)) === null) return;
    this.#post(session, this.emitter?.ended(attempt, run, account.known), attempt.ended_at_ms ?? 0);
  }

  /** The end of a run: of the node that is under way, if any, and then of the run itself. @param {Session} session @param {any[]} accounts @param {any[]} retries @param {Run} run @param {number} nowMs */
  end(session, accounts, retries, run, nowMs) {
    this.keep(session, retries);
    const closed = new Map(accounts.map((one) => [`${one.attempt.attempt} ${one.attempt.node}`, one]));
    const whole = closed.get(`${run.attempts} `)?.attempt ?? null;
    for (const row of session.all("attempts.under_way", { run_id: run.run_id })) {
      const begun = rows.attemptFrom(row);
      let account = closed.get(`${begun.attempt} ${begun.node}`);
      if (!account) account = { attempt: endedWith(begun, run, whole, nowMs), known: circumstances() };
      else {
        const { lineage_id, invocation_id, started_at_ms, delay_ms } = begun;
        account = { ...account, attempt: { ...account.attempt, lineage_id, invocation_id, started_at_ms, delay_ms, ended_at_ms: nowMs } };
      }
      this.close(session, account, run);
    }
  }

  /** Close what a dead process has left open, nodes before their run. @param {Session} session @param {string} run_id @param {string} code @param {string} message @param {number} nowMs */
  abandon(session, run_id, code, message, nowMs) {
    const found = session.all("attempts.under_way", { run_id }).map(rows.attemptFrom);
    if (!found.length) return;
    const run = rows.runFrom(/** @type {any[]} */ (session.one("runs.by_id", { run_id })));
    for (const attempt of found) {
      const ended = {
        ...attempt,
        ended_at_ms: nowMs,
        ending: "abort",
        outcome: attempt.node ? "failed" : null,
        error_code: code,
        error_class: "lease",
        error_message: message,
        retryable: true,
      };
      this.close(session, { attempt: ended, known: circumstances() }, run);
    }
  }

  /** Each once. @param {Session} session @param {any[]} retries */
  keep(session, retries) {
    for (const retry of retries) session.all("retries.append", rows.retryParameters(retry));
  }

  /** @param {Session} session @param {any} attempt @param {any} known @param {Run} run */
  #open(session, attempt, known, run) {
    session.all("attempts.open", attempt);
    this.#post(session, this.emitter?.started(attempt, run, known), attempt.started_at_ms);
  }

  /** @param {Session} session @param {import("../types.js").Invocation} invocation @param {any} known @param {number} nowMs */
  notAdmitted(session, invocation, known, nowMs) {
    if (!this.emitter) return;
    const facts = { ...known, invocation, gates: known.gates.length ? known.gates : invocation.gates };
    for (const message of this.emitter.notAdmitted(invocation, facts, nowMs)) this.#post(session, message, nowMs);
  }

  /** @param {Session} session @param {any} message @param {number} nowMs */
  #post(session, message, nowMs) {
    if (message) session.all("outbox.post", { ...message, recorded_at_ms: nowMs });
  }
}

/** As its run ended. @param {any} attempt @param {Run} run @param {any} whole @param {number} nowMs */
function endedWith(attempt, run, whole, nowMs) {
  if (run.status === "success") return { ...attempt, ended_at_ms: nowMs, ending: "complete", outcome: attempt.node ? "success" : null };
  return {
    ...attempt,
    ended_at_ms: nowMs,
    ending: whole?.ending ?? "fail",
    outcome: attempt.node ? "failed" : null,
    error_code: run.error_code,
    error_class: whole?.error_class ?? null,
    error_message: run.error_message,
    retryable: whole?.retryable ?? null,
  };
}
