/** Secrets: where a configuration refers to them, what they stand for, and those that were written into it. */

import { existsSync, readFileSync } from "node:fs";
import { SecretNotFound, why } from "../model/errors.mjs";
import { isSecretName } from "../model/redaction.mjs";
import { splitUrl, unquotePlus } from "../model/urls.mjs";
import { partition, rpartition } from "../model/wording.mjs";

export const WAY_OUT = "write `env:NAME` or `file:PATH` and keep the secret there";
const SECRET_BYTES_MAX = 64 * 1024;
const ENVIRONMENT_SECRET_CHARS_MIN = 8;
const HARMLESS = new Set(["code", "pass", "auth", "signatures"]);
const REFERENCE = /^(?:env:[A-Za-z_][A-Za-z0-9_]*|file:[\s\S]+)$/;
const HINTS = ["token", "secret", "pass", "pwd", "key", "cred", "auth", "sig", "sas"];

/** @typedef {[string, string]} Problem path, sentence */

/** @param {string} value */
export const isReference = (value) => REFERENCE.test(value);
/** @param {string} name */
const isAddressName = (name) => /(?:url|endpoint)$/i.test(name);

/** @param {string} name */
function namesSecret(name) {
  const word = name.toLowerCase();
  return word === "cookie" || word === "set-cookie" || (!HARMLESS.has(word) && isSecretName(name));
}

/** What a reference stands for; any other text is returned as it is. @param {string} value @param {string} folder @param {Record<string, string | undefined>} environ @returns {string} */
export function resolveSecret(value, folder, environ) {
  const [kind, colon, place] = partition(value, ":");
  if (!colon || !["env", "file"].includes(kind) || (kind === "file" && place.startsWith("//"))) return value;
  if (kind === "env") {
    const found = environ[place];
    if (!found) throw new SecretNotFound(`The environment variable ${place} is not set.`);
    return found;
  }
  let data;
  try {
    data = readFileSync(place.startsWith("/") ? place : `${folder}/${place}`);
  } catch (error) {
    throw new SecretNotFound(`The file ${place} can't be read: ${why(error)}.`);
  }
  if (data.length > SECRET_BYTES_MAX) throw new SecretNotFound(`The file ${place} is too large to be a secret.`);
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data).replace(/[\r\n]+$/, "");
  } catch {
    throw new SecretNotFound(`The file ${place} is not UTF-8 text.`);
  }
  if (!text) throw new SecretNotFound(`The file ${place} is empty.`);
  return text;
}

/** What the references stand for; one that leads nowhere is an error when it is used. @param {any} settings @param {(reference: string) => string} resolve */
export function resolvedSecrets(settings, resolve) {
  const found = [];
  for (const reference of references(settings)) {
    try {
      const value = resolve(reference);
      if (!value.startsWith("sqlite:")) found.push(value);
    } catch (error) {
      if (!(error instanceof SecretNotFound)) throw error;
    }
  }
  return found;
}

/** @param {any} settings @returns {Generator<string>} */
function* references(settings) {
  const all = (/** @type {Record<string, string>} */ table) => Object.values(table).filter((value) => value && isReference(value));
  const named = (/** @type {Record<string, string>} */ table) => Object.entries(table).filter(([name, value]) => isReference(value) && namesSecret(name)).map(([, value]) => value);
  for (const source of settings.sources) {
    yield* all(source.headers);
    yield* all(source.params);
    yield* named(source.bucket_options);
    if (source.webhook) yield* source.webhook.secrets.filter(isReference);
  }
  for (const target of settings.publish) yield* named(target.options);
  for (const hook of settings.incidents) {
    yield* all({ url: hook.url ?? "", secret: hook.secret ?? "" });
    yield* all({ user: hook.user ?? "", password: hook.password ?? "" });
    yield* named(hook.options);
  }
  for (const queue of settings.ingest.queues) yield* named(queue.options);
  for (const options of Object.values(settings.ingest.object_options)) yield* named(/** @type {any} */ (options));
  for (const replica of settings.ingest.replicas) yield* all({ url: replica.url, token: replica.token ?? "" });
  yield* named(settings.objects_options);
  yield* named(settings.run_state.options);
  if (settings.lakefs) yield* all({ access: settings.lakefs.access_key, secret: settings.lakefs.secret_key });
  yield* all(settings.telemetry.headers);
  yield* all({ token: settings.lineage.token ?? "", store: settings.store ?? "" });
}

