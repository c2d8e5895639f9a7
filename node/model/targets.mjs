/** Which datasets a target takes: by their ids and their CARE levels. Pure. */

import { matchesName } from "./patterns.mjs";
import { redactUrl } from "./redaction.mjs";
import { byPoints } from "./wording.mjs";

const UNRESTRICTED = ["public", "review"]; // what a target takes that names no levels

/** @typedef {{name: string, kind: string, place: string | null}} ReachedTarget */

/** May any target take it? Not without rights, and not what is blocked. @param {any} dataset @returns {boolean} */
export const isShowable = (dataset) => Boolean(dataset.rights) && dataset.rights.care.level !== "blocked";

/** @param {any} target @param {any} dataset @returns {boolean} */
export function takes(target, dataset) {
  if (!isShowable(dataset)) return false;
  const { level } = dataset.rights.care;
  if (!target.datasets.some((/** @type {string} */ pattern) => matchesName(dataset.id, pattern))) return false;
  if (target.care !== null) return target.care.includes(level);
  return UNRESTRICTED.includes(level) || target.datasets.includes(dataset.id);
}

/** The targets that show this dataset, by name. @param {any} settings @param {any} dataset @returns {ReachedTarget[]} */
export function reached(settings, dataset) {
  return settings.publish
    .filter((/** @type {any} */ target) => takes(target, dataset))
    .map(described)
    .sort((/** @type {ReachedTarget} */ one, /** @type {ReachedTarget} */ other) => byPoints(one.name, other.name));
}

/** Those that took it when the process began and still do. @param {any} start @param {any} now @param {any} dataset @returns {ReachedTarget[]} */
export function stillReached(start, now, dataset) {
  const same = (/** @type {ReachedTarget} */ one, /** @type {ReachedTarget} */ other) => one.name === other.name && one.kind === other.kind && one.place === other.place;
  const later = reached(now, dataset);
  return reached(start, dataset).filter((one) => later.some((other) => same(one, other)));
}

/** @param {any} target @returns {ReachedTarget} */
function described(target) {
  return { name: target.name || target.kind, kind: target.kind, place: target.url ? redactUrl(target.url) : target.path };
}

/** The targets in one line. @param {ReachedTarget[]} targets */
export function reachedText(targets) {
  if (!targets.length) return "shown by no target";
  return `shown by ${targets.map((one) => `${one.name} (${one.place || one.kind})`).join(", ")}`;
}
