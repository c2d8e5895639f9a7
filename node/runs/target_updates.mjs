/** Making every target show the head that the database names. */

import { ConfigError, KfmError, TargetUnavailable, isSystemError, strerror } from "../model/errors.mjs";
import { refusal } from "../model/gates.mjs";
import * as gating from "./gates.mjs";

/** @typedef {{dataset_id: string, target: string, sequence: number | null, error: any}} ProjectionReport */

/** Bring the targets of a dataset up to date that are behind its head. @param {any} kernel @param {string} datasetId @returns {ProjectionReport[]} */
export function project(kernel, datasetId) {
  const shown = kernel.ledger.projected();
  const head = kernel.ledger.heads().find((/** @type {any} */ one) => one.dataset_id === datasetId);
  if (!head) return [];
  const looks = Boolean(kernel.loaded.dataset(datasetId));
  const behind = kernel.projections.filter((/** @type {any} */ target) => (shown.get(`${datasetId}\n${target.name}`) ?? 0) < head.sequence || (looks && fell(target, head)));
  const refused = behind.length ? refusalOf(kernel, head) : null;
  return behind.map((/** @type {any} */ target) => (refused ? failed(datasetId, target, refused) : projectOne(kernel, datasetId, target)));
}

/** Is what this target was known to show not there any more? @param {any} target @param {any} head */
function fell(target, head) {
  try {
    return Boolean(target.stands) && !target.stands(head.dataset_id, head);
  } catch (error) {
    if (error instanceof KfmError || isSystemError(error)) return true; // projecting it again names the trouble
    throw error;
  }
}

/** Why nothing of this dataset may be shown now; null if it may. @param {any} kernel @param {any} head */
function refusalOf(kernel, head) {
  const dataset = kernel.loaded.dataset(head.dataset_id);
  if (!dataset)
    return new ConfigError(`The dataset ${head.dataset_id} is promoted but not configured any more, so it is not projected.`, {
      remedy: "Configure the dataset again, and its targets are brought up to date.",
    });
  try {
    const decision = gating.atProjection(kernel, dataset, head);
    return decision.allowed ? null : refusal(decision);
  } catch (error) {
    if (error instanceof KfmError) return error; // a gate that can't be asked does not let anything pass
    throw error;
  }
}

/** @param {any} kernel @param {string} datasetId @param {any} target @returns {ProjectionReport} */
function projectOne(kernel, datasetId, target) {
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

/** @param {string} dataset_id @param {any} target @param {KfmError} error @returns {ProjectionReport} */
const failed = (dataset_id, target, error) => ({ dataset_id, target: target.name, sequence: null, error: error.asDocument() });
