/** The facets of an event: small documents that say which schema they follow. */

import { canonicalText } from "../model/canonical.mjs";
import { contract } from "../model/contracts.mjs";
import { redact, redactUrl } from "../model/redaction.mjs";
import { MS_MAX, MS_MIN, rfc3339 } from "../model/times.mjs";
import { quote } from "../model/urls.mjs";
import { head, length, partition, rpartition, withoutPrefix } from "../model/wording.mjs";

/** @typedef {Record<string, any>} Facet */

export const NAMED_MAX = 500;
const MESSAGE_CHARS_MAX = 2000;
const TEXT_CHARS_MAX = 1000;
const OWN_TEXTS = new Set(["kfm", "trigger_type", "source_id", "dataset_id", "window_start", "window_end"]);
const ENVELOPE_TEXTS = ["envelope_sha256", "signature", "reason", "etag", "md5", "watermark_time"];
const GIVEN_TEXTS = new Set("partition output_version pipeline_version code_sha request_uuid message_id source_uri content_tag correction".split(" "));

/** Always with milliseconds, so that times of one run sort as text. @param {number} ms */
export function instant(ms) {
  const text = rfc3339(Math.min(Math.max(ms, MS_MIN), MS_MAX));
  return text.includes(".") ? text : `${text.slice(0, -1)}.000Z`;
}

/** Text that may be shown: redacted, bounded. @param {string} given @param {number} [charsMax] */
function short(given, charsMax = TEXT_CHARS_MAX) {
  const text = redact(given);
  return length(text) <= charsMax ? text : `${head(text, charsMax)}…`;
}

/** Makes facets that bear one producer's name. */
export class Facets {
  /** @param {string} producer @param {string} version */
  constructor(producer, version) {
    this.producer = producer;
    this.version_ = version;
  }

