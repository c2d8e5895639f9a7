/** From a file and the environment to settings. The only reader of the environment, beside the entry point. */

import { accessSync, closeSync, constants, openSync, readSync, statSync } from "node:fs";
import { userInfo } from "node:os";
import { dirname, resolve } from "node:path";
import { ConfigError, ConfigNotFound, UsageError, isCode, why } from "../model/errors.mjs";
import { SecretRedaction } from "../model/redaction.mjs";
import { head, rpartition, sortedByPoints, thousands } from "../model/wording.mjs";
import { applySourceDefaults, check, valueProblem } from "./checks.mjs";
import { readDocument } from "./document.mjs";
import { environmentSecrets, resolveSecret, resolvedSecrets } from "./secrets.mjs";
import { gathered, nearest, toSettings } from "./shape.mjs";

const NAMES = ["kfm.yml", "kfm.yaml", "kfm.json"];
const CONFIG_BYTES_MAX = 1024 * 1024;

/** Environment variable → dotted field. */
const VARIABLES = /** @type {Record<string, string>} */ ({
  KFM_ENV: "environment",
  KFM_STATE: "state",
  KFM_STORE: "store",
  KFM_LEASE_SECONDS: "lease.seconds",
  KFM_LEASE_HEARTBEAT_SECONDS: "lease.heartbeat_seconds",
  KFM_LIMITS_OBJECTS_PER_RUN_MAX: "limits.objects_per_run_max",
  KFM_LIMITS_OBJECT_BYTES_MAX: "limits.object_bytes_max",
  KFM_LIMITS_RUN_BYTES_MAX: "limits.run_bytes_max",
  KFM_LIMITS_CALL_TIMEOUT_MS: "limits.call_timeout_ms",
  KFM_LIMITS_VERSIONS_KEPT: "limits.versions_kept",
  KFM_LIMITS_RUN_SECONDS: "limits.run_seconds",
});

/** @typedef {Record<string, string | undefined>} Environ */

/** Settings, the file they came from, and what its references stand for. */
export class Loaded {
  /** @param {any} settings @param {string} path @param {string} name @param {Environ} environ @param {{data: Buffer, reread: (data: Buffer) => Promise<any>}} source */
  constructor(settings, path, name, environ, { data, reread }) {
    this.settings = settings;
    this.newest = { data, settings };
    this.reread = reread;
    this.path = path;
    this.name = name;
    this.environ = environ;
    this.folder = dirname(path);
    this.redaction = new SecretRedaction(() => [...this.referencedSecrets(), ...environmentSecrets(environ)]);
  }

  /** The settings as the file says now; a ConfigError that may pass, where it can't be used. */
  async current() {
    if (!isRegular(this.path)) return this.settings; // one that can be read once only
    try {
      const data = read(this.path);
      // By its bytes: two edits within one tick of a clock have the same time.
      if (!data.equals(this.newest.data)) this.newest = { data, settings: await this.reread(data) };
    } catch (error) {
      if (error instanceof ConfigError) Object.assign(error.facts, { transient: true, cause: "configuration" });
      throw error;
    }
    return this.newest.settings;
  }

  referencedSecrets() {
    return resolvedSecrets(this.settings, (reference) => this.secret(reference));
  }

  /** @param {string} text */
  hide(text) {
    return this.redaction.hide(text);
  }

  /** A path of the configuration, seen from the folder that the file stands in. @param {string} path */
  resolve(path) {
    return path.startsWith("/") ? path : `${this.folder === "/" ? "" : this.folder}/${path}`;
  }

  /** @param {string} value */
  secret(value) {
    return resolveSecret(value, this.folder, this.environ);
  }

  /** @param {string} id */
  source(id) {
    return this.settings.sources.find((/** @type {any} */ one) => one.id === id);
  }

  /** @param {string} id */
  dataset(id) {
    return this.settings.datasets.find((/** @type {any} */ one) => one.id === id);
  }

  get store() {
    return this.settings.store === null ? null : this.secret(this.settings.store);
  }
}

/** Read, shape and check a configuration. @param {string | null} path @param {[string, string][]} overrides @param {Environ} environ @returns {Promise<Loaded>} */
export async function load(path, overrides, environ) {
  const name = find(path, environ);
  const data = read(name);
  const reread = async (/** @type {Buffer} */ now) => (await shaped(name, now, overrides, environ)).settings;
  const { settings, lines } = await shaped(name, data, overrides, environ);
  const loaded = new Loaded(settings, resolve(name), name, environ, { data, reread });
  requireFiles(loaded, lines);
  return loaded;
}

/** The settings of these bytes, and the lines of their fields. @param {string} name @param {Buffer} data @param {[string, string][]} overrides @param {Environ} environ */
async function shaped(name, data, overrides, environ) {
  const document = await readDocument(name, data);
  applySourceDefaults(document);
  let settings = toSettings(document);
  check(document, settings);
  for (const [variable, field] of Object.entries(VARIABLES)) {
    const text = environ[variable];
    if (text) settings = override(settings, field, placed(field, text, variable), `environment ${variable}`);
  }
  for (const [field, text] of overrides) settings = override(settings, field, placed(field, text, null), `flag --set ${field}`);
  return { settings, lines: document.lines };
}

