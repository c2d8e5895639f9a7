/** Versions: what a dataset is at one time. Its id is the SHA-256 of its root document, which has the header and the ids of its trees; versions of before were named by the hash of the whole list (form 1). The twin of kfm.model.versions, which reads the whole. */

import { canonicalText, sha256Text } from "./canonical.mjs";
import { fileRows, folded, itemRow, treeOf } from "./version_trees.mjs";

/** @typedef {import("../types.js").Manifest} Manifest */
/** @typedef {import("../types.js").Form} Form */
/** @typedef {{versionId: string, root: string, treeId: string, filesId: string, pages: Map<string, string>, items: Map<string, string>}} Version its root document, and by hash its pages and the documents of its items */

/** The version that has just these items, which are sorted by id. @param {Manifest} manifest @returns {Version} */
export function versionOf(manifest) {
  const { items, ...header } = manifest;
  const made = items.map(itemRow);
  const tree = treeOf(made.map(({ row }) => row));
  const files = treeOf(fileRows(items));
  const [count, bytes] = folded(made.map(({ row }) => row[3]));
  const root = canonicalText({ manifest: 2, ...header, items: { count: items.length, tree: tree.treeId }, files: { count, bytes, tree: files.treeId } });
  return {
    versionId: sha256Text(root),
    root,
    treeId: tree.treeId,
    filesId: files.treeId,
    pages: new Map([...tree.pages, ...files.pages]),
    items: new Map(made.map(({ row, document }) => [row[1], document])),
  };
}

/** `manifest.json`: what is hashed is what is published. @param {Manifest} manifest @param {Form} form */
export const manifestText = (manifest, form) => (form === 1 ? canonicalText(manifest) : versionOf(manifest).root);

/** What a version says beside its items, and its form. @param {any} stored @returns {{header: Omit<Manifest, "items">, form: Form}} */
export function headerFrom(stored) {
  const { manifest, items: _items, files: _files, ...header } = stored;
  return { header, form: manifest === 2 ? 2 : 1 };
}

/** Do two say and hold the same, whatever their forms? @param {Manifest} one @param {Manifest} other */
export const isSame = (one, other) => canonicalText(one) === canonicalText(other);
