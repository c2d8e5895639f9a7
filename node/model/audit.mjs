/** The audit log as a chain: every entry carries the hash of the one before it. */

import { canonicalText, sha256Hex } from "./canonical.mjs";

export const ZEROS = "0".repeat(64);

/** @typedef {import("../types.js").GovernanceEntry} Entry */

/** @param {Entry} entry */
export function contentHash(entry) {
  const { kind, subject, actor, recorded_at_ms, rationale, ticket, details } = entry;
  return sha256Hex(canonicalText({ kfm: "audit-entry/1", entry: { kind, subject, actor, recorded_at_ms, rationale: rationale ?? null, ticket: ticket ?? null, details: details ?? {} } }));
}

/** @param {string} previous @param {number} number @param {string} content */
export function linkHash(previous, number, content) {
  return sha256Hex(canonicalText({ kfm: "audit-link/1", previous, number, content }));
}

/** @param {Iterable<Entry>} entries @param {string} [previous] @param {number} [number] */
export function chained(entries, previous = ZEROS, number = 0) {
  const hashes = [];
  for (const entry of entries) {
    number += 1;
    previous = linkHash(previous, number, contentHash(entry));
    hashes.push(previous);
  }
  return hashes;
}
