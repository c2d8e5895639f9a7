/** Target updates: every target shows the head of the database. */

import { ConfigError, KfmError, TargetUnavailable, isSystemError, strerror } from "../model/errors.mjs";
import { refusal } from "../model/gates.mjs";
import { isShowable, stillReached } from "../model/targets.mjs";
import { hasTombstone } from "../model/withdrawals.mjs";
import * as runGates from "./gates.mjs";

/** @typedef {{dataset_id: string, target: string, sequence: number | null, error: any}} TargetReport */

/** Bring the targets of a dataset up to date that take it and are behind its head. @param {any} kernel @param {string} datasetId @returns {Promise<TargetReport[]>} */
export async function updateTargets(kernel, datasetId) {
  const shown = kernel.ledger.projected();
  const head = kernel.ledger.heads().find((/** @type {any} */ one) => one.dataset_id === datasetId);
  if (!head) return [];
  const looks = Boolean(kernel.loaded.dataset(datasetId));
  const { names, dataset, problem } = await taking(kernel, datasetId);
  const targets = kernel.targets.filter((/** @type {any} */ target) => names?.includes(target.name) ?? true);
  const behind = targets.filter((/** @type {any} */ target) => (shown.get(`${datasetId}\n${target.name}`) ?? 0) < head.sequence || (looks && isGone(target, head)));
  const refused = problem ?? (behind.length ? refusalOf(kernel, head, dataset) : null);
  const withdrawn = behind.length ? kernel.ledger.targetWithdrawals(datasetId) : [];
  return behind.map((/** @type {any} */ target) => {
    const here = withdrawn.filter((/** @type {any} */ one) => one.target === target.name);
    const problem = refused ?? (hasTombstone(here, head.sequence) ? tombstoned(`${datasetId} is withdrawn from target ${target.name}`) : null);
    return problem ? failed(datasetId, target, problem) : updateTarget(kernel, datasetId, target);
  });
}

/** The names of the targets that take this dataset as it is declared now; null where none may: what is declared no more, can't be read, is blocked or has no rights is refused by name, not left out. @param {any} kernel @param {string} datasetId @returns {Promise<{names: string[] | null, dataset: any, problem: KfmError | null}>} */
async function taking(kernel, datasetId) {
  try {
    const now = await kernel.loaded.current();
    const dataset = now.datasets.find((/** @type {any} */ one) => one.id === datasetId) ?? null;
    return { names: dataset && isShowable(dataset) ? stillReached(kernel.settings, now, dataset).map((one) => one.name) : null, dataset, problem: null };
  } catch (error) {
    if (error instanceof KfmError) return { names: null, dataset: null, problem: error };
    throw error;
  }
}

/** Is the version that this target was known to show gone? @param {any} target @param {any} head */
function isGone(target, head) {
  try {
    return Boolean(target.isShown) && !target.isShown(head.dataset_id, head);
  } catch (error) {
    if (error instanceof KfmError || isSystemError(error)) return true; // updating it again names the error
    throw error;
  }
}

/** Why nothing of this dataset may be shown now; null if it may. @param {any} kernel @param {any} head @param {any} dataset */
function refusalOf(kernel, head, dataset) {
  if (!dataset)
    return new ConfigError(`The dataset ${head.dataset_id} is promoted but not configured any more, so it is not projected.`, {
      remedy: "Configure the dataset again, and its targets are brought up to date.",
    });
  if (hasTombstone(kernel.ledger.withdrawals(head.dataset_id), head.sequence)) return tombstoned(`Something of ${head.dataset_id} is withdrawn`);
  if (kernel.ledger.isRenamed(head.dataset_id))
    return new TargetUnavailable(`${head.dataset_id} was renamed, and pointers are written by Python alone.`, { remedy: "`kfm project` of the Python package brings its targets up to date." });
  try {
    const decision = runGates.atProjection(kernel, dataset, head);
    if (!decision.allowed) return refusal(decision);
    return isShowable(dataset) ? null : new ConfigError(`The dataset ${dataset.id} has no rights that let a target show it.`);
  } catch (error) {
    if (error instanceof KfmError) return error; // a gate that can't be asked does not let anything pass
    throw error;
  }
}

/** @param {string} what */
const tombstoned = (what) => new TargetUnavailable(`${what}, and tombstones are written by Python alone.`, { remedy: "`kfm project` of the Python package brings its targets up to date." });

/** @param {any} kernel @param {string} datasetId @param {any} target @returns {TargetReport} */
function updateTarget(kernel, datasetId, target) {
  try {
    const known = (/** @type {number} */ sequence) => kernel.ledger.promotion(datasetId, sequence)?.version_id ?? null;
    const sequence = target.project(datasetId, () => kernel.ledger.head(datasetId), known);
    if (sequence !== null) kernel.store.raiseProjected(datasetId, target.name, sequence);
    return { dataset_id: datasetId, target: target.name, sequence, error: null };
  } catch (error) {
    if (error instanceof KfmError) return failed(datasetId, target, error);
    if (isSystemError(error)) return failed(datasetId, target, new TargetUnavailable(`${target.name}: ${strerror(error)}`));
    throw error;
  }
}

/** @param {string} dataset_id @param {any} target @param {KfmError} error @returns {TargetReport} */
const failed = (dataset_id, target, error) => ({ dataset_id, target: target.name, sequence: null, error: error.asDocument() });
