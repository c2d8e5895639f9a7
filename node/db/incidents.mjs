/** Incidents, changed in the transaction in which their cause comes or goes; each change posts one outbox message. */

import * as incidents from "../model/incidents.mjs";
import * as rows from "./rows.mjs";

/** @typedef {import("./sqlite.mjs").Session} Session */

export class IncidentTracker {
  /** @param {incidents.IncidentRenderer} renderer */
  constructor(renderer) {
    this.renderer = renderer;
  }

  /** @param {Session} session @param {any} held @param {any} state @param {number} nowMs @param {boolean} halted */
  gaveUp(session, held, state, nowMs, halted) {
    if (held) this.#raised(session, incidents.heldTrouble(held, state, halted), nowMs);
  }

  /** A circuit has changed. @param {Session} session @param {import("../types.js").Breaker} seen @param {import("../types.js").Breaker} kept @param {number} nowMs */
  circuit(session, seen, kept, nowMs) {
    const trouble = incidents.circuitTrouble(seen, kept);
    if (trouble) this.#raised(session, trouble, nowMs);
    else if (seen.state !== "closed" && kept.state === "closed") this.#resolved(session, incidents.causeOf(incidents.providerTrouble(kept.provider)), nowMs, null);
  }

  /** What was wrong with the window is over; overdue it is as long as its data is not there. @param {Session} session @param {import("../types.js").Run} run @param {number} nowMs @param {boolean} isThere */
  succeeded(session, run, nowMs, isThere) {
    const { source_id, window_start_ms, window_end_ms, partition } = run;
    const kept = isThere ? null : incidents.windowSubject(source_id, window_start_ms, window_end_ms);
    const found = session.all("incident_subjects.of_window", { source_id, window_start_ms, window_end_ms, partition_key: partition ?? "" }).filter(([, subject]) => subject !== kept);
    for (const cause of [...new Set(found.map(([one]) => one))].sort()) this.#resolved(session, cause, nowMs, found.filter(([one]) => one === cause).map(([, subject]) => subject));
  }

  /** @param {Session} session @param {any} trouble @param {number} nowMs */
  #raised(session, trouble, nowMs) {
    const cause = incidents.causeOf(trouble);
    const row = session.one("incidents.get_for_update", { cause });
    if (row === null) {
      const [made, change] = this.#decided(null, trouble, cause, 1, nowMs);
      session.one("incidents.insert", rows.incidentParameters(made));
      this.#addSubject(session, cause, trouble);
      this.#notify(session, made, change, nowMs);
      return;
    }
    const seen = rows.incidentFrom(row);
    const fresh = this.#addSubject(session, cause, trouble);
    const affected = fresh + (seen.state === "open" ? seen.affected : 0);
    const [met, change] = this.#decided(seen, trouble, cause, affected, nowMs);
    session.all("incidents.change", rows.incidentParameters(met));
    this.#notify(session, met, change, nowMs);
  }

  /** @param {any} seen @param {any} trouble @param {string} cause @param {number} affected @param {number} nowMs */
  #decided(seen, trouble, cause, affected, nowMs) {
    const id = this.renderer.incidentId(trouble.about, trouble.name, cause, (seen?.occurrence ?? 0) + 1);
    return incidents.raised(seen, trouble, trouble.count ?? affected, id, nowMs);
  }

  /** 1 if it was not among them. @param {Session} session @param {string} cause @param {any} trouble */
  #addSubject(session, cause, trouble) {
    if (trouble.count !== null) return 0;
    return session.one("incident_subjects.add", { cause, subject: trouble.subject, dataset_id: trouble.name, source_id: trouble.source_id, window_start_ms: null, window_end_ms: null }) ? 1 : 0;
  }

  /** @param {Session} session @param {string} cause @param {number} nowMs @param {string[] | null} subjects */
  #resolved(session, cause, nowMs, subjects) {
    const row = session.one("incidents.get_for_update", { cause });
    if (row === null) return;
    if (subjects !== null) {
      for (const subject of subjects) session.all("incident_subjects.remove_one", { cause, subject });
      if (session.one("incident_subjects.any", { cause }) !== null) return;
    }
    const [over, change] = incidents.resolved(rows.incidentFrom(row), nowMs);
    if (change === null) return;
    session.all("incidents.change", rows.incidentParameters(over));
    this.#notify(session, over, change, nowMs);
  }

  /** @param {Session} session @param {any} incident @param {string | null} change @param {number} nowMs */
  #notify(session, incident, change, nowMs) {
    if (change === null) return;
    let held = 0;
    if (incident.about === "dataset") held = Number(/** @type {any[]} */ (session.one("held.of_cause", { dataset_id: incident.name, error_code: incident.error_code }))[0]);
    const notification = this.renderer.change(incident, change, held);
    session.all("outbox.post", { event_id: notification.id, topic: "incident", subject: incident.cause, body: rows.proseOf(notification), recorded_at_ms: nowMs });
  }
}
