/** The shared vectors: what every implementation of the kernel must answer. */

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { mayStart } from "../model/admission.mjs";
import { attemptDigest } from "../model/approvals.mjs";
import * as audit from "../model/audit.mjs";
import * as breaker from "../model/breaker.mjs";
import { canonicalHashed, canonicalText, sha256Text, strictLoads, tagFloats } from "../model/canonical.mjs";
import { counterGrowth, energyOf, fixedPoint } from "../model/energy.mjs";
import { KfmError } from "../model/errors.mjs";
import * as gates from "../model/gates.mjs";
import { inputsText } from "../model/input_hash.mjs";
import { Float } from "../model/json.mjs";
import * as keys from "../model/keys.mjs";
import { freeText } from "../model/redaction.mjs";
import * as retry from "../model/retry.mjs";
import { classify } from "../model/retry.mjs";
import { granted, judge } from "../model/retry_budgets.mjs";
import { allows } from "../model/states.mjs";
import { reached, reachedText } from "../model/targets.mjs";
import { parseRfc3339, rfc3339 } from "../model/times.mjs";
import { canonicalObjectUri, walId } from "../model/units.mjs";
import { decodePage, factsOf, folded, itemRow, treeOf } from "../model/version_trees.mjs";
import { manifestText, versionOf } from "../model/versions.mjs";
import { byPoints, sortedByPoints } from "../model/wording.mjs";
import * as signatures from "../model/webhook_signatures.mjs";
import { nextWindow, parseDuration, previousWindow, resolveWindow } from "../model/windows.mjs";
import { safePath } from "../model/templates.mjs";
import { documents } from "../publish/catalogue/documents.mjs";
import { Expression, ExpressionError } from "../publish/contract/expressions.mjs";
import { itemId } from "../publish/manifest.mjs";

const FOLDER = new URL("../../vectors/", import.meta.url);

/** @param {string} text @returns {any} floats told apart from whole numbers, as everywhere in the twin */
const read = (text) => JSON.parse(text, (_key, value, /** @type {any} */ ...more) => {
  const source = more[0]?.source;
  return typeof value === "number" && /[.eE]/.test(source ?? "") ? new Float(value) : value;
});
const plain = (/** @type {any} */ value) => JSON.parse(JSON.stringify(value));
const number = (/** @type {any} */ value) => (value instanceof Float ? value.value : value);
const keyed = (/** @type {any} */ document) => ({ canonical: canonicalText(document), key: keys.keyOf(document) });

/** What a run has where a case says nothing. @type {any} */
const RUN = { revision: 0, fingerprint: null, correction: null };

