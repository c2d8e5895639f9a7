/** The policy engine: Cedar, on the shipped policies and those of the configuration. */

import { createHash } from "node:crypto";
import * as fs from "node:fs";
import { createRequire } from "node:module";
import { isAbsolute, join } from "node:path";
import { contract, contractNames, contractText } from "../model/contracts.mjs";
import { PolicyError, strerror } from "../model/errors.mjs";
import { denied, gateResult } from "../model/gates.mjs";
import { closest } from "../model/patterns.mjs";
import { repr, sortedByPoints, words } from "../model/wording.mjs";

/** @typedef {import("../types.js").GateResult} GateResult */
/** @typedef {{id: string, gate: string, message: string, lift: string, lift_command: string, text: string}} Policy */

const GATES = ["care", "sovereignty", "licence", "policy"];
const FILE_BYTES_MAX = 1024 * 1024;
const POLICIES_MAX = 1000;
const SCHEMA = "kfm";

/** @type {any} */
let engine = null;

/** Cedar, loaded when first asked: it is four megabytes. @returns {any} */
function cedar() {
  engine ??= createRequire(import.meta.url)("@cedar-policy/cedar-wasm/nodejs");
  return engine;
}

export class CedarPolicies {
  /** @param {string[]} own paths, folders and globs, from the configuration's folder @param {string} folder */
  constructor(own, folder) {
    const schema = contractText("policies/kfm.cedarschema");
    const shipped = contractNames("policies/", ".cedar").map((name) => /** @type {[string, string]} */ ([name, contractText(`policies/${name}`)]));
    const users = readFiles(own, folder);
    requireSuccess(cedar().preparseSchema(SCHEMA, schema), "kfm.cedarschema");
    /** @type {Map<string, Policy>} */
    this.policies = new Map();
    /** @type {Record<string, string>} */
    const set = {};
    /** @type {Map<string, {name: string, line: number}>} */
    const places = new Map();
    for (const [name, text] of [...shipped, ...users])
      for (const [line, statement] of statements(text)) {
        const policy = policyOf(name, line, statement);
        places.set(policy.id, { name, line });
        if (this.policies.has(policy.id)) throw PolicyError.at(name, line, `there is already a policy ${repr(policy.id)}`);
        this.policies.set(policy.id, policy);
        set[policy.id] = policy.text;
        if (this.policies.size > POLICIES_MAX) throw PolicyError.at(name, line, `more than ${POLICIES_MAX} policies`);
      }
    requireValid(schema, set, places);
    this.bundleId = digest([schema, ...shipped.map(([, text]) => text), ...users.map(([, text]) => text)]);
    requireSuccess(cedar().preparsePolicySet(this.bundleId, { staticPolicies: set }), "policies");
  }

  /** Policy id → the policy as it was written. @returns {Record<string, string>} */
  get texts() {
    return Object.fromEntries([...this.policies].map(([id, policy]) => [id, policy.text]));
  }

  /** One result per gate: care, sovereignty, licence, policy. @param {string} action @param {any} dataset @param {string} principal @param {any} context @returns {GateResult[]} */
  decide(action, dataset, principal, context) {
    const answer = cedar().statefulIsAuthorized({
      principal: { type: "User", id: principal },
      action: { type: "Action", id: action },
      resource: { type: "Dataset", id: dataset.id },
      context: contextOf(context),
      preparsedSchemaName: SCHEMA,
      validateRequest: true,
      preparsedPolicySetId: this.bundleId,
      entities: entitiesOf(dataset),
    });
    if (answer.type !== "success") return unevaluated(answer.errors.map((/** @type {any} */ one) => one.message));
    const { decision, diagnostics } = answer.response;
    const reasons = sortedByPoints(diagnostics.reason);
    const faults = diagnostics.errors.map((/** @type {any} */ one) => one.error.message);
    const allowed = decision === "allow";
    // Cedar skips a policy that fails; here a rule that can't be evaluated forbids.
    if (faults.length || (!allowed && !reasons.length)) return unevaluated(faults);
    const decisive = reasons.map((id) => /** @type {Policy} */ (this.policies.get(id)));
    if (allowed) return GATES.map((gate) => allowedBy(gate, decisive));
    return GATES.map((gate) => forGate(gate, decisive.filter((policy) => policy.gate === gate), dataset, context.named ?? {}));
  }
}

/** @param {string[]} faults */
function unevaluated(faults) {
  const detail = faults.join("; ").slice(0, 300) || "no policy permits it";
  return GATES.map((gate) => denied(gate, "policies-failed", `The policies could not be evaluated: ${detail}.`));
}

/** @param {any} answer @param {string} name */
function requireSuccess(answer, name) {
  if (answer.type !== "success") throw new PolicyError(`${name}: ${answer.errors[0]?.message}`);
}

