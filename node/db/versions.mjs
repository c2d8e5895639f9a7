/** Versions: read from their trees, and written with their pointers by the transaction that makes a head. */

import { StoreCorrupt } from "../model/errors.mjs";
import { EMPTY, decodePage, itemFrom } from "../model/version_trees.mjs";
import { headerFrom, versionOf } from "../model/versions.mjs";
import * as rows from "./rows.mjs";

const ROWS_MAX = 1000; // pages or items that one statement reads

/** @typedef {import("./sqlite.mjs").Session} Session */
/** @typedef {import("../types.js").Manifest} Manifest */
/** @typedef {import("../types.js").Form} Form */
/** @typedef {{root: string, treeId: string, filesId: string, pages: [string, string][], items: [string, string][]}} Staged */

/** Versions of one ledger. */
export class VersionReader {
  /** @param {Session} session */
  constructor(session) {
    this.session = session;
  }

  /** A version from its row, and its form: as it was kept whole, or with the items of its tree. @param {string} text @param {string | null} treeId @returns {[Manifest, Form]} */
  version(text, treeId) {
    const stored = rows.valueOf(text);
    if (treeId === null) return [stored, 1];
    const { header, form } = headerFrom(stored);
    const wanted = this.#leaves(treeId).flatMap((page) => page.rows.map(([, digest]) => digest));
    const found = this.#some("version_items.some", "digests", "item", wanted);
    return [{ ...header, items: wanted.map((digest) => itemFrom(digest, /** @type {string} */ (found.get(digest)))) }, form];
  }

  /** The version as it is stored on top of the present head, without what that has. @param {string} dataset_id @param {Manifest} manifest @returns {Staged} */
  stage(dataset_id, manifest) {
    const [treeId, filesId] = this.session.one("promotions.head_with_manifest", { dataset_id })?.slice(-2) ?? [null, null];
    /** @type {Set<string>} */
    const there = new Set();
    for (const page of this.#leaves(treeId ?? EMPTY, there)) for (const [, digest] of page.rows) there.add(digest);
    this.#leaves(filesId ?? EMPTY, there);
    const { pages, items, ...made } = versionOf(manifest);
    const inOrder = (/** @type {Map<string, string>} */ some) => [...some].filter(([id]) => !there.has(id)).sort(([a], [b]) => (a < b ? -1 : 1));
    return { ...made, pages: inOrder(pages), items: inOrder(items) };
  }

  /** The leaves of a tree, read level by level. @param {string} treeId @param {Set<string>} [seen] gets the ids of its pages @returns {import("../model/version_trees.mjs").Page[]} */
  #leaves(treeId, seen = new Set()) {
    for (let waiting = treeId === EMPTY ? [] : [treeId]; waiting.length; ) {
      const found = this.#some("version_pages.some", "page_ids", "page", waiting);
      const pages = waiting.map((id) => decodePage(id, /** @type {string} */ (found.get(id))));
      for (const id of waiting) seen.add(id);
      if (pages[0]?.level === 0) return pages;
      waiting = pages.flatMap((page) => page.rows.map(([, id]) => id));
    }
    return [];
  }

  /** @param {string} name @param {string} parameter @param {string} what @param {string[]} wanted @returns {Map<string, string>} */
  #some(name, parameter, what, wanted) {
    /** @type {Map<string, string>} */
    const found = new Map();
    for (let start = 0; start < wanted.length; start += ROWS_MAX)
      for (const [id, text] of this.session.all(name, { [parameter]: rows.textOf(wanted.slice(start, start + ROWS_MAX)) })) found.set(id, text);
    for (const id of wanted) if (!found.has(id)) throw new StoreCorrupt(`The ${what} ${id.slice(0, 12)} of a version is not in the database.`);
    return found;
  }
}

/** @param {Session} session @param {string} version_id @param {string} dataset_id @param {Staged} staged */
export function putVersion(session, version_id, dataset_id, { root, treeId, filesId, pages, items }) {
  for (const [digest, document] of items) session.all("version_items.insert", { digest, document });
  for (const [page_id, body] of pages) session.all("version_pages.insert", { page_id, body });
  session.all("versions.insert", { version_id, dataset_id, manifest: root, tree_id: treeId, files_id: filesId });
}