/** @type {Record<string, (given: any) => any>} */
const FAMILIES = {
  free_text: (given) => freeText(given.text),
  canonical: (given) => {
    const text = canonicalText(strictLoads(Buffer.from(surrogatepass(given.json))));
    return { utf8: text, sha256: sha256Text(text) };
  },
  tagged_floats: (given) => ("bits" in given ? tagFloats(new Float(Buffer.from(given.bits, "hex").readDoubleBE())) : canonicalHashed(strictLoads(Buffer.from(given.json)))),
  inputs_hash: (given) => {
    const text = inputsText(given.inputs, given.params);
    return { canonical: text, hash: sha256Text(text) };
  },
  trigger_keys: (given) => {
    if ("schedule_id" in given) return keyed(keys.scheduleInstantDocument(given.schedule_id, given.utc_instant_ms));
    if (given.tag === "trigger/1") return keyed(keys.formerWebhookDocument(given.trigger));
    if ("code_sha" in given) return keyed(keys.upstreamEventDocument(given.trigger, given.code_sha));
    return keyed(keys.triggerDocument(given.trigger, given.work, given.revision ?? 0));
  },
  version_trees: (given) => {
    if (given.item) {
      const { row, document } = itemRow(given.item);
      return { document, sha256: row[1], size: row[2], facts: factsOf(given.item) };
    }
    if (given.facts) return folded(given.facts);
    if (given.items) return versionAnswer(given);
    const names = sortedByPoints(Array.from({ length: given.beyond - given.first }, (_, index) => `${given.begins}${given.first + index}`));
    const number = (/** @type {string} */ name) => Number(name.slice(given.begins.length));
    const facts = (/** @type {string} */ name) => [number(name), 1, number(name), -number(name), 1, number(name), null, null];
    const { treeId, pages } = treeOf(names.map((name) => /** @type {any} */ ([name, hexOf(name), Buffer.byteLength(name), ...(given.with_facts ? [facts(name)] : [])])));
    const root = pages.get(treeId);
    return { tree_id: treeId, level: root ? decodePage(treeId, root).level : 0, pages: pages.size };
  },
  targets: ({ settings, dataset }) => {
    const targets = reached(settings, dataset);
    return { targets, text: reachedText(targets), attempt: attemptDigest(dataset, "sha256:1", targets) };
  },
  work_keys: (given) => keyed(keys.workDocument(given.work, given.revision ?? undefined)),
  run_ids: (given) => {
    if ("environment" in given) return keys.runId(given.environment, given.work_key);
    if ("attempt" in given) return keys.attemptId(given.run_id, given.attempt);
    return keys.uuid5(given.namespace, given.name);
  },
  wal_id: (given) => ("uri" in given ? canonicalObjectUri(given.uri) : walId(given.dataset, given.object_uri, given.start_ms)),
  windows: (given) => {
    let window = resolveWindow(given.spec, given.zone, parseRfc3339(given.now));
    for (const step of given.steps ?? []) window = (step === "next" ? nextWindow : previousWindow)(window, given.zone);
    return { start: rfc3339(window.start_ms), end: rfc3339(window.end_ms) };
  },
  published_paths: (given) => safePath(given.path),
  expressions: (given) => {
    try {
      const expression = new Expression(given.pattern);
      return given.texts.map((/** @type {string} */ text) => expression.matches(text));
    } catch (error) {
      if (error instanceof ExpressionError) return { refused: error.message };
      throw error;
    }
  },
  durations: (given) => parseDuration(given.text),
  transitions: (given) => ({ allowed: allows(given.machine, given.from, given.to, given.event) }),
  breaker: (given) => {
    let current = breaker.closedBreaker("p");
    const permissions = [];
    for (const { event, at_ms, fence = null } of given.steps) {
      if (event === "failure") current = breaker.onFailure(current, at_ms, fence);
      else if (event === "success") current = breaker.onSuccess(current, fence);
      else if (event === "probe") current = breaker.probeStarted(current, at_ms);
      permissions.push(breaker.mayCall(current, at_ms));
    }
    return { state: current.state, failures: current.failures, fence: current.fence, permissions };
  },
  backoff: (given) => {
    const chance = number(given.unit_random);
    if (given.tier === "call") return { delay_ms: retry.callDelayMs(retry.callPolicy(), given.retry_index, chance) };
    return { delay_ms: retry.runDelayMs(retry.policyFor(given.trigger), given.retry_index, chance) };
  },
  retry_decisions: (given) => {
    if (given.ask === "budget") return retry.budgetState(given.attempts, given.first_attempt_ms, given.now_ms, retry.policyFor(given.trigger));
    if (given.ask === "unit") return retry.unitFate(given.failure, given.grant_attempts, given.grants, retry.policyFor("upstream-event"));
    const after = given.retry_after_ms ?? null;
    const chance = number(given.unit_random);
    const decided =
      given.ask === "call"
        ? retry.decideCallRetry(given.failure, retry.callPolicy(), given.attempts, given.deadline_ms, given.now_ms, chance, after)
        : retry.decideRetry(given.failure, retry.policyFor(given.trigger), given.attempts, given.first_attempt_ms, given.now_ms, chance, after);
    const { error_class: _, ...rest } = decided;
    return rest;
  },
  may_start: ({ asked, run, facts, now_ms }) => {
    const { run: about, ...rest } = mayStart(asked, run && { ...RUN, ...run }, { ...facts, corrected: facts.corrected && { ...RUN, ...facts.corrected } }, now_ms);
    return { ...rest, run_id: about?.run_id ?? null };
  },
  judgements: (given) => {
    const { ask, prior = null, failure, now_ms, unit_random, asked_ms, lasts_ms, ...about } = given;
    const run = { ...RUN, ...given.run };
    if (ask === "granted") return granted(run, prior, now_ms, about.fingerprint);
    return judge(run, failure, prior, { ...about, nowMs: now_ms, unitRandom: number(unit_random), askedMs: asked_ms, lastsMs: lasts_ms });
  },
  classify: (given) => classify(given),
  retry_after: (given) => ({ delay_ms: retry.parseRetryAfter(given.value, parseRfc3339(given.now)) }),
  signatures: (given) => {
    const body = "body_hex" in given ? Buffer.from(given.body_hex, "hex") : Buffer.from(given.body ?? "");
    if (given.scheme === "standard") {
      if (!("signature" in given)) return signatures.signStandard(given.secrets[0], given.id, given.timestamp, body);
      return signatures.verifyStandard(given.secrets, body, { messageId: given.id, timestamp: given.timestamp, signature: given.signature, nowMs: given.now_ms });
    }
    if (given.scheme === "fresh") return signatures.checkFresh(given.sent_at_ms, given.now_ms);
    const secrets = given.secrets_hex.map((/** @type {string} */ one) => Buffer.from(one, "hex"));
    if (!("header" in given)) return signatures.signKfm(secrets[0], body);
    if (given.scheme === "github") return signatures.verifyGithub(secrets, body, given.header);
    return signatures.verifyKfm(secrets, body, given.header, given.scheme === "kfm-legacy-concat");
  },
  energy: (given) => {
    if ("counter" in given) return counterGrowth(given.counter[0], given.counter[1], given.counter[2]);
    if ("value" in given) return fixedPoint(given.value, given.places);
    const usual = { watts_per_core: 10, overhead: 1, carbon_g_per_kwh: 332.6, region: "US-KS" };
    const model = Object.fromEntries(Object.entries(usual).map(([name, value]) => [name, name in given ? number(given[name]) : value]));
    const { energy_uwh, co2_ug, package_uwh, assumption } = energyOf(given.cpu_us, /** @type {any} */ (model), given.package_uj ?? null);
    return { energy_uwh, co2_ug, package_uwh, assumption };
  },
  audit_chain: (given) => {
    if ("content" in given) return { hash: audit.linkHash(given.previous, given.number, given.content) };
    if ("entries" in given) return { hashes: audit.chained(given.entries) };
    const content = audit.contentHash(given.entry);
    return { content, hash: audit.linkHash(given.previous, given.number, content) };
  },
  gates: (given) => {
    const { code, cause, remedy, command, until_ms, ...rest } = /** @type {any} */ (gateAnswer(given));
    return rest;
  },
};

