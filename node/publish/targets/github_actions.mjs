/**
 * A version as files for `actions/upload-artifact`, with the job's outputs and summary.
 *
 *     <folder>/<dataset>/00000012-0123456789ab/…    name this folder (output `path`) as the artifact
 *     <folder>/<dataset>/.reported-00000012-…       its outputs and summary have been written
 */

import { appendFileSync } from "node:fs";
import { TargetUnavailable, isSystemError, strerror } from "../../model/errors.mjs";
import { fileRows } from "../../model/version_trees.mjs";
import { readableSize, words } from "../../model/wording.mjs";
import * as files from "../../objects/files.mjs";
import { MASKED } from "../publisher_trace.mjs";
import { VersionBuilder, requireFolderName, sequenceOf, versionName } from "./tree.mjs";

/** @typedef {import("../../types.js").Promotion} Promotion */
/** @typedef {import("../../types.js").Manifest} Manifest */

const ROWS_MAX = 50;
const DELIMITER_TRIES_MAX = 10;
const REPORTED = ".reported-";
const ENTITIES = /** @type {Record<string, string>} */ ({ "<": "&lt;", ">": "&gt;", "&": "&amp;", "|": "&#124;" });

export class GithubActions {
  /** @param {string} name @param {any} objects @param {import("../../types.js").Ids} ids @param {string} folder @param {{output: string | null, summary: string | null}} job */
  constructor(name, objects, ids, folder, job) {
    this.name = name;
    this.objects = objects;
    this.ids = ids;
    this.folder = folder.replace(/\/+$/, "");
    this.job = job;
  }

  /** @param {string} datasetId @param {() => import("../../types.js").Head} head @returns {number | null} */
  project(datasetId, head) {
    const folder = `${this.folder}/${requireFolderName(datasetId)}`;
    const found = head();
    if (!found) return null;
    try {
      return this.#show(folder, ...found);
    } catch (error) {
      if (isSystemError(error)) throw new TargetUnavailable(`${this.name}: ${strerror(error)} (${error.path ?? folder}).`);
      throw error;
    }
  }

  /** @param {string} folder @param {Promotion} promotion @param {Manifest} manifest @param {import("../../types.js").Form} form */
  #show(folder, promotion, manifest, form) {
    files.makeDirs(folder);
    const sequences = files.list(folder).filter((name) => name.startsWith(REPORTED)).map((name) => sequenceOf(name.slice(REPORTED.length)) ?? 0);
    const reported = sequences.length ? Math.max(...sequences) : null;
    if (reported !== null && reported >= promotion.sequence) return reported;
    const final = `${folder}/${versionName(promotion)}`;
    if (!files.exists(final)) this.#build(folder, final, manifest, form);
    if (this.job.output) appendFileSync(this.job.output, outputs(outputValues(promotion, final), this.ids));
    if (this.job.summary) appendFileSync(this.job.summary, summary(promotion, manifest));
    files.create(`${folder}/${REPORTED}${versionName(promotion)}`).close();
    return promotion.sequence;
  }

  /** @param {string} folder @param {string} final @param {Manifest} manifest @param {import("../../types.js").Form} form */
  #build(folder, final, manifest, form) {
    const building = `${folder}/.building-${this.ids.new()}`;
    try {
      new VersionBuilder(this.objects, building, null, "never").build(manifest, form);
      files.rename(building, final);
      files.fsyncDir(folder);
    } finally {
      if (files.exists(building)) files.removeTree(building);
    }
  }
}

/** The job's outputs; with the dataset in the name too, for jobs that publish several. @param {Promotion} promotion @param {string} final */
export function outputValues(promotion, final) {
  const values = { path: final, sequence: String(promotion.sequence), version_id: promotion.version_id };
  const prefix = promotion.dataset_id.replace(/[^A-Za-z0-9_-]/gu, "_");
  return { ...values, ...Object.fromEntries(Object.entries(values).map(([name, value]) => [`${prefix}_${name}`, value])) };
}

/** The lines for $GITHUB_OUTPUT. A delimiter that can't be guessed keeps a value from ending early. @param {Record<string, string>} values @param {import("../../types.js").Ids} ids */
export function outputs(values, ids) {
  return Object.entries(values)
    .map(([name, value]) => {
      const delimiter = delimiterFor(value, ids);
      return `${name}<<${delimiter}\n${value}\n${delimiter}\n`;
    })
    .join("");
}

/** @param {string} value @param {import("../../types.js").Ids} ids */
function delimiterFor(value, ids) {
  for (let round = 0; round < DELIMITER_TRIES_MAX; round += 1) {
    const delimiter = `kfm_${ids.new()}`;
    if (!value.includes(delimiter)) return delimiter;
  }
  throw new TargetUnavailable("No delimiter was found that the value does not contain.");
}

/** A few lines of Markdown. The summary of a public repository is public: restricted ids stay hidden. @param {Promotion} promotion @param {Manifest} manifest */
export function summary(promotion, manifest) {
  const hidden = ["restricted", "blocked"].includes(manifest.rights.care.level);
  const shown = fileRows(manifest.items);
  const total = readableSize(shown.reduce((sum, [, , size]) => sum + size, 0));
  const lines = [
    `### ${escaped(hidden ? MASKED : manifest.title)}: version ${promotion.sequence}`,
    "",
    `${shown.length} files, ${total} · licence ${escaped(manifest.rights.license)} · ${escaped(manifest.rights.care.label)} · \`${promotion.version_id}\``,
    "",
  ];
  if (!hidden && shown.length) {
    lines.push("| file | size |", "| --- | ---: |");
    lines.push(...shown.slice(0, ROWS_MAX).map(([path, , size]) => `| ${escaped(path)} | ${readableSize(size)} |`));
    if (shown.length > ROWS_MAX) lines.push(`| … and ${shown.length - ROWS_MAX} more | |`);
    lines.push("");
  }
  return `${lines.join("\n")}\n`;
}

/** Text that Markdown and HTML show as it is, on one line. @param {string} text */
function escaped(text) {
  return words(text).replace(/[\\`*_{}[\]()#+!|<>&~-]/g, (found) => ENTITIES[found] ?? `\\${found}`);
}
