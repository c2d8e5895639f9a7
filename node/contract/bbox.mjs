/** The bounding box of GeoJSON files, as decimal text. */

import { decimalText } from "../publisher/manifest.mjs";
import { formatOf } from "./formats.mjs";
import { GeometryProblem, checkGeometry, featuresOf, positionsOf } from "./geometry.mjs";
import { FileProblem, JsonStream } from "./streams.mjs";

/** West, south, east, north of all GeoJSON assets; null if there is none, or if one can't be trusted. @param {import("../types.js").Asset[]} assets @param {(sha256: string) => any} open @returns {[string, string, string, string] | null} */
export function bboxOf(assets, open) {
  /** @type {[number, number, number, number] | null} */
  let box = null;
  for (const asset of assets) {
    if (formatOf(asset) !== "geojson") continue;
    const reader = open(asset.sha256);
    try {
      for (const feature of featuresOf(new JsonStream(reader), {})) {
        const geometry = feature && typeof feature === "object" && !Array.isArray(feature) ? (feature.geometry ?? null) : null;
        if (geometry === null) continue;
        checkGeometry(geometry);
        for (const [longitude, latitude] of positionsOf(geometry))
          box = box === null ? [longitude, latitude, longitude, latitude] : [Math.min(box[0], longitude), Math.min(box[1], latitude), Math.max(box[2], longitude), Math.max(box[3], latitude)];
      }
    } catch (error) {
      if (error instanceof FileProblem || error instanceof GeometryProblem) return null;
      throw error;
    } finally {
      reader.close();
    }
  }
  return box === null ? null : /** @type {[string, string, string, string]} */ (box.map(decimalText));
}
