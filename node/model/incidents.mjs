/** Incidents: one for each cause, however many runs it stops, and their notifications. Pure. */

import { canonicalText, sha256Text } from "./canonical.mjs";
import { codeOf } from "./errors.mjs";
import { uuid5 } from "./keys.mjs";
import { mask } from "./redaction.mjs";
import { rfc3339 } from "./times.mjs";
import { counted, head } from "./wording.mjs";

const MESSAGE_CHARS_MAX = 1_000;
const NAMESPACE = "90b64ece-1410-5460-84ba-ac0f489c4cf2";
const WITHHELD = "Withheld: the dataset is not to be seen.";
const SEVERITY = /** @type {Record<string, string>} */ ({
  "circuit-open": "warning", "dead-letter": "warning", overdue: "warning", "approval-waiting": "warning", withdrawn: "warning", quarantine: "error", halt: "critical",
});
const RANK = Object.fromEntries(Object.entries(SEVERITY).map(([kind, severity]) => [kind, ["warning", "error", "critical"].indexOf(severity)]));
const TYPES = { open: "incident.opened", worse: "incident.worsened", resolved: "incident.resolved" };

/** The subject of what is about a window, not about a run of it. @param {string} sourceId @param {number} startMs @param {number} endMs */
export function windowSubject(sourceId, startMs, endMs) {
  return `${sourceId} ${rfc3339(startMs)}/${rfc3339(endMs)}`;
}

/** @param {any} trouble */
export function causeOf(trouble) {
  const { about, name, error_class, error_code } = trouble;
  return sha256Text(canonicalText({ kfm: "incident/1", about, name, error_class, error_code }));
}

/** A run was quarantined or became a dead letter. @param {any} held @param {any} state @param {boolean} halted */
export function heldTrouble(held, state, halted) {
  return {
    about: "dataset",
    name: held.dataset_id,
    kind: halted ? "halt" : held.kind,
    error_class: state?.error_class ?? held.error_classes.at(-1) ?? "unknown",
    error_code: held.error_code,
    message: head(held.error_message, MESSAGE_CHARS_MAX),
    subject: held.subject,
    source_id: held.source_id,
    count: null,
  };
}

/** A circuit has opened, or its probe has failed. @param {import("../types.js").Breaker} seen @param {import("../types.js").Breaker} kept */
export function circuitTrouble(seen, kept) {
  if (kept.state !== "open" || seen === kept) return null;
  return { ...providerTrouble(kept.provider), message: `${kept.failures} calls in a row have failed.`, count: kept.failures };
}

/** @param {string} provider */
export function providerTrouble(provider) {
  return { about: "provider", name: provider, kind: "circuit-open", error_class: "circuit-open", error_code: codeOf("CircuitOpen"), message: "", subject: provider, source_id: "", count: null };
}

/** The incident after this trouble, and its change; null where nothing is to be notified. @param {any} seen @param {any} trouble @param {number} affected @param {string} incident_id @param {number} nowMs @returns {[any, string | null]} */
export function raised(seen, trouble, affected, incident_id, nowMs) {
  if (seen === null || seen.state === "resolved") {
    const { about, name, kind, error_class, error_code, message, subject } = trouble;
    const opened = {
      cause: causeOf(trouble), incident_id, about, name, kind, error_class, error_code, message, subject, state: "open",
      occurrence: (seen?.occurrence ?? 0) + 1, changes: 1, affected, opened_at_ms: nowMs, last_at_ms: nowMs, resolved_at_ms: null,
      acknowledged_at_ms: null, acknowledged_by: null, escalated_at_ms: null,
    };
    return [opened, "open"];
  }
  const most = Math.max(affected, seen.affected);
  const rank = (/** @type {string} */ kind) => /** @type {number} */ (RANK[kind]);
  const kind = rank(trouble.kind) > rank(seen.kind) ? trouble.kind : seen.kind;
  const worse = rank(kind) > rank(seen.kind) || stepOf(most) > stepOf(seen.affected);
  const met = { ...seen, kind, message: trouble.message, subject: trouble.subject, changes: seen.changes + Number(worse), affected: most, last_at_ms: Math.max(nowMs, seen.last_at_ms) };
  return [met, worse ? "worse" : null];
}

/** The cause is gone. @param {any} seen @param {number} nowMs @returns {[any, string | null]} */
export function resolved(seen, nowMs) {
  if (seen.state === "resolved") return [seen, null];
  return [{ ...seen, state: "resolved", changes: seen.changes + 1, resolved_at_ms: nowMs }, "resolved"];
}

/** @param {number} affected */
function stepOf(affected) {
  let steps = 0;
  for (let step = 10; step <= 1e15; step *= 10) steps += Number(affected >= step);
  return steps;
}