/** Names are left out: where a policy file lies does not change what it says. @param {string[]} texts */
function digest(texts) {
  const hash = createHash("sha256");
  for (const text of texts) {
    const size = Buffer.alloc(8);
    size.writeBigUInt64BE(BigInt(Buffer.byteLength(text)));
    hash.update(size).update(text);
  }
  return hash.digest("hex");
}

// --- reading -------------------------------------------------------------------------

/** Name and text of each file that the sources mean, in a fixed order. @param {string[]} sources @param {string} folder @returns {[string, string][]} */
function readFiles(sources, folder) {
  /** @type {Map<string, string>} */
  const found = new Map();
  for (const pattern of sources) {
    const paths = matching(pattern, folder);
    if (!paths.length) throw PolicyError.ofFile(pattern, `there is no such file in ${folder}`);
    for (const path of paths) found.set(path, textOf(path));
  }
  return [...found];
}

/** @param {string} pattern @param {string} folder */
function matching(pattern, folder) {
  const path = isAbsolute(pattern) ? pattern : join(folder, pattern);
  const status = fs.statSync(path, { throwIfNoEntry: false });
  if (status?.isFile()) return [path];
  if (status?.isDirectory()) return sortedByPoints(fs.readdirSync(path).filter((name) => name.endsWith(".cedar"))).map((name) => join(path, name));
  const names = fs.globSync(pattern, { cwd: folder }).map((name) => (isAbsolute(name) ? name : join(folder, name)));
  return sortedByPoints(names.filter((name) => fs.statSync(name).isFile()));
}

/** @param {string} path */
function textOf(path) {
  let data;
  try {
    data = fs.readFileSync(path);
  } catch (error) {
    throw PolicyError.ofFile(path, strerror(error));
  }
  if (data.length > FILE_BYTES_MAX) throw PolicyError.ofFile(path, `larger than ${FILE_BYTES_MAX} bytes`);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(data);
  } catch {
    throw PolicyError.at(path, data.toString("latin1").split("\n").length, "not UTF-8 text");
  }
}

/** Each policy with the line on which it begins. Only a semicolon outside text and comments ends one. @param {string} text @returns {Generator<[number, string]>} */
function* statements(text) {
  let start = 0;
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === '"') {
      at += 1;
      while (at < text.length && text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
    } else if (text.startsWith("//", at)) {
      at = text.indexOf("\n", at);
      if (at < 0) break;
    } else if (text[at] === ";") {
      yield placed(text, start, at + 1);
      start = at + 1;
    }
  }
  const rest = placed(text, start, text.length);
  if (rest[1]) yield rest;
}

/** Leading blanks and comments belong to no policy. @param {string} text @param {number} start @param {number} end @returns {[number, string]} */
function placed(text, start, end) {
  const lead = /^(?:\s+|\/\/[^\n]*(?:\n|$))*/.exec(text.slice(start, end))?.[0].length ?? 0;
  return [text.slice(0, start + lead).split("\n").length, text.slice(start + lead, end)];
}

/** @param {string} name @param {number} line @param {string} statement @returns {Policy} */
function policyOf(name, line, statement) {
  const parts = cedar().policySetTextToParts(statement);
  if (parts.type !== "success") throw PolicyError.at(name, line + faultLine(statement, parts.errors[0]), parts.errors[0].message);
  if (parts.policy_templates.length) throw PolicyError.at(name, line, "templates (?principal, ?resource) are not supported");
  if (parts.policies.length !== 1) throw PolicyError.at(name, line, "a policy is expected");
  const body = cedar().policyToJson(statement);
  return described(name, line, body.json.annotations ?? {}, statement.trim());
}

