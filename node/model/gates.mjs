/** Gate decisions: who may stop work, and what a force can pass. Pure. */

import { contract } from "./contracts.mjs";
import { active, covers, liftCommand, spanWords } from "./withdrawals.mjs";
import { BudgetSpent, ConfigError, ContractViolated, DataWithdrawn, GateDenied, Halted, RationaleRequired, RightsMissing, SwitchThrown, codeOf, remedyOf } from "./errors.mjs";
import { matchesName } from "./patterns.mjs";
import { calendarMs } from "./times.mjs";
import { counted, head, length, partition, repr, span, utcText, words } from "./wording.mjs";

/** @typedef {import("../types.js").GateResult} GateResult */
/** @typedef {import("../types.js").GateDecision} GateDecision */
/** @typedef {{scope: string, position: "running" | "paused" | "stopped", rationale: string, actor: string, set_at_ms: number}} Switch */
/** @typedef {{actor: string, rationale?: string | null, ticket?: string | null}} ForceRequest */

const OVERRIDABLE_GATES = new Set(["duplicate-key", "budget", "freeze", "window"]);
export const HALTING_GATES = new Set(["care", "sovereignty"]);
const STRICTNESS = { running: 0, paused: 1, stopped: 2 };
const TEXT_MAX = 200;
/** @type {Record<string, string>} */
const CODES = contract("tables/reasons.json").gates;
const ANY_WORK = "kfm run …"; // as the gate vectors have it, which know neither source nor window
const ORIGIN_COMMAND = "kfm config show --origin";

/** @param {string} gate @param {boolean} allowed @param {string} reason @param {Partial<GateResult>} [more] @returns {GateResult} */
export function gateResult(gate, allowed, reason, more = {}) {
  return { gate, allowed, reason, policy_ids: [], overridable: false, overridden: false, halts: false, ...more };
}

/** A refusal in words, for readers only. @param {string} cause @param {string | undefined} remedy */
const gateSentence = (cause, remedy) => (remedy ? `${cause} ${remedy}` : cause);

/** A gate's refusal: its facts, and the sentence that is made of them. @param {string} gate @param {string} code @param {string} cause @param {Partial<GateResult>} [more] */
export function denied(gate, code, cause, more = {}) {
  if (!(code in CODES)) throw new Error(`there is no code ${code} for a gate`);
  return gateResult(gate, false, gateSentence(cause, more.remedy), { halts: HALTING_GATES.has(gate), code, cause, ...more });
}

/** The refusal of a window that was withdrawn; none where it was not. @param {any[]} withdrawals @param {string} sourceId @param {number} startMs @param {number} endMs @returns {GateResult[]} */
export function withdrawalGates(withdrawals, sourceId, startMs, endMs) {
  const one = active(withdrawals).find((each) => covers(each, sourceId, startMs, endMs));
  if (!one) return [];
  const what = one.retires ? "is retired" : `is withdrawn (${spanWords(one)})`;
  const command = liftCommand(one);
  const cause = `The dataset ${one.dataset_id} ${what} since ${utcText(one.withdrawn_at_ms)}: ${sentence(one.reason)}`;
  return [denied("withdrawal", "withdrawn", cause, { remedy: `An operator allows it again with \`${command}\`.`, command })];
}

/** The refusal of a dataset that was renamed: what is published has another name than the configuration's. @param {string} datasetId */
export const renamedGate = (datasetId) =>
  denied("policy", "name-taken", `The dataset ${datasetId} was renamed, or another was renamed to it, and the Node.js runner knows first names only.`, { remedy: "Run the same command with Python." });

/** The refusal of another window length than the one on record, or of a source that got another one. @param {any} source @param {any[] | null} recorded length, and the change that made it so @returns {GateResult[]} */
export function lengthGates(source, recorded) {
  if (!recorded) return [];
  const [length, changedBy] = recorded;
  if (source.window !== length) {
    const shows = `kfm source rewindow ${source.id} --window ${source.window}`;
    const cause = `Windows of ${source.id} are ${length} long on record, and ${source.window} in the configuration.`;
    return [denied("window", "window-length", cause, { remedy: `\`${shows}\` shows what becomes of each window, and with \`--yes --rationale TEXT\` applies it; or write \`window: ${length}\`.`, command: `${shows} --yes --rationale TEXT` })];
  }
  return changedBy === null ? [] : [denied("window", "window-length", `The windows of ${source.id} got another length, and the Node.js runner knows one only.`, { remedy: "Run the same command with Python." })];
}