/** @param {string} text */
const hexOf = (text) => sha256Text(text).slice("sha256:".length);

/** What versions of the vectors say unless a case says otherwise. */
const HEADER = {
  dataset_id: "levels",
  title: "Levels",
  description: "Levels of rivers",
  domain: "water",
  keywords: ["river", "level"],
  rights: { license: "CC0-1.0", care: { label: "Public", level: "public" }, sovereignty: null, local_contexts: null, attribution: null },
};

/** `count` windows of a source, one after the other, each with one file; or the item itself. @param {any} given @returns {import("../types.js").Item[]} */
function itemsOf(given) {
  const { source_id, count, start_ms, step_ms } = given;
  if (count === undefined) return [given];
  return Array.from({ length: count }, (_, number) => {
    const [begin, name] = [start_ms + number * step_ms, String(number).padStart(5, "0")];
    const path = `${source_id}/${name}.csv`;
    const asset = { path, sha256: hexOf(path), size: number, media_type: "text/csv", source_uri: null, modified_ms: number % 3 ? null : begin, roles: ["data"] };
    const bbox = number % 4 ? null : /** @type {[string, string, string, string]} */ ([`${number % 170}`, "-10", `${number % 170}.5`, "10.5"]);
    return { id: itemId(source_id, { start_ms: begin, end_ms: begin + step_ms }, null), source_id, window_start_ms: begin, window_end_ms: begin + step_ms, partition: null, assets: [asset], bbox };
  });
}

