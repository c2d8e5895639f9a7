/** Which format a file has: what the contract says, its media type, its name. */

import { contract } from "../core/contracts.mjs";
import { partition } from "../core/wording.mjs";

/** The format; a name that says GeoJSON outweighs a media type that says only JSON. @param {import("../types.js").Asset} asset @returns {string | null} */
export function formatOf(asset) {
  const { formats_by_media_type, formats_by_suffix } = contract("tables/media.json");
  const name = asset.path.toLowerCase();
  const suffix = Object.keys(formats_by_suffix).find((one) => name.endsWith(one));
  const byName = suffix === undefined ? null : formats_by_suffix[suffix];
  const byType = formats_by_media_type[partition(asset.media_type, ";")[0].trim().toLowerCase()] ?? null;
  return byType === "json" && ["geojson", "jsonl"].includes(byName) ? byName : (byType ?? byName);
}