/** @param {Switch[]} switches @param {string} datasetId @param {string} domain @param {boolean} inFlight */
export function switchGate(switches, datasetId, domain, inFlight) {
  const scopes = ["all", `domain:${domain}`, `dataset:${datasetId}`];
  /** @type {Map<string, Switch>} */
  const newest = new Map();
  for (const one of switches) {
    const held = newest.get(one.scope);
    if (scopes.includes(one.scope) && (!held || later(one, held))) newest.set(one.scope, one);
  }
  const thrown = [...newest.values()].filter((one) => one.position !== "running");
  thrown.sort((a, b) => STRICTNESS[b.position] - STRICTNESS[a.position] || scopes.indexOf(a.scope) - scopes.indexOf(b.scope));
  const worst = thrown[0];
  if (!worst) return gateResult("switch", true, "No kill switch stands in the way.");
  const goesOn = inFlight && worst.position === "paused";
  let cause = `${scopeWords(worst.scope)} ${worst.position} since ${utcText(worst.set_at_ms)} by ${oneLine(worst.actor)}: ${sentence(worst.rationale)}`;
  if (goesOn) return gateResult("switch", true, `${cause} Work in flight goes on.`);
  if (thrown.length > 1) cause += ` Also in the way: ${thrown.slice(1).map((one) => `${one.scope} ${one.position}`).join(", ")}.`;
  const command = switchCommand(worst.scope);
  return denied("switch", "switch-thrown", cause, { remedy: `An operator lifts it with \`${command}\`.`, command });
}

/** @param {Switch} one @param {Switch} other */
function later(one, other) {
  if (one.set_at_ms !== other.set_at_ms) return one.set_at_ms > other.set_at_ms;
  return STRICTNESS[one.position] > STRICTNESS[other.position];
}

/** @param {string} scope */
function switchCommand(scope) {
  const [kind, , name] = partition(scope, ":");
  return `kfm switch set running ${kind === "all" ? "--all" : `--${kind} ${name}`} --rationale TEXT`;
}

/** @param {string} scope */
function scopeWords(scope) {
  const [kind, , name] = partition(scope, ":");
  if (kind === "replays") return name === "all" ? "Replays are" : `Replays of ${name} are`;
  return kind === "all" ? "Everything is" : `The ${kind} ${name} is`;
}

/** The command that passes a freeze, or opens a new revision. @param {string} work the command that asks for the work */
export const forceCommand = (work) => `${work} --force --rationale TEXT --ticket ID`;

/** @param {any[]} freezes @param {string} datasetId @param {string} domain @param {number} nowMs @param {string} [work] the command that asks for what it would refuse */
export function freezeGate(freezes, datasetId, domain, nowMs, work = ANY_WORK) {
  for (const freeze of freezes) {
    const [start, end] = freezeSpanMs(freeze);
    const covers =
      (freeze.datasets ?? ["*"]).some((/** @type {string} */ p) => matchesName(datasetId, p)) &&
      (freeze.domains ?? ["*"]).some((/** @type {string} */ p) => matchesName(domain, p));
    if (covers && start <= nowMs && nowMs < end) {
      return denied("freeze", "frozen", `Frozen from ${utcText(start)} to ${utcText(end)}: ${sentence(freeze.reason)}`, {
        remedy: `It ends by itself; an operator passes it with \`${forceCommand(work)}\`.`,
        command: forceCommand(work),
        until_ms: end,
        overridable: true,
      });
    }
  }
  return gateResult("freeze", true, "No freeze window covers this moment.");
}

/** @typedef {{start_ms: number, end_ms: number}} Span */

