/** The preparation of a version: fetch, transform, validate. The same for a run and a dry run. */

import { retryText } from "../calls/guard.mjs";
import { KfmError, PathConflict, PipelineFailed, StoreCorrupt } from "../model/errors.mjs";
import { fingerprint as fingerprintOf } from "../model/input_hash.mjs";
import { shapeless } from "../model/redaction.mjs";
import { isSame, versionOf } from "../model/versions.mjs";
import { itemId, mergeItems } from "../publish/manifest.mjs";
import { fetchAll } from "./fetch.mjs";
import { TRANSFORM } from "./nodes.mjs";
import { inputOf, loadPipeline } from "./transform.mjs";

/** @typedef {import("./subject.mjs").Subject} Subject */
/** @typedef {import("../types.js").Head} Head */
/** @typedef {{fingerprint: string, item: import("../types.js").Item | null, report: import("../types.js").Report | null, staged: import("../publish/publisher.mjs").Staged, found: "data" | "empty" | "absent"}} Prepared */

const MAIN = "main";

/** @param {any} upstream @param {Subject} subject @returns {Promise<{found: import("../types.js").Found[], fingerprint: string, answersEmpty: boolean}>} */
export async function discover(upstream, subject) {
  const found = await upstream.discover(subject.window);
  /** @type {Map<string, string>} */
  const byPath = new Map();
  for (const { path, uri } of found) {
    const other = byPath.get(path) ?? uri;
    if (other !== uri) throw new PathConflict(`${path} would hold ${other} and ${uri}.`);
    byPath.set(path, uri);
  }
  return { found, fingerprint: fingerprintOf(found), answersEmpty: upstream.answersEmpty === true };
}

/** @param {any} report */
export function summaryOf(report) {
  const checks = report?.checks ?? [];
  const passed = checks.filter((/** @type {any} */ check) => check.passed).length;
  return { checks: checks.length, passed, failed: checks.length - passed };
}

/** @param {any} kernel @param {Subject} subject @param {any} upstream @param {any} discovered @param {any} objects @param {any} publisher @param {any} log @param {() => void} check @param {any} nodes @param {string} runId @returns {Promise<Prepared>} */
export async function prepare(kernel, subject, upstream, discovered, objects, publisher, log, check, nodes, runId) {
  const fetched = await fetch(kernel, upstream, discovered.found, objects, log, check, nodes);
  const seen = fetched.map((each) => ({ ...each.found, checksum: `sha256:${each.sha256}`, size: each.size }));
  nodes.learn({ inputs: seen });
  nodes.begin(TRANSFORM, discovered.fingerprint);
  nodes.learn({ inputs: seen });
  const { pipeline } = subject.source;
  const run = pipeline ? await loadPipeline(kernel, pipeline) : publishAsFetched;
  log.step("pipeline", pipeline ?? "publish as fetched");
  const context = {
    inputs: fetched.map((each) => inputOf(each, objects)),
    window: subject.window,
    publisher,
    log: (/** @type {string} */ message) => log.step("pipeline", message),
    datasetId: subject.dataset.id,
    sourceId: subject.source.id,
    partition: subject.work.partition,
    dryRun: publisher.dryRun,
    check, // for long work: raises once the run was stopped
  };
  try {
    await runPipeline(run, context);
  } catch (error) {
    check(); // after a stop that is what ended it, whatever the function threw
    throw error;
  }
  check();
  const staged = publisher.staged();
  nodes.learn({ outputs: staged.assets });
  nodes.begin("validate", discovered.fingerprint);
  const report = await validate(kernel, subject, staged.assets, objects, log, nodes);
  check();
  const state = {
    dataset_id: subject.dataset.id,
    run_id: runId,
    lakefs_branch: MAIN,
    inputs_hash: discovered.fingerprint,
    validation_summary: summaryOf(report),
    outcome: "success",
    code_sha: subject.work.output_version,
  };
  const item = staged.assets.length ? await itemOf(subject, staged.assets, objects, state) : null;
  return { fingerprint: discovered.fingerprint, item, report, staged, found: foundAt(discovered, fetched, staged) };
}

/** Whether there is data for the window: nothing found is an absence, unless upstream answers for each window. @param {any} discovered @param {any[]} fetched @param {any} staged */
function foundAt(discovered, fetched, staged) {
  if (staged.assets.some((/** @type {any} */ asset) => asset.size)) return "data";
  if (discovered.answersEmpty && !fetched.some((each) => each.size)) return "empty";
  if (staged.assets.length) return "data";
  return discovered.found.length ? "empty" : "absent"; // of what was found the pipeline made nothing
}

/** @param {any} kernel @param {any} upstream @param {any[]} found @param {any} objects @param {any} log @param {() => void} check @param {any} nodes */
async function fetch(kernel, upstream, found, objects, log, check, nodes) {
  log.step("fetch", `${found.length} objects`, { facts: { objects: found.length } });
  kernel.progress.phase("fetch");
  const onRetry = (/** @type {any} */ retrying) => log.step("fetch", retryText(retrying), { level: "warning", facts: { error_class: retrying.error_class } });
  const fetched = await fetchAll(kernel, upstream, found, objects, nodes, check, onRetry);
  kernel.progress.done();
  const bytes = fetched.reduce((sum, each) => sum + each.size, 0);
  log.runEvent("run.metrics", { objects: fetched.length, bytes, phase: "fetch" });
  return fetched;
}