/** @param {string | null} path @param {Environ} environ */
function find(path, environ) {
  if (path) return path;
  if (environ.KFM_CONFIG) return environ.KFM_CONFIG;
  const here = NAMES.filter((name) => reaches(name, constants.F_OK));
  if (here.length > 1) throw new ConfigError(`There are two: ${here[0]} and ${here[1]}.`, { remedy: "Name one with --config, or remove one." });
  if (!here[0]) throw new ConfigNotFound(`Looked for ${NAMES.join(", ")} in this folder.`);
  return here[0];
}

/** @param {string} path @param {number} mode */
function reaches(path, mode) {
  try {
    accessSync(path, mode);
    return true;
  } catch {
    return false;
  }
}

/** @param {string} name */
function read(name) {
  const data = Buffer.alloc(CONFIG_BYTES_MAX + 1);
  let size = 0;
  try {
    const descriptor = openSync(name, "r");
    try {
      for (let more = 1; more && size < data.length; size += more) more = readSync(descriptor, data, size, data.length - size, null);
    } finally {
      closeSync(descriptor);
    }
  } catch (error) {
    if (isCode(error, "ENOENT", "ENOTDIR")) throw new ConfigNotFound(`Looked for ${name}.`);
    if (isCode(error, "EISDIR")) throw new ConfigNotFound(`${name} is a folder; name the file in it.`);
    throw ConfigError.ofFile(name, `the file can't be read: ${why(error)}`);
  }
  if (size > CONFIG_BYTES_MAX) throw ConfigError.ofFile(name, `the file is larger than ${thousands(CONFIG_BYTES_MAX)} bytes`);
  return data.subarray(0, size);
}

/** A value from outside the file: its paths are seen from here, its credentials stay where they are. @param {string} field @param {string} text @param {string | null} variable */
function placed(field, text, variable) {
  if (field === "state") return resolve(text);
  if (field === "store" && text.startsWith("sqlite:")) return `sqlite:${resolve(text.slice("sqlite:".length))}`;
  if (field === "store" && variable !== null && text.includes("@") && !text.startsWith("file:")) return `env:${variable}`;
  return text;
}

/** @param {any} settings @param {string} field @param {string} text @param {string} origin */
function override(settings, field, text, origin) {
  const fields = sortedByPoints(Object.values(VARIABLES));
  if (!fields.includes(field)) throw new UsageError(`${origin}: \`${field}\` can't be set from outside the file${nearest(field, fields)}`);
  const [group, , leaf] = rpartition(field, ".");
  const isWhole = group === "limits";
  /** @type {any} */
  let value = text;
  if (group) {
    value = Number(text);
    const right = isWhole ? /^[+-]?\d+$/.test(text) && Number.isSafeInteger(value) : text.trim() !== "" && Number.isFinite(value);
    if (!right) throw new ConfigError(`${origin}: \`${leaf}\` must be ${isWhole ? "a whole number" : "a number"}, not \`${head(text, 40)}\``);
  }
  const changed = group ? { ...settings, [group]: { ...settings[group], [leaf]: value } } : { ...settings, [leaf]: value };
  const problem = valueProblem(changed, field);
  if (problem) throw new ConfigError(`${origin}: ${problem}`);
  return changed;
}

/** Files that the configuration names are there. @param {Loaded} loaded @param {Map<string, number>} lines */
function requireFiles(loaded, lines) {
  /** @type {[string, string][]} */
  const named = [];
  loaded.settings.policies.forEach((/** @type {string} */ path, /** @type {number} */ index) => {
    if (!/[*?[]/.test(path)) named.push([`policies[${index}]`, path]);
  });
  loaded.settings.sources.forEach((/** @type {any} */ source, /** @type {number} */ index) => {
    if (source.contract !== null) named.push([`sources[${index}].contract`, source.contract]);
    if (source.pipeline !== null) named.push([`sources[${index}].pipeline`, rpartition(source.pipeline, ":")[0]]);
  });
  const wrong = (/** @type {string} */ field, /** @type {string} */ sentence) => ConfigError.at(loaded.name, lines.get(field) ?? 1, sentence);
  const missing = named.filter(([, path]) => !reaches(loaded.resolve(path), constants.R_OK)).map(([field, path]) => wrong(field, `there is no file \`${path}\``));
  for (const [field, path] of named)
    if (field.startsWith("sources") && isFolder(loaded.resolve(path))) missing.push(wrong(field, `\`${path}\` is a folder, not a file`));
  if (missing.length) throw gathered(missing);
}

/** @param {string} path */
function isFolder(path) {
  try {
    return statSync(path).isDirectory();
  } catch {
    return false;
  }
}

/** @param {string} path */
function isRegular(path) {
  try {
    return statSync(path).isFile();
  } catch {
    return true; // that it is gone is told where it is read
  }
}

/** The account that the process runs under, not what the environment claims. */
export function account() {
  try {
    return userInfo().username;
  } catch {
    return `uid-${process.getuid?.() ?? 0}`;
  }
}

/** The files through which a GitHub Actions job gets its results. @param {Environ} environ */
export function github(environ) {
  if (environ.GITHUB_ACTIONS !== "true") return null;
  return { output: environ.GITHUB_OUTPUT || null, summary: environ.GITHUB_STEP_SUMMARY || null };
}