/** May this window take the place of what the dataset shows of a source whose windows replace each other? @param {string} datasetId @param {Span} window @param {Span | null} newest @param {string} [work] */
export function windowGate(datasetId, window, newest, work = ANY_WORK) {
  if (newest === null || window.end_ms >= newest.end_ms) return gateResult("window", true, "The dataset shows no newer window.");
  const cause = `The dataset ${datasetId} shows ${span(newest.start_ms, newest.end_ms)}, which is newer than ${span(window.start_ms, window.end_ms)} and would be replaced by it (\`mode: replace\`).`;
  return denied("window", "older-window", cause, { remedy: `An operator passes it with \`${forceCommand(work)}\`.`, command: forceCommand(work), overridable: true });
}

/** @param {{start: string, end: string}} freeze @returns {[number, number]} */
export function freezeSpanMs(freeze) {
  const [start, end] = [isoInstantMs(freeze.start), isoInstantMs(freeze.end)];
  if (end <= start) throw new ConfigError(`The freeze window ${freeze.start} … ${freeze.end} ends before it begins.`);
  return [start, end];
}

const ISO =
  /^(\d{4})-?(\d\d)-?(\d\d)(?:.(\d\d)(?::?(\d\d)(?::?(\d\d)(?:[.,](\d{1,}))?)?)?(Z|[+-]\d\d(?::?\d\d(?::?\d\d(?:\.\d+)?)?)?)?)?$/;

/** As Python's datetime.fromisoformat, in UTC where nothing else is said. @param {string} text */
function isoInstantMs(text) {
  const match = ISO.exec(text);
  const local = match
    ? calendarMs(Number(match[1]), Number(match[2]), Number(match[3]), Number(match[4] ?? 0), Number(match[5] ?? 0), Number(match[6] ?? 0), Math.round(Number(`0.${(match[7] ?? "0").slice(0, 6)}`) * 1000))
    : null;
  if (local === null || !match)
    throw new ConfigError(`The freeze window's time ${repr(text)} can't be read.`, { remedy: "Write it as 2026-12-20 or 2026-12-20T06:00:00Z." });
  const zone = match[8];
  if (!zone || zone === "Z") return local;
  const digits = zone.slice(1).replaceAll(":", "");
  const offset = (Number(digits.slice(0, 2)) * 60 + Number(digits.slice(2, 4) || 0)) * 60_000;
  return local - (zone.startsWith("-") ? -offset : offset);
}

/** @param {any} dataset */
export function rightsGate(dataset) {
  const rights = dataset.rights;
  const missing = [];
  if (!(rights?.license ?? "").trim()) missing.push("rights.license");
  if (!(rights?.care?.label ?? "").trim()) missing.push("rights.care.label");
  if (!missing.length) return gateResult("rights", true, "A licence and a CARE label are declared.");
  return denied("rights", "rights-missing", `The dataset ${dataset.id} declares no ${missing.join(" and no ")}.`, {
    remedy: `Add it to the configuration; \`${ORIGIN_COMMAND}\` names the file.`,
    command: ORIGIN_COMMAND,
  });
}

/** The refusal of a dataset that the configuration has lost since the work was asked for. @param {string} datasetId */
export const undeclaredGate = (datasetId) =>
  denied("policy", "dataset-unknown", `The dataset ${datasetId} is not in the configuration any more.`, { remedy: "Declare the dataset again, then the same command runs." });

/** @param {import("../types.js").Report | null} report */
export function contractGate(report) {
  if (report === null) return gateResult("contract", true, "The source declares no contract.");
  if (!report.checks.length) return denied("contract", "contract-empty", "The contract made no check, so nothing is proven.");
  const failed = report.checks.filter((check) => !check.passed);
  const first = failed[0];
  if (!first) return gateResult("contract", true, `All ${report.checks.length} checks passed.`);
  const many = checksFailed(failed.length, report.checks.length);
  return denied("contract", "contract-violated", `${many}${failed.length > 1 ? ", the first is " : ": "}${checkText(first)}`, {
    remedy: "Fix the data or the contract, then retry.",
  });
}

/** How many checks of a contract failed, as the beginning of a sentence. @param {number} failed @param {number} made */
export const checksFailed = (failed, made) => `${failed} of ${counted(made, "check")} failed`;

/** @param {import("../types.js").Check} check */
export function checkText(check) {
  return `${check.name}${check.path ? ` in ${check.path}` : ""}: ${sentence(check.detail)}`;
}