  /** @param {string} name @param {Facet} members @returns {Facet} */
  #public(name, members) {
    return { _producer: this.producer, _schemaURL: `https://openlineage.io/spec/facets/${contract("tables/openlineage-facets.json")[name]}`, ...members };
  }

  /** @param {string} name @param {Facet} members @returns {Facet} */
  #own(name, members) {
    return { _producer: this.producer, _schemaURL: `urn:kfm:schema:openlineage-event#/$defs/${name}`, ...members };
  }

  /** @param {[string, string]} job @param {string} runId @param {[string, string, string] | null} [root] */
  parent([namespace, name], runId, root = null) {
    const [rootNamespace, rootName, rootId] = root ?? [namespace, name, runId];
    return this.#public("parent", { run: { runId }, job: { namespace, name }, root: { run: { runId: rootId }, job: { namespace: rootNamespace, name: rootName } } });
  }

  /** @param {string | null} code @param {string | null} message */
  error(code, message) {
    const text = [code, message].filter(Boolean).join(": ") || "The cause is not known.";
    // The kernel's language, not the process's: the same failure makes the same bytes in either.
    return this.#public("errorMessage", { message: short(text, MESSAGE_CHARS_MAX), programmingLanguage: "PYTHON" });
  }

  /** @param {import("../types.js").Run} run */
  nominalTime(run) {
    return this.#public("nominalTime", { nominalStartTime: instant(run.window_start_ms), nominalEndTime: instant(run.window_end_ms) });
  }

  engine() {
    return this.#public("processing_engine", { name: "kfm", version: this.version_, openlineageAdapterVersion: this.version_ });
  }

  /** @param {string} trigger */
  tags(trigger) {
    return this.#public("tags", { tags: [{ key: "trigger", value: trigger, source: "KFM" }] });
  }

  /** A run's facts, or a node's record of run-state. @param {any} attempt @param {import("../types.js").Run} run @param {string} at @param {string | null} versionId */
  runState(attempt, run, at, versionId) {
    const state = {
      run_id: run.run_id,
      dataset_id: run.dataset_id,
      attempt: attempt.attempt,
      invocation_id: attempt.invocation_id,
      outcome: attempt.outcome,
      recorded_at: at,
      delay_ms: attempt.delay_ms,
      inputs_hash: attempt.inputs_hash,
      validation_summary: attempt.validation,
      code_sha: attempt.code_sha,
      output_commit: versionId,
      error_code: attempt.error_code,
      error_class: attempt.error_class,
      retryable: attempt.retryable,
    };
    if (attempt.node) return this.#own("kfmRunState", { kind: "node", node: attempt.node, lakefs_branch: null, ...state });
    return this.#own("kfmRunState", {
      kind: "run",
      source_id: run.source_id,
      pipeline_id: run.pipeline_id,
      pipeline_version: run.pipeline_version,
      revision: run.revision,
      fence: run.fence,
      force: run.force,
      trigger_type: run.trigger_type,
      window: run.window_spec,
      partition: run.partition,
      ...state,
    });
  }

  /** Of an invocation that was not admitted. @param {import("../types.js").Invocation} invocation @param {string} at @param {boolean} over */
  callState(invocation, at, over) {
    const { invocation_id, run_id, dataset_id, source_id, trigger_type } = invocation;
    return this.#own("kfmRunState", { kind: "call", invocation_id, run_id, dataset_id, source_id, trigger_type, attempt: 0, outcome: over ? invocation.outcome : null, recorded_at: at });
  }

  /** @param {string} key @param {string | null} workKey @param {Record<string, any>} documents */
  idempotency(key, workKey, documents) {
    const shown = Object.fromEntries(["trigger", "work"].filter((name) => name in documents).map((name) => [name, keyDocument(documents[name])]));
    return this.#own("kfmIdempotency", { idempotency_key: key, work_key: workKey, documents: shown });
  }

  /** Who or what asked. @param {import("../types.js").Invocation} invocation @param {Record<string, any>} documents */
  trigger(invocation, documents) {
    /** @type {Facet} */
    const asked = { type: invocation.trigger_type, actor: invocation.actor };
    if ([invocation.trigger_type, documents.first?.type].includes("upstream-event")) asked.event = "event.ingest";
    if (invocation.ticket !== null) asked.ticket = short(invocation.ticket);
    const { first, trigger: key } = documents;
    // Of an attempt made again: what asked for the run.
    if (first) Object.assign(asked, { first_type: first.type, first_actor: first.actor });
    if (key) {
      for (const name of ["request_uuid", "message_id", "source_uri", "content_tag"])
        if (typeof key[name] === "string") asked[name] = name === "source_uri" ? short(redactUrl(key[name])) : short(key[name]);
      if (Array.isArray(key.member_keys)) asked.members = key.member_keys.length;
    }
    for (const name of ENVELOPE_TEXTS) if (typeof documents.envelope?.[name] === "string") asked[name] = short(documents.envelope[name]);
    return this.#own("kfmTrigger", asked);
  }

  /** @param {import("../types.js").GateResult[]} results @param {string | null} bundle */
  gates(results, bundle) {
    return this.#own("kfmGates", {
      policies: bundle,
      gates: results.slice(0, NAMED_MAX).map(({ gate, allowed, reason, policy_ids, overridable, overridden, halts }) => ({
        gate,
        allowed,
        reason: short(reason),
        policy_ids: policy_ids.slice(0, NAMED_MAX),
        overridable,
        overridden,
        halts,
      })),
    });
  }

  /** @param {any} energy */
  energy(energy) {
    const { cpu_us, energy_uwh, co2_ug, method, assumption, package_uwh } = energy;
    return this.#own("kfmEnergy", { cpu_us, energy_uwh, co2_ug, method, assumption, package_uwh });
  }

  /** @param {Record<string, number>} counts */
  more(counts) {
    return this.#own("kfmMore", counts);
  }

  /** @param {string} kind */
  jobType(kind) {
    return this.#public("jobType", { processingType: "BATCH", integration: "KFM", jobType: kind });
  }

  /** @param {{path: string, sha: string}} code */
  code(code) {
    const [before, , name] = rpartition(code.path, ":");
    const path = before || code.path;
    const url = `file:${quote(path)}${path === code.path ? "" : `#${quote(name, "")}`}`;
    return this.#public("sourceCodeLocation", { type: "file", url, path, version: code.sha });
  }

  /** @param {string} namespace @param {string} uri */
  dataSource(namespace, uri) {
    return this.#public("dataSource", { name: namespace, uri });
  }

  /** @param {{name: string, type: string}[]} columns */
  columns(columns) {
    return this.#public("schema", { fields: columns.slice(0, NAMED_MAX).map(({ name, type }) => ({ name, type })) });
  }

  /** @param {string} versionId */
  version(versionId) {
    return this.#public("version", { datasetVersion: versionId });
  }

  /** Which checks passed. What they found is not published. @param {import("../types.js").Check[]} checks */
  assertions(checks) {
    const assertions = checks.slice(0, NAMED_MAX).map((check) => ({
      assertion: partition(check.name, ":")[0],
      name: check.name,
      success: check.passed,
      ...(check.path === null ? {} : { params: { path: check.path } }),
    }));
    return this.#public("dataQualityAssertions", { assertions });
  }

  /** @param {import("../types.js").Found} found */
  content(found) {
    const sha256 = found.checksum?.startsWith("sha256:") ? withoutPrefix(found.checksum, "sha256:") : null;
    return this.#own("kfmContent", { sha256, etag: found.etag, version: found.version, size: found.size, ...(found.origin === undefined ? {} : { origin: found.origin }) });
  }

  /** @param {string} sha256 @param {number} size */
  fileContent(sha256, size) {
    return this.#own("kfmContent", { sha256, etag: null, version: null, size });
  }

  /** @param {number[]} sizes */
  outputStatistics(sizes) {
    return this.#public("outputStatistics", { size: sizes.reduce((sum, size) => sum + size, 0), fileCount: sizes.length });
  }
}

/** What a key was made of. `complete` says that hashing the document gives the key. @param {any} document */
function keyDocument(document) {
  /** @type {Facet} */
  const shown = {};
  for (const [name, value] of Object.entries(document)) {
    const isText = value === null || typeof value === "string";
    if (OWN_TEXTS.has(name) && isText) shown[name] = value === null ? null : head(value, TEXT_CHARS_MAX);
    else if (GIVEN_TEXTS.has(name) && isText) shown[name] = value === null ? null : name === "source_uri" && value ? short(redactUrl(value)) : short(value);
    else if (["revision", "force"].includes(name) && typeof value === "number") shown[name] = value;
    else if (["window", "period"].includes(name) && value && typeof value === "object") shown[name] = Object.fromEntries(["start", "end"].filter((edge) => edge in value).map((edge) => [edge, String(/** @type {any} */ (value)[edge])]));
    else if (name === "member_keys" && Array.isArray(value)) shown[name] = value.slice(0, NAMED_MAX).map(String);
  }
  return { complete: canonicalText(shown) === canonicalText(document), document: shown };
}