/** Renders changes of incidents as notifications: masked names, redacted text. */
export class IncidentRenderer {
  /** @param {{environment: string, masked: (about: string, name: string) => boolean, mask: (name: string) => string, hide: (text: string) => string, responsible?: (name: string) => {owner: any, escalation: any}}} around */
  constructor({ environment, masked, mask: masking, hide, responsible = () => ({ owner: null, escalation: null }) }) {
    this.environment = environment;
    this.masked = masked;
    this.mask = masking;
    this.hide = hide;
    this.responsible = responsible;
  }

  /** @param {string} about @param {string} name @param {string} cause @param {number} occurrence */
  incidentId(about, name, cause, occurrence) {
    return uuid5(NAMESPACE, `${this.#publicCause(about, name, cause)}/${occurrence}`);
  }

  /** @param {any} incident @param {string} change @param {number} held */
  change(incident, change, held) {
    const masked = this.masked(incident.about, incident.name);
    const name = masked ? this.mask(incident.name) : incident.name;
    const at = change === "resolved" ? incident.resolved_at_ms : incident.last_at_ms;
    const { incident_id, state, kind, about, error_class, error_code, occurrence, affected } = incident;
    const { owner, escalation } = about === "dataset" ? this.responsible(incident.name) : { owner: null, escalation: null };
    const instant = (/** @type {number | null} */ atMs) => (atMs === null ? null : rfc3339(atMs));
    return {
      id: uuid5(incident_id, `${incident.changes}/${change}`),
      type: /** @type {Record<string, string>} */ (TYPES)[change],
      timestamp: rfc3339(at ?? 0),
      data: {
        incident_id,
        cause: this.#publicCause(about, incident.name, incident.cause),
        environment: this.environment,
        change,
        state,
        severity: SEVERITY[kind],
        kind,
        about,
        name,
        masked,
        error_class,
        error_code,
        message: masked ? WITHHELD : this.hide(incident.message),
        summary: summary(incident, change, held, name),
        occurrence,
        affected,
        held,
        opened_at: rfc3339(incident.opened_at_ms),
        last_at: rfc3339(incident.last_at_ms),
        resolved_at: instant(incident.resolved_at_ms),
        command: `kfm incident show ${incident_id}`,
        next_step: incidentStep(incident, masked),
        owner: masked ? null : owner,
        escalation: escalation && { ...escalation, at: instant(incident.escalated_at_ms) },
        acknowledged_at: instant(incident.acknowledged_at_ms),
      },
    };
  }

  /** @param {string} about @param {string} name @param {string} cause */
  #publicCause(about, name, cause) {
    if (!this.masked(about, name)) return cause;
    const hidden = this.mask(cause);
    return hidden === mask(cause, null) ? cause : hidden;
  }
}

/** One line for a pager. @param {any} incident @param {string} change @param {number} held @param {string} name */
function summary(incident, change, held, name) {
  const whom = `${incident.about} ${name}`;
  if (incident.about === "provider")
    return change === "resolved" ? `${whom} answers again` : `${whom}: circuit open after ${counted(incident.affected, "failure")} in a row`;
  if (change === "resolved") return `${whom}: ${over(incident)}${held ? `; ${counted(held, "run")} still quarantined` : ""}`;
  return `${whom}: ${condition(incident)}`;
}

/** What is the matter with a dataset. @param {any} incident */
function condition({ kind, affected, error_code, error_class, subject }) {
  if (kind === "overdue") return `${counted(affected, "window")} past ${affected === 1 ? "its" : "their"} time`;
  if (kind === "approval-waiting") return `${counted(affected, "request")} waiting for an approval`;
  if (kind === "withdrawn") return `withdrawn; ${counted(affected, "target")} had to show it`;
  const state = kind === "halt" ? "halted" : kind === "quarantine" ? "quarantined" : "dead-lettered";
  const word = /^[0-9a-f]{13}-[0-9a-f]{20}$/.test(subject) ? "unit" : "run";
  return `${error_code} (${error_class}), ${counted(affected, word)} ${state}`;
}

/** @param {any} incident */
function over({ kind, error_code, error_class }) {
  if (kind === "overdue") return "nothing is past its time any more";
  if (kind === "approval-waiting") return "no request waits for an approval any more";
  if (kind === "withdrawn") return "every target shows that it is withdrawn";
  return `${error_code} (${error_class}) is over`;
}

/** What to do about it; null: it is over. Runs of Node.js meet these kinds only. @param {any} incident @param {boolean} masked */
function incidentStep(incident, masked) {
  if (incident.state === "resolved") return null;
  const { kind, subject, name, incident_id } = incident;
  const step = (/** @type {string} */ code, /** @type {string} */ sentence, /** @type {string} */ command) => ({ code, sentence, command, who: "an operator", role: "operate" });
  if (masked) return step("show", "See what it is about", `kfm incident show ${incident_id}`);
  if (kind === "circuit-open") return step("reset", "It is probed by itself; an operator can close the circuit", `kfm breaker reset ${name} --rationale TEXT`);
  if (kind === "halt") return step("release", "See which rule was violated, then request the release; another person approves it", `kfm explain ${subject}`);
  return step("explain", "See why, and correct the cause", `kfm explain ${subject}`);
}
