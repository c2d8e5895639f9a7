/** The lineage emitter: OpenLineage events, made inside the ledger's transactions, ready to be sent. Pure. */

import { circumstances } from "../model/attempts.mjs";
import { INT_MAX, canonicalText } from "../model/canonical.mjs";
import { UnhashableInput } from "../model/errors.mjs";
import { attemptId, notAdmittedId, uuid5 } from "../model/keys.mjs";
import { within } from "../model/redaction.mjs";
import { requireValid } from "../model/schemas.mjs";
import { whole } from "../model/wording.mjs";
import { Facets, NAMED_MAX, instant } from "./facets.mjs";
import { below, datasetName, sourceUri } from "./naming.mjs";

/** @typedef {import("../types.js").Run} Run */
/** @typedef {import("../types.js").Invocation} Invocation */
/** @typedef {import("./naming.mjs").Name} Name */
/** @typedef {(text: string) => string} Mask */
/** @typedef {{inputs: any[], outputs: any[], more: Record<string, number>}} Datasets */

const EVENT_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent";
const ENDINGS = /** @type {Record<string, string>} */ ({ complete: "COMPLETE", fail: "FAIL", abort: "ABORT" });
const MASKED_NAMESPACE = "masked";

export class LineageEmitter {
  /** @param {{namespace: string, version: string, outputs: (id: string) => Name[], masked: (id: string) => boolean, mask: Mask, folder: string, hide: (text: string) => string}} around */
  constructor({ namespace, version, outputs, masked, mask, folder, hide }) {
    this.namespace = namespace;
    this.facets = new Facets(`urn:kfm:producer:${version}`, version);
    this.outputs = outputs;
    this.masked = masked;
    /** @type {Mask} */
    this.mask = (text) => mask(whole(text));
    this.folder = folder;
    this.hide = hide;
  }

  /** @param {any} attempt @param {Run} run @param {any} known */
  started(attempt, run, known) {
    return this.#attempt("START", attempt, run, known);
  }

  /** @param {any} attempt @param {Run} run @param {any} known */
  ended(attempt, run, known) {
    return attempt.ending === null ? null : this.#attempt(/** @type {string} */ (ENDINGS[attempt.ending]), attempt, run, known);
  }

  /** @param {Invocation} given @param {any} facts @param {number} atMs */
  notAdmitted(given, facts, atMs) {
    if (!["refused", "failed"].includes(given.outcome ?? "")) return [];
    const lineageId = notAdmittedId(given.invocation_id);
    const subject = given.run_id ?? given.invocation_id;
    const hidden = this.masked(given.dataset_id);
    const known = hidden ? maskedCircumstances(facts, this.mask) : facts;
    const invocation = hidden ? maskedInvocation(given, this.mask) : given;
    const end = given.outcome === "refused" ? "ABORT" : "FAIL";
    const askedMs = Math.min(invocation.requested_at_ms, atMs);
    return [
      this.#sealed("START", lineageId, subject, this.#invocation("START", lineageId, invocation, circumstances(), askedMs)),
      this.#sealed(end, lineageId, subject, this.#invocation(end, lineageId, invocation, known, atMs)),
    ];
  }