/** @param {any} given */
function versionAnswer({ items, header, texts = false }) {
  const manifest = { ...HEADER, ...header, items: items.flatMap(itemsOf).sort((/** @type {any} */ a, /** @type {any} */ b) => byPoints(a.id, b.id)) };
  const { root, versionId } = versionOf(manifest);
  return { root, version_id: versionId, whole_id: sha256Text(manifestText(manifest, 1)), facts: folded(manifest.items.map(factsOf)), documents: documentsAnswer(manifest, texts) };
}

/** Each document by its path: its text, or its hash, those of many items in one. @param {import("../types.js").Manifest} manifest @param {boolean} texts */
function documentsAnswer(manifest, texts) {
  const made = [...documents(manifest, 2)];
  if (texts) return Object.fromEntries(made);
  const isItem = (/** @type {[string, string]} */ [name]) => name.startsWith("items/");
  const items = made.filter(isItem).sort(([a], [b]) => byPoints(a, b));
  const lines = items.map(([name, text]) => `${name} ${hexOf(text)}\n`).join("");
  return { ...Object.fromEntries(made.filter((one) => !isItem(one)).map(([name, text]) => [name, hexOf(text)])), [`${items.length} items`]: hexOf(lines) };
}

/** @param {any} given */
function gateAnswer(given) {
  if (given.call === "switch") return gates.switchGate(given.switches, given.dataset_id, given.domain, given.in_flight);
  if (given.call === "freeze") return gates.freezeGate(given.freezes, given.dataset_id, given.domain, given.now_ms);
  if (given.call === "rights") return gates.rightsGate(given.dataset);
  if (given.call === "contract") return gates.contractGate(given.report);
  return gates.combine(given.results.map((/** @type {any} */ one) => gates.gateResult(one.gate, one.allowed, one.reason, one)), given.force);
}

/** UTF-8 of a text whose half surrogate pairs are kept, as Python's surrogatepass does. @param {string} text */
function surrogatepass(text) {
  const bytes = [];
  for (const char of text) {
    const point = /** @type {number} */ (char.codePointAt(0));
    if (point >= 0xd800 && point <= 0xdfff) bytes.push(0xe0 | (point >> 12), 0x80 | ((point >> 6) & 63), 0x80 | (point & 63));
    else bytes.push(...Buffer.from(char));
  }
  return bytes;
}

/** @param {() => any} answer */
function outcome(answer) {
  try {
    return { expected: plain(answer()) };
  } catch (error) {
    if (error instanceof KfmError) return { error: error.code, message: error.message };
    throw error;
  }
}

for (const file of readdirSync(FOLDER).sort()) {
  const { family, cases } = read(readFileSync(new URL(file, FOLDER), "utf8"));
  test(`the vectors of ${family}`, () => {
    const evaluate = FAMILIES[family];
    assert.ok(evaluate, `no evaluator for ${family}`);
    for (const one of cases) {
      const got = outcome(() => evaluate(one.input));
      if (one.error !== undefined) assert.equal(got.error, one.error, one.name);
      else if (one.expected?.error !== undefined && family === "gates") assert.deepEqual({ error: got.error, message: got.message }, one.expected, one.name);
      else assert.deepEqual(got, { expected: plain(one.expected) }, one.name);
    }
  });
}
