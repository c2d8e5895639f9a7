/** The transform of a source: a function that an ES module of the project exports. */

import { pathToFileURL } from "node:url";
import { outOfScope } from "../config/scope.mjs";
import { PipelineError } from "../model/errors.mjs";
import { rpartition, sortedByPoints } from "../model/wording.mjs";

const CHUNK_BYTES = 1024 * 1024;

/** One fetched object, as a pipeline sees it. @param {import("../types.js").Fetched} fetched @param {any} objects */
export function inputOf(fetched, objects) {
  const { found, sha256, size } = fetched;
  return {
    fetched,
    path: found.path,
    uri: found.uri,
    mediaType: found.media_type,
    size,
    sha256,
    /** Its bytes in pieces. */
    *chunks() {
      const reader = objects.open(sha256);
      try {
        for (let data = reader.read(CHUNK_BYTES); data.length; data = reader.read(CHUNK_BYTES)) yield Buffer.from(data);
      } finally {
        reader.close();
      }
    },
    /** All of it; for objects that fit in memory. */
    read() {
      return Buffer.concat([...this.chunks()]);
    },
  };
}

/** @param {any} kernel @param {string} reference `path/to/file.mjs:function` @returns {Promise<(context: any) => any>} */
export async function loadPipeline(kernel, reference) {
  const [given, , name] = rpartition(reference, ":");
  if (!given.endsWith(".mjs")) throw outOfScope(`The pipeline ${reference} is written in Python`);
  const path = kernel.loaded.resolve(given);
  let module;
  try {
    module = await import(pathToFileURL(path).href);
  } catch (error) {
    const found = /** @type {Error} */ (error);
    throw PipelineError.because(`${path}: ${found.constructor.name}: ${found.message}`, {}, error);
  }
  if (typeof module[name] === "function") return module[name];
  const known = sortedByPoints(Object.keys(module).filter((key) => typeof module[key] === "function"));
  throw new PipelineError(`${path} has no function ${name}; it has ${known.join(", ") || "none"}.`);
}