/** The built-in pipeline: every object as it came, at the path that discovery gave it. @param {any} context */
async function publishAsFetched(context) {
  for (const entry of context.inputs) await context.publisher.writeFile(entry.path, entry.fetched);
}

/** Call the pipeline's function; whatever it throws is the pipeline's failure. @param {(context: any) => any} run @param {any} context */
async function runPipeline(run, context) {
  try {
    await run(context);
  } catch (error) {
    if (error instanceof KfmError) throw error;
    const name = error instanceof Error ? error.constructor.name : typeof error;
    throw PipelineFailed.because(`${name}: ${shapeless(String(/** @type {any} */ (error)?.message ?? error))}`, {}, error);
  }
}

/** @param {Subject} subject @param {import("../types.js").Asset[]} assets @param {any} objects @param {any} run_state @returns {Promise<import("../types.js").Item>} */
async function itemOf(subject, assets, objects, run_state) {
  const { source, window, work } = subject;
  const { bboxOf } = await import("../publish/contract/geojson.mjs");
  return {
    id: itemId(source.id, window, work.partition),
    source_id: source.id,
    window_start_ms: window.start_ms,
    window_end_ms: window.end_ms,
    partition: work.partition,
    assets,
    bbox: bboxOf(assets, (sha256) => objects.open(sha256)),
    run_state,
  };
}

/** @param {any} kernel @param {Subject} subject @param {import("../types.js").Asset[]} assets @param {any} objects @param {any} log @param {any} nodes */
async function validate(kernel, subject, assets, objects, log, nodes) {
  const contracts = await contractsOf(kernel, subject);
  const columns = contracts.flatMap(([contract]) => contract.objects.flatMap((/** @type {any} */ table) => table.properties.map((/** @type {any} */ column) => ({ name: column.name, type: column.logicalType ?? "string" }))));
  nodes.learn({ outputs: assets, columns });
  if (!contracts.length) {
    log.step("validate", "no contract is declared", { level: "warning" });
    return null;
  }
  if (!assets.length) return null;
  const { validateAssets } = await import("../publish/contract/validation.mjs");
  const isPublic = subject.dataset.rights?.care.level === "public";
  const checks = [];
  for (const [contract, prefix] of contracts) {
    const mine = assets.filter((asset) => asset.path.startsWith(prefix));
    checks.push(...validateAssets(contract, mine, (sha256) => objects.open(sha256), kernel.clock.nowMs(), subject.window, isPublic, kernel.tick));
  }
  const whole = { checks };
  const summary = summaryOf(whole);
  nodes.validated(whole, summary);
  for (const failed of checks.filter((check) => !check.passed)) log.step("validate", `${failed.name}: ${failed.detail}`, { level: "error", facts: { path: failed.path } });
  log.step("validate", summary.failed ? "contract broken" : "contract kept", { facts: { summary } });
  return whole;
}

/** Each contract with the prefix of the paths that it speaks for. @param {any} kernel @param {Subject} subject @returns {Promise<[any, string][]>} */
async function contractsOf(kernel, { source }) {
  /** @type {[string, string][]} */
  const named = source.contract ? [[source.contract, ""]] : [];
  for (const member of source.members) {
    const { contract } = kernel.loaded.source(member);
    if (contract) named.push([contract, `${member}/`]);
  }
  if (!named.length) return [];
  const { loadContract } = await import("../publish/contract/reader.mjs");
  return Promise.all(named.map(async ([path, prefix]) => /** @type {[any, string]} */ ([await loadContract(kernel.readProject(path), path), prefix])));
}

/** Nothing is promoted that can't be shown: every object that the head does not have must be at hand. @param {import("../types.js").Manifest} manifest @param {Head} head @param {any} objects */
export function requireObjects(manifest, head, objects) {
  const shown = new Set(head?.[1].items); // a merge leaves them as they are
  for (const item of manifest.items.filter((one) => !shown.has(one)))
    for (const asset of item.assets) {
      const size = objects.sizeOf(asset.sha256);
      if (size !== asset.size)
        throw new StoreCorrupt(`Object sha256:${asset.sha256} of ${asset.path} ${size === null ? "is not in the object store" : "holds other bytes"}.`, {
          remedy: "Bring the objects folder back, or run the work that made it again with --force. Machines that share a ledger must share their objects, too.",
        });
    }
}

/** The manifest to promote over this head (null: the head already shows it) and its version. @param {Prepared} prepared @param {Head} head @param {Subject} subject @returns {[import("../types.js").Manifest | null, string]} */
export function merged(prepared, head, subject) {
  // Upstream has nothing for this window. What was published stays published.
  if (!prepared.item) return [null, head ? head[0].version_id : ""];
  const manifest = mergeItems(head ? head[1] : null, subject.dataset, [prepared.item], subject.source.mode);
  return head && isSame(head[1], manifest) ? [null, head[0].version_id] : [manifest, versionOf(manifest).versionId];
}