  /** @param {string} kind @param {any} attempt @param {Run} run @param {any} known */
  #attempt(kind, attempt, run, known) {
    const mask = this.masked(run.dataset_id) ? this.mask : null;
    if (mask) {
      attempt = { ...attempt, error_message: null, code_sha: null };
      run = maskedRun(run, mask);
      known = maskedCircumstances(known, mask);
    }
    const event = this.#event(kind, attempt, run, known, mask);
    if (kind === "START") requireValid("openlineage-event", event);
    return this.#sealed(kind, attempt.lineage_id, run.run_id, event);
  }

  /** @param {string} kind @param {string} lineageId @param {string} subject @param {any} event */
  #sealed(kind, lineageId, subject, event) {
    let body = bodyOf(event);
    if (this.hide(body) !== body) body = bodyOf(within(event, this.hide)); // masked in each text, so that it stays JSON
    return { event_id: uuid5(lineageId, kind), topic: "openlineage", subject, body };
  }

  /** @param {string} kind @param {any} attempt @param {Run} run @param {any} known @param {Mask | null} mask */
  #event(kind, attempt, run, known, mask) {
    const { facets } = this;
    /** @type {Name} */
    const job = [this.namespace, run.pipeline_id];
    const started = attempt.started_at_ms;
    // A clock that was set back must not let an end come before its start.
    const at = instant(kind === "START" ? started : Math.max(started, attempt.ended_at_ms ?? started));
    const datasets = this.#datasets(run.dataset_id, known, mask);
    const name = attempt.node ? `${run.pipeline_id}.${attempt.node}` : run.pipeline_id;
    const parent = attempt.node ? facets.parent(job, attemptId(run.run_id, attempt.attempt), [...job, run.run_id]) : facets.parent(job, run.run_id);
    const runFacets = {
      parent,
      kfmRunState: facets.runState(attempt, run, at, known.version_id),
      ...(attempt.node
        ? {}
        : {
            nominalTime: facets.nominalTime(run),
            processing_engine: facets.engine(),
            tags: facets.tags(run.trigger_type),
            kfmIdempotency: facets.idempotency(run.idempotency_key, run.work_key, known.key_documents),
          }),
      ...this.#known(known),
      ...(attempt.energy ? { kfmEnergy: facets.energy(attempt.energy) } : {}),
      ...(["FAIL", "ABORT"].includes(kind) ? { errorMessage: facets.error(attempt.error_code, attempt.error_message) } : {}),
      ...(Object.keys(datasets.more).length ? { kfmMore: facets.more(datasets.more) } : {}),
    };
    const jobFacets = { jobType: facets.jobType(attempt.node ? "TASK" : "DAG"), ...(known.code ? { sourceCodeLocation: facets.code(known.code) } : {}) };
    return this.#document(kind, at, attempt.lineage_id, runFacets, name, jobFacets, datasets);
  }

  /** An invocation that was not admitted. @param {string} kind @param {string} lineageId @param {Invocation} invocation @param {any} known @param {number} atMs */
  #invocation(kind, lineageId, invocation, known, atMs) {
    const { facets } = this;
    const over = kind !== "START";
    const at = instant(atMs);
    const asked = { ...known, invocation: known.invocation ?? invocation, gates: known.gates.length ? known.gates : invocation.gates };
    const runFacets = {
      processing_engine: facets.engine(),
      tags: facets.tags(invocation.trigger_type),
      kfmRunState: facets.callState(invocation, at, over),
      kfmIdempotency: facets.idempotency(invocation.idempotency_key, null, known.key_documents),
      ...(invocation.run_id === null ? {} : { parent: facets.parent([this.namespace, invocation.source_id], invocation.run_id) }),
      ...(over ? { ...this.#known(asked), errorMessage: facets.error(null, invocation.reason) } : {}),
    };
    return this.#document(kind, at, lineageId, runFacets, invocation.source_id, { jobType: facets.jobType("DAG") }, { inputs: [], outputs: [], more: {} });
  }

  /** @param {string} kind @param {string} at @param {string} lineageId @param {any} runFacets @param {string} job @param {any} jobFacets @param {Datasets} datasets */
  #document(kind, at, lineageId, runFacets, job, jobFacets, datasets) {
    return {
      eventType: kind,
      eventTime: at,
      producer: this.facets.producer,
      schemaURL: EVENT_SCHEMA,
      run: { runId: lineageId, facets: runFacets },
      job: { namespace: this.namespace, name: job, facets: jobFacets },
      inputs: datasets.inputs,
      outputs: datasets.outputs,
    };
  }

  /** @param {any} known */
  #known(known) {
    return {
      ...(known.invocation ? { kfmTrigger: this.facets.trigger(known.invocation, known.key_documents) } : {}),
      ...(known.gates.length || known.policies !== null ? { kfmGates: this.facets.gates(known.gates, known.policies) } : {}),
    };
  }

  // --- inputs and outputs -----------------------------------------------------------

  /** @param {string} datasetId @param {any} known @param {Mask | null} mask @returns {Datasets} */
  #datasets(datasetId, known, mask) {
    if (mask) return this.#masked(datasetId, known, mask);
    const { facets } = this;
    const named = known.inputs.slice(0, NAMED_MAX);
    const inputs = named.map((/** @type {any} */ found) => this.#dataset(datasetName(found.uri, this.folder), { kfmContent: facets.content(found) }));
    /** @type {Record<string, number>} */
    const more = { inputs: known.inputs.length - named.length };
    const written = known.outputs.length > 0 || known.version_id !== null;
    const homes = written || known.report ? this.#homes(datasetId) : [];
    /** @type {any[]} */
    let outputs = [];
    if (written) [outputs, more.outputs] = this.#written(homes, known);
    if (known.report) {
      more.checks = Math.max(0, known.report.checks.length - NAMED_MAX);
      const assertions = { dataQualityAssertions: facets.assertions(known.report.checks) };
      if (outputs.length) Object.assign(outputs[0].facets, assertions);
      else inputs.push({ ...this.#dataset(/** @type {Name} */ (homes[0]), this.#declared(known)), inputFacets: assertions });
    }
    more.columns = Math.max(0, known.columns.length - NAMED_MAX);
    return { inputs, outputs, more: counted(more) };
  }

  /** Where a dataset is published; by its own id where it is published nowhere. @param {string} datasetId @returns {Name[]} */
  #homes(datasetId) {
    const homes = this.outputs(datasetId).slice(0, NAMED_MAX);
    return homes.length ? homes : [[this.namespace, datasetId]];
  }

  /** The dataset at each of its homes, then its files at the first. @param {Name[]} homes @param {any} known @returns {[any[], number]} */
  #written(homes, known) {
    const { facets } = this;
    const declared = { ...this.#declared(known), ...(known.version_id === null ? {} : { version: facets.version(known.version_id) }) };
    const outputs = homes.map((home) => this.#dataset(home, declared));
    if (known.outputs.length) {
      const outputStatistics = facets.outputStatistics(known.outputs.map((/** @type {any} */ asset) => asset.size));
      for (const output of outputs) /** @type {any} */ (output).outputFacets = { outputStatistics };
    }
    const assets = known.outputs.slice(0, NAMED_MAX - outputs.length);
    for (const asset of assets) outputs.push(this.#dataset(below(/** @type {Name} */ (homes[0]), asset.path), { kfmContent: facets.fileContent(asset.sha256, asset.size) }));
    return [outputs, known.outputs.length - assets.length];
  }

  /** @param {any} known */
  #declared(known) {
    return known.columns.length ? { schema: this.facets.columns(known.columns) } : {};
  }

  /** @param {Name} name @param {any} [more] */
  #dataset([namespace, name], more = {}) {
    return { namespace, name, facets: { dataSource: this.facets.dataSource(namespace, sourceUri(namespace)), ...more } };
  }

  /** Masked inputs still differ from each other. @param {string} datasetId @param {any} known @param {Mask} mask @returns {Datasets} */
  #masked(datasetId, known, mask) {
    const named = known.inputs.slice(0, NAMED_MAX);
    const inputs = named.map((/** @type {any} */ found) => this.#dataset([MASKED_NAMESPACE, mask(found.uri)]));
    const outputs = [];
    if (known.outputs.length || known.version_id !== null)
      outputs.push(this.#dataset([MASKED_NAMESPACE, datasetId], known.version_id === null ? {} : { version: this.facets.version(known.version_id) }));
    return { inputs, outputs, more: counted({ inputs: known.inputs.length - named.length, outputs: known.outputs.length }) };
  }
}

/** @param {Record<string, number>} counts */
const counted = (counts) => Object.fromEntries(Object.entries(counts).filter(([, count]) => count));

/** @param {any} event */
function bodyOf(event) {
  try {
    return canonicalText(event);
  } catch (error) {
    if (error instanceof UnhashableInput) return canonicalText(writable(event));
    throw error;
  }
}

/** A copy that has a canonical form. @param {any} value @returns {any} */
function writable(value) {
  if (typeof value === "string") return whole(value);
  if (typeof value === "number") return Math.min(Math.max(value, -INT_MAX), INT_MAX);
  if (Array.isArray(value)) return value.map(writable);
  if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([name, each]) => [whole(name), writable(each)]));
  return value;
}