/** Every policy keeps to the schema. @param {string} schema @param {Record<string, string>} set @param {Map<string, {name: string, line: number}>} places */
function requireValid(schema, set, places) {
  const verdict = cedar().validate({ schema, policies: { staticPolicies: set }, validationSettings: { mode: "strict" } });
  if (verdict.type !== "success") throw new PolicyError(verdict.errors[0]?.message);
  for (const [id, place] of places) {
    const found = verdict.validationErrors.find((/** @type {any} */ one) => one.policyId === id);
    if (found) throw PolicyError.at(place.name, place.line, `${id}: ${found.error.message.replace(`for policy \`${id}\`, `, "")}`);
  }
}

/** How many lines into the statement the fault is. @param {string} statement @param {any} problem */
function faultLine(statement, problem) {
  const at = problem.sourceLocations?.[0]?.start ?? 0;
  return Buffer.from(statement).subarray(0, at).toString().split("\n").length - 1;
}

/** @param {string} name @param {number} line @param {Record<string, string>} notes @param {string} text @returns {Policy} */
function described(name, line, notes, text) {
  const id = (notes.id ?? "").trim();
  if (!id) throw PolicyError.at(name, line, `the policy has no name; write @id("team.rule") before it`);
  const known = ["id", "gate", "message", "lift", "lift_command"];
  for (const word of Object.keys(notes)) {
    const close = known.includes(word) ? null : closest(word, known, 0.7);
    if (close) throw PolicyError.at(name, line, `${id}: @${word} is unknown; did you mean @${close}?`);
  }
  const gate = notes.gate || "policy";
  if (!GATES.includes(gate)) {
    const close = closest(gate, GATES);
    throw PolicyError.at(name, line, `${id}: there is no gate ${repr(gate)}${close ? `; did you mean ${repr(close)}?` : `; there are ${GATES.join(", ")}`}`);
  }
  return { id, gate, message: notes.message || `The policy ${id} forbids it.`, lift: notes.lift || "The maintainer of the policies can change it.", lift_command: notes.lift_command || "", text };
}

// --- deciding ------------------------------------------------------------------------

/** @param {any} context */
function contextOf(context) {
  /** @type {Record<string, any>} */
  const built = {
    trigger: String(context.trigger || "manual"),
    isDryRun: Boolean(context.is_dry_run),
    halted: Boolean(context.halted),
    approvals: (context.approvals ?? []).map((/** @type {string} */ id) => ({ __entity: { type: "Dataset", id } })),
  };
  // A rationale of blanks is none.
  for (const word of ["rationale", "ticket"]) if (context[word]?.trim()) built[word] = context[word].trim();
  return built;
}

/** @param {any} dataset */
function entitiesOf(dataset) {
  const { rights } = dataset;
  const found = licence(rights ? rights.license : "undeclared");
  /** @type {Record<string, any>} */
  const attrs = {
    domain: dataset.domain,
    keywords: dataset.keywords,
    license: { __entity: { type: "License", id: found.id } },
    care: { label: rights?.care.label ?? "", level: rights?.care.level ?? "undeclared" },
  };
  if (rights?.local_contexts) attrs.localContexts = rights.local_contexts;
  if (rights?.sovereignty) {
    const { authority, consent, agreement } = rights.sovereignty;
    attrs.sovereignty = { authority, consent, ...(agreement ? { agreement } : {}) };
  }
  return [
    { uid: { type: "Dataset", id: dataset.id }, attrs, parents: [] },
    { uid: { type: "License", id: found.id }, attrs: {}, parents: found.groups.map((id) => ({ type: "LicenseGroup", id })) },
  ];
}

/** @param {string} gate @param {Policy[]} permits */
function allowedBy(gate, permits) {
  return gateResult(gate, true, `No ${gate} rule forbids it.`, { policy_ids: gate === "policy" ? permits.map((one) => one.id) : [] });
}

/** @param {string} gate @param {Policy[]} forbids @param {any} dataset @param {Record<string, string>} named */
function forGate(gate, forbids, dataset, named) {
  const first = forbids[0];
  if (!first) return allowedBy(gate, []);
  let cause = stop(first.message);
  if (gate === "licence" && dataset.rights) {
    const found = licence(dataset.rights.license);
    if (found.nearest) cause += ` It says ${repr(found.id)}; did you mean ${repr(found.nearest)}?`;
  }
  if (forbids.length > 1) cause += ` Also forbidden by ${forbids.slice(1).map((one) => one.id).join(", ")}.`;
  const command = filled(first.lift_command, { source: "ID", window: "W", held: "ID", ...named });
  return denied(gate, "rule", cause, { policy_ids: forbids.map((one) => one.id), remedy: stop(filled(first.lift, { command })), ...(command ? { command } : {}) });
}

/** Only what is known by name is filled in: a policy's text may hold any other brace. @param {string} template @param {Record<string, string>} values */
function filled(template, values) {
  return Object.entries(values).reduce((text, [name, value]) => text.replaceAll(`{${name}}`, () => value), template);
}

/** @param {string} text */
function stop(text) {
  const line = words(text);
  return /[.!?]$/.test(line) ? line : `${line}.`;
}

// --- licences ------------------------------------------------------------------------

/** A licence as policies see it. @param {string} text @returns {{id: string, groups: string[], nearest: string | null}} */
export function licence(text) {
  const document = contract("policies/licences.json");
  /** @type {Map<string, string>} */
  const groups = new Map(["open", "conditional", "unclassified"].flatMap((group) => document[group].map((/** @type {string} */ name) => [name, group])));
  const byFolded = new Map([...groups.keys()].map((name) => [folded(name), name]));
  const spellings = new Map([...byFolded, ...Object.entries(document.aliases).map(([alias, name]) => /** @type {[string, string]} */ ([folded(alias), /** @type {string} */ (name)]))]);
  const name = spellings.get(folded(text));
  if (name !== undefined) return { id: name, groups: [/** @type {string} */ (groups.get(name))], nearest: null };
  const close = closest(folded(text), byFolded.keys(), 0.5);
  return { id: text, groups: [], nearest: close ? (byFolded.get(close) ?? null) : null };
}

/** @param {string} text */
function folded(text) {
  return words(text).toLowerCase().replaceAll("https://", "http://").replace(/legalcode$/, "").replace(/\/+$/, "");
}
