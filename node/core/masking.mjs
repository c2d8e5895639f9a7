/** Datasets whose people have not agreed to be seen go by another name in everything public. */

import { createHmac } from "node:crypto";

export const MASK_KEY = "mask_key";

/** @param {string} name @param {string | null} key */
export function mask(name, key) {
  if (key === null) return "masked";
  return `masked-${createHmac("sha256", key).update(name).digest("hex").slice(0, 12)}`;
}

/** Must its name be kept out of everything public? @param {any} dataset @returns {boolean} */
export function isMasked(dataset) {
  const rights = dataset.rights;
  if (!rights || ["restricted", "blocked"].includes(rights.care.level)) return true;
  return Boolean(rights.sovereignty) && rights.sovereignty.consent !== "granted";
}