// --- what is left of a masked dataset's evidence ----------------------------------------

/** @param {Run} run @param {Mask} mask @returns {Run} */
function maskedRun(run, mask) {
  return {
    ...run,
    source_id: mask(run.source_id),
    dataset_id: mask(run.dataset_id),
    pipeline_id: mask(run.pipeline_id),
    pipeline_version: mask(run.pipeline_version),
    idempotency_key: mask(run.idempotency_key),
    work_key: mask(run.work_key),
    partition: run.partition === null ? null : mask(run.partition),
  };
}

/** @param {Invocation} invocation @param {Mask} mask @returns {Invocation} */
function maskedInvocation(invocation, mask) {
  return {
    ...invocation,
    source_id: mask(invocation.source_id),
    dataset_id: mask(invocation.dataset_id),
    idempotency_key: mask(invocation.idempotency_key),
    actor: mask(invocation.actor),
    ticket: null,
    reason: "Withheld: the dataset is masked.",
    gates: maskedGates(invocation.gates, mask),
  };
}

/** @param {any} known @param {Mask} mask */
function maskedCircumstances(known, mask) {
  const { policies, inputs, outputs, version_id } = known;
  return circumstances({ invocation: known.invocation ? maskedInvocation(known.invocation, mask) : null, gates: maskedGates(known.gates, mask), policies, inputs, outputs, version_id });
}

/** @param {import("../types.js").GateResult[]} gates @param {Mask} mask */
const maskedGates = (gates, mask) => gates.map(({ gate, allowed, policy_ids, overridable, overridden, halts }) => ({ gate, allowed, reason: "", policy_ids: policy_ids.map(mask), overridable, overridden, halts }));
