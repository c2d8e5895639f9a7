/** Published documents, rendered from a version and from nothing else: same version, same bytes. */

import canonicalize from "canonicalize";
import { manifestText } from "../../model/versions.mjs";
import { dcat } from "./dcat.mjs";
import { COLLECTION, DCAT, MANIFEST, allPages, itemName, pageName, sourcePages } from "./pages.mjs";
import { catalog, collection, itemLink, sourceLink, stacItem } from "./stac.mjs";

/** Every document of a version by its path in the version's folder, the manifest last. @param {import("../../types.js").Manifest} manifest @param {import("../../types.js").Form} form @returns {Generator<[string, string]>} */
export function* documents(manifest, form) {
  const { items } = manifest;
  const sources = sourcePages(items);
  for (const item of items) yield [itemName(item), encode(stacItem(manifest, item))];
  for (const page of sources.flatMap(allPages)) yield [pageName(page), encode(catalog(manifest, page))];
  const links = sources.length ? sources.map((page) => sourceLink("./", page)) : items.map((item) => itemLink("./", item));
  yield [COLLECTION, encode(collection(manifest, links))];
  yield [DCAT, encode(dcat(manifest))];
  yield [MANIFEST, manifestText(manifest, form)];
}

/** RFC 8785 with real numbers: these documents are read, not hashed. @param {any} plain */
const encode = (plain) => `${/** @type {any} */ (canonicalize)(plain)}\n`;