/** Values of variables whose names say that they are secrets. @param {Record<string, string | undefined>} environ */
export function environmentSecrets(environ) {
  const found = [];
  for (const [name, value = ""] of Object.entries(environ)) {
    const lower = name.toLowerCase();
    if (!HINTS.some((word) => lower.includes(word)) || ["PWD", "OLDPWD"].includes(name)) continue;
    if (!isSecretName(name) && !name.startsWith("OPENLINEAGE__TRANSPORT__AUTH")) continue;
    if (!(value.startsWith("/") && existsSync(value))) found.push(value);
  }
  for (const pair of (environ.OTEL_EXPORTER_OTLP_HEADERS ?? "").split(",")) found.push(partition(pair, "=")[2].trim());
  return found.filter((value) => value.length >= ENVIRONMENT_SECRET_CHARS_MIN);
}

/** Path and sentence of each secret that stands in the file; never its value. @param {any} settings @returns {Generator<Problem>} */
export function* inlineSecrets(settings) {
  for (const field of ["headers", "params", "bucket_options"]) yield* inTable(settings.source_defaults[field] ?? {}, `source_defaults.${field}`);
  for (const [index, source] of settings.sources.entries()) {
    for (const field of ["headers", "params", "bucket_options"]) yield* inTable(source[field], `sources[${index}].${field}`);
    for (const field of ["url", "bucket"]) yield* inAddress(source[field], `sources[${index}].${field}`);
  }
  for (const [index, target] of settings.publish.entries()) {
    yield* inTable(target.options, `publish[${index}].options`);
    yield* inAddress(target.url, `publish[${index}].url`);
  }
  for (const [index, hook] of settings.incidents.entries()) {
    yield* inTable(hook.options, `incidents[${index}].options`);
    yield* inTable({ secret: hook.secret ?? "", password: hook.password ?? "" }, `incidents[${index}]`);
    if (hook.kind === "chat" && hook.url && !isReference(hook.url)) yield [`incidents[${index}].url`, `\`url\` is a secret: who knows it can write there; ${WAY_OUT}`];
    else yield* inAddress(hook.url, `incidents[${index}].url`);
  }
  yield* inAddress(settings.store, "store");
  yield* inTable(settings.telemetry.headers, "telemetry.headers");
  yield* inAddress(settings.telemetry.otlp, "telemetry.otlp");
  yield* inAddress(settings.lineage.url, "lineage.url");
  if (settings.lineage.token !== null) yield* inTable({ token: settings.lineage.token }, "lineage");
}

/** @param {Record<string, string>} values @param {string} path @returns {Generator<Problem>} */
function* inTable(values, path) {
  for (const [name, value] of Object.entries(values)) {
    if (isAddressName(name)) yield* inAddress(value, `${path}.${name}`);
    const harmless = !value || ["true", "false"].includes(value.toLowerCase()) || isReference(value);
    if (namesSecret(name) && !harmless) yield [`${path}.${name}`, `\`${name}\` holds a secret; ${WAY_OUT}`];
  }
}

/** @param {string | null} address @param {string} path @returns {Generator<Problem>} */
function* inAddress(address, path) {
  if (!address || isReference(address)) return;
  const parts = splitUrl(address);
  if (!parts) return; // not an address at all: another check says so
  const field = rpartition(path, ".")[2];
  const isStore = path === "store";
  if (isStore ? parts.password !== null : parts.netloc.includes("@"))
    yield [path, `\`${field}\` holds credentials; ${isStore ? `put the whole address into KFM_STORE, or ${WAY_OUT}` : "give them in `headers`, as `Authorization: env:NAME`"}`];
  for (const pair of parts.query.split("&")) {
    const name = unquotePlus(partition(pair, "=")[0]);
    if (pair && namesSecret(name)) yield [path, `\`${field}\` holds a secret in \`${name}\`; move it out, as \`${name}: env:NAME\``];
  }
}