/** One decision from all answers. @param {GateResult[]} answers @param {ForceRequest | null} [force] @returns {GateDecision} */
export function combine(answers, force = null) {
  if (force) requireAnswerable(force);
  const denied = answers.filter((one) => !one.allowed);
  if (force && denied.every(mayOverride)) {
    const results = answers.map((one) => (one.allowed ? one : { ...one, overridden: true }));
    return { allowed: true, results, first_blocker: null, halts: false };
  }
  const rank = (/** @type {GateResult} */ one) => [one.gate !== "rights", !one.halts, mayOverride(one)].map(Number);
  const ranked = denied
    .map((one, index) => ({ one, index, rank: rank(one) }))
    .sort((a, b) => /** @type {any} */ (a.rank[0]) - /** @type {any} */ (b.rank[0]) || /** @type {any} */ (a.rank[1]) - /** @type {any} */ (b.rank[1]) || /** @type {any} */ (a.rank[2]) - /** @type {any} */ (b.rank[2]) || a.index - b.index);
  return { allowed: !denied.length, results: answers, first_blocker: ranked[0]?.one ?? null, halts: denied.some((one) => one.halts) };
}

/** @param {GateDecision} decision */
export const overridden = (decision) => decision.results.filter((one) => one.overridden).map((one) => one.gate);

/** @param {GateResult} one */
function mayOverride(one) {
  return one.overridable && !one.halts && OVERRIDABLE_GATES.has(one.gate);
}

/** @param {ForceRequest} force */
function requireAnswerable(force) {
  const given = {
    "an actor": force.actor === "unknown" ? "" : force.actor,
    "a rationale (--rationale TEXT)": force.rationale ?? "",
    "a ticket (--ticket ID)": force.ticket ?? "",
  };
  const missing = Object.entries(given).filter(([, value]) => !value.trim()).map(([name]) => name);
  if (missing.length) throw new RationaleRequired(`A force needs ${missing.join(" and ")}.`);
}

/** The error that tells a person about a refusal. @param {GateDecision} decision @param {boolean} [inFlight] */
export function refusal(decision, inFlight = false) {
  const blocker = decision.first_blocker;
  if (!blocker) throw new Error("only a denied decision has a refusal");
  const [cause, remedy] = causeAndRemedy(blocker);
  const facts = { gate: blocker.gate, policy_ids: blocker.policy_ids };
  if (decision.halts && inFlight) return new Halted(cause, facts);
  const kinds = { switch: SwitchThrown, rights: RightsMissing, contract: ContractViolated, budget: BudgetSpent, withdrawal: DataWithdrawn };
  const Kind = /** @type {Record<string, typeof SwitchThrown>} */ (kinds)[blocker.gate] ?? GateDenied;
  return new Kind(cause, remedy === null ? facts : { ...facts, remedy });
}

/** All gates that refused beside the one that is named first: lifting that one alone starts nothing. @param {GateResult[]} gates @returns {string[]} */
export function furtherRefusals(gates) {
  const denied = gates.filter((one) => !one.allowed && !one.overridden);
  const first = combine(denied).first_blocker;
  return denied.filter((one) => one !== first).map((one) => `gate ${one.gate}: ${causeAndRemedy(one).filter((part) => part !== null).join(" ")}`);
}

/** @param {GateResult} blocker @returns {[string, string | null]} */
function causeAndRemedy(blocker) {
  const cause = blocker.cause ?? blocker.reason;
  if (blocker.policy_ids.length) {
    const rules = `${blocker.policy_ids.length === 1 ? "Rule" : "Rules"} ${blocker.policy_ids.join(", ")}`;
    return [`${rules}: ${cause}`, `${blocker.remedy ?? remedyOf("GateDenied")} \`kfm explain ${codeOf("GateDenied")}\` says more.`];
  }
  return [cause, blocker.remedy ?? null];
}

/** @param {string} text */
function oneLine(text) {
  const line = words(text);
  return length(line) <= TEXT_MAX ? line : `${head(line, TEXT_MAX - 1)}…`;
}

/** @param {string} text */
export function sentence(text) {
  const line = oneLine(text);
  return /[.!?…]$/.test(line) ? line : `${line}.`;
}
