/** What a well-shaped configuration must also be: its names agree and its values make sense. */

import { dirname, join, normalize, resolve } from "node:path";
import { allowProblem } from "../model/addresses.mjs";
import { PROVIDER_CHARS_MAX, isProviderName } from "../model/breaker.mjs";
import { contract } from "../model/contracts.mjs";
import { ConfigError, WindowError } from "../model/errors.mjs";
import { freezeSpanMs } from "../model/gates.mjs";
import { ownPlaces, takesIn } from "../model/settings.mjs";
import { PATH_FIELDS, PLACE_FIELDS, templateProblem } from "../model/templates.mjs";
import { zoneExists, zoneNames } from "../model/times.mjs";
import { splitUrl } from "../model/urls.mjs";
import { resolveWindow } from "../model/windows.mjs";
import { head, rpartition, sortedByPoints } from "../model/wording.mjs";
import { WAY_OUT, inlineSecrets, isReference } from "./secrets.mjs";
import { gathered, isGroup, isWebAddress, nearest } from "./shape.mjs";

/** @typedef {[string, string]} Problem path, sentence */

const ID_RULE = "letters, digits, `.`, `_` and `-`, beginning with a letter or digit, at most 100";
const BAD_CHARACTERS = `has characters that are not allowed: ${ID_RULE}`;
const ID = /^[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){0,99}$/;
const SOME_MOMENT_MS = 1_735_732_800_000;
const PIPELINE = /^[^:]+\.(?:py|mjs):[A-Za-z_]\w*$/;
const NEEDS = /** @type {Record<string, string>} */ ({ files: "folder", http: "url", bucket: "bucket", sync: "members" });
const WITHOUT_PROVIDER = ["files", "sync"]; // kinds of sources that call nothing outside by themselves
const OWN = /** @type {Record<string, string[]>} */ ({
  files: ["folder", "pattern"],
  http: ["url", "params", "headers", "pagination", "allow"],
  bucket: ["bucket", "prefix", "pattern", "bucket_options"],
  sync: ["members"],
});
const PLAIN = /** @type {Record<string, any>} */ ({ folder: null, pattern: "**/*", url: null, params: {}, headers: {}, pagination: null, allow: [], bucket: null, prefix: "", bucket_options: {}, members: [] });
const TARGET_NEEDS = /** @type {Record<string, string | null>} */ ({ branch: null, dcat: "url", "github-actions": null, local: "path", noop: null, s3: "url", stac: "url" });
const CATALOGUES = ["dcat", "stac"];
const STORES = ["sqlite:", "postgresql://", "postgres://", "env:", "file:"];
const SCHEMES = /** @type {Record<string, string[]>} */ ({ url: ["http", "https"], bucket: ["s3", "gs", "az", "file"] });
const FIGURES_MAX = /** @type {Record<string, number>} */ ({ watts_per_core: 1_000, overhead: 10, carbon_g_per_kwh: 10_000 });
const FIGURE_MIN = 1e-6;

/** @param {import("./document.mjs").Document} document @param {any} settings */
export function check(document, settings) {
  const problems = [
    ...names(settings),
    ...datasets(settings),
    ...sources(settings),
    ...sync(settings),
    ...ownOutput(document, settings),
    ...targets(settings),
    ...freezes(settings),
    ...numbers(settings),
    ...evidence(settings),
    ...webhooks(settings),
    ...inlineSecrets(settings),
  ];
  if (!problems.length) return;
  const ordered = problems.map((problem, index) => ({ problem, index, line: document.line(problem[0]) })).sort((a, b) => a.line - b.line || a.index - b.index);
  throw gathered(ordered.map(({ problem: [path, sentence] }) => document.error(path, sentence)));
}

/** What is wrong with one field that came from outside the file. @param {any} settings @param {string} field @returns {string | null} */
export function valueProblem(settings, field) {
  const problems = [...names(settings), ...numbers(settings), ...evidence(settings)];
  return problems.find(([path]) => path === field)?.[1] ?? null;
}

/** @param {any} settings @returns {Generator<Problem>} */
function* names(settings) {
  if (!ID.test(settings.environment)) yield ["environment", `the environment \`${head(settings.environment, 40)}\` ${BAD_CHARACTERS}`];
  for (const group of ["datasets", "sources"]) {
    const things = settings[group];
    const word = group.slice(0, -1);
    /** @type {Map<string, string>} */
    const seen = new Map();
    for (const [index, thing] of things.entries()) {
      const path = `${group}[${index}].id`;
      if (!ID.test(thing.id)) yield [path, `the ${word} id \`${head(thing.id, 40)}\` ${BAD_CHARACTERS}`];
      const folded = thing.id.toLowerCase();
      if (!seen.has(folded)) seen.set(folded, thing.id);
      const earlier = seen.get(folded);
      if (things.slice(0, index).some((/** @type {any} */ other) => other.id === thing.id)) yield [path, `two ${group} have the id \`${thing.id}\``];
      else if (earlier !== thing.id) yield [path, `the ${word} ids \`${earlier}\` and \`${thing.id}\` differ in case only`];
    }
  }
}

/** @param {any} settings @returns {Generator<Problem>} */
function* datasets(settings) {
  for (const [index, dataset] of settings.datasets.entries()) {
    const path = `datasets[${index}]`;
    if (!ID.test(dataset.domain)) yield [`${path}.domain`, `the domain \`${head(dataset.domain, 40)}\` ${BAD_CHARACTERS}`];
    if (dataset.bbox !== null) {
      const [west, south, east, north] = dataset.bbox;
      if (!(-180 <= west && west <= 180 && -180 <= east && east <= 180 && -90 <= south && south <= north && north <= 90))
        yield [`${path}.bbox`, "`bbox` must be west, south, east, north in degrees"];
    }
    if (dataset.rights && !dataset.rights.license.trim()) yield [`${path}.rights.license`, "`license` must not be empty"];
    if (dataset.rights && !dataset.rights.care.label.trim()) yield [`${path}.rights.care.label`, "`label` must not be empty"];
  }
}

/** @param {any} settings @returns {Generator<Problem>} */
function* sources(settings) {
  const known = settings.datasets.map((/** @type {any} */ one) => one.id);
  for (const [index, source] of settings.sources.entries()) {
    const path = `sources[${index}]`;
    if (!known.includes(source.dataset))
      yield [`${path}.dataset`, `source \`${source.id}\` names the dataset \`${source.dataset}\`, which is not there${nearest(source.dataset, known)}`];
    yield* kindOf(source, path);
    yield* time(source, path);
    if (source.pipeline !== null && !PIPELINE.test(source.pipeline))
      yield [`${path}.pipeline`, `\`pipeline\` must be \`path/to/file.py:function\`, not \`${head(source.pipeline, 60)}\``];
    for (const field of ["partition", "output_version"]) if (source[field] === "") yield [`${path}.${field}`, `\`${field}\` must not be empty; leave it out instead`];
    yield* templates(source, path);
    yield* provider(source, path);
    for (const [position, entry] of source.allow.entries()) {
      const problem = allowProblem(entry);
      if (problem) yield [`${path}.allow[${position}]`, problem];
    }
  }
}

/** @param {any} source @param {string} path @returns {Generator<Problem>} */
function* provider(source, path) {
  if (source.provider === null) return;
  if (WITHOUT_PROVIDER.includes(source.kind)) {
    const why = source.kind === "files" ? "nothing outside is called" : "its members call; give it to them";
    yield [`${path}.provider`, `\`provider\` does not apply to a source of kind \`${source.kind}\`: ${why}`];
  } else yield* providerName(source.provider, path);
}

/** @param {string} name @param {string} path @returns {Generator<Problem>} */
function* providerName(name, path) {
  if (!isProviderName(name)) yield [`${path}.provider`, `\`provider\` must be one word of plain characters, at most ${PROVIDER_CHARS_MAX}`];
}

/** @param {any} source @param {string} path @returns {Generator<Problem>} */
function* kindOf(source, path) {
  if (source.kind === "dataset") {
    yield [`${path}.kind`, `source \`${source.id}\` is made of other datasets, which only Python's kfm runs; give such sources a configuration of their own`];
    return;
  }
  const needed = NEEDS[source.kind];
  if (!needed) {
    yield [`${path}.kind`, `there is no kind of source \`${head(source.kind, 40)}\`${nearest(source.kind, sortedByPoints(Object.keys(NEEDS)))}`];
    return;
  }
  if (!source[needed] || source[needed].length === 0) yield [path, `source \`${source.id}\` is of kind \`${source.kind}\` and needs \`${needed}\``];
  const own = /** @type {string[]} */ (OWN[source.kind]);
  const foreign = sortedByPoints(new Set(Object.values(OWN).flat())).filter((field) => !own.includes(field));
  for (const field of foreign)
    if (JSON.stringify(source[field]) !== JSON.stringify(PLAIN[field])) yield [`${path}.${field}`, `\`${field}\` does not apply to a source of kind \`${source.kind}\``];
  if (SCHEMES[needed] && source[needed]) yield* address(source[needed], needed, `${path}.${needed}`);
}

/** @param {string} text @param {string} field @param {string} path @returns {Generator<Problem>} */
function* address(text, field, path) {
  const schemes = /** @type {string[]} */ (SCHEMES[field]);
  const parts = splitUrl(text);
  const whole = parts && parts.port !== false && schemes.includes(parts.scheme) && (parts.netloc || (parts.scheme === "file" && parts.path));
  if (!whole) yield [path, `\`${rpartition(path, ".")[2]}\` must begin with ${schemes.map((one) => `\`${one}://\``).join(" or ")} and name a place`];
}

/** @param {any} source @param {string} path @returns {Generator<Problem>} */
function* time(source, path) {
  if (!zoneExists(source.time_zone)) {
    yield [`${path}.time_zone`, `there is no time zone \`${head(source.time_zone, 40)}\`${nearest(source.time_zone, sortedByPoints(zoneNames()))}`];
    return;
  }
  if (source.window === "none") {
    yield [`${path}.window`, `source \`${source.id}\` has no windows, which only Python's kfm runs; give such sources a configuration of their own`];
    return;
  }
  try {
    resolveWindow(source.window, source.time_zone, SOME_MOMENT_MS);
  } catch (error) {
    if (!(error instanceof WindowError)) throw error;
    yield [`${path}.window`, `\`window\` can't be used: ${clause(error.detail)}`];
  }
}

/** Fields in braces that are never filled in. @param {any} source @param {string} path @returns {Generator<Problem>} */
function* templates(source, path) {
  /** @type {[string, string | null, string[]][]} */
  const written = [["url", source.url, PLACE_FIELDS], ["prefix", source.prefix, PLACE_FIELDS], ["pattern", source.pattern, PLACE_FIELDS]];
  for (const [name, value] of Object.entries(source.params)) written.push([`params.${name}`, /** @type {string} */ (value), PLACE_FIELDS]);
  written.push(["path", source.path, PATH_FIELDS]);
  for (const [field, text, allowed] of written) {
    const problem = text ? templateProblem(text, allowed) : null;
    if (problem) yield [`${path}.${field}`, `\`${field}\` can't be used: ${clause(problem)}`];
  }
}

/** @param {string} sentence */
function clause(sentence) {
  const bare = sentence.replace(/\.+$/, "");
  return /^\p{L}/u.test(sentence) ? bare.charAt(0).toLowerCase() + bare.slice(1) : bare;
}

/** @param {any} settings @returns {Generator<Problem>} */
function* sync(settings) {
  const all = new Map(settings.sources.map((/** @type {any} */ one) => [one.id, one]));
  for (const [index, source] of settings.sources.entries()) {
    for (const [position, member] of source.members.entries()) {
      const here = `sources[${index}].members[${position}]`;
      const found = all.get(member);
      if (!found) yield [here, `sync \`${source.id}\` names the member \`${member}\`, which is not there${nearest(member, [...all.keys()])}`];
      else if (source.members.slice(0, position).includes(member)) yield [here, `sync \`${source.id}\` names the member \`${member}\` twice`];
      else {
        const problem = memberProblem(source, found);
        if (problem) yield [here, problem];
      }
    }
  }
}

/** @param {any} whole @param {any} member @returns {string | null} */
function memberProblem(whole, member) {
  if (member.id === whole.id) return `sync \`${whole.id}\` contains itself`;
  if (member.kind === "sync") return `sync \`${whole.id}\` has the sync \`${member.id}\` among its members; name the members of \`${member.id}\` instead`;
  if (member.dataset !== whole.dataset) return `sync \`${whole.id}\` publishes the dataset \`${whole.dataset}\`, but its member \`${member.id}\` belongs to \`${member.dataset}\``;
  if (member.pipeline !== null)
    return `sync \`${whole.id}\` would publish what its member \`${member.id}\` fetches without running the member's \`pipeline\`; give the sync itself a pipeline`;
  for (const field of ["webhook", "follows"])
    if (member[field]?.secrets || member[field]?.length)
      return `\`${field}\` of \`${member.id}\` would run it alone, and the sync \`${whole.id}\` publishes its data, too; give it to the sync`;
  return null;
}

/** @param {import("./document.mjs").Document} document @param {any} settings @returns {Generator<Problem>} */
function* ownOutput(document, settings) {
  const here = dirname(resolve(document.name));
  const absolute = (/** @type {string} */ path) => normalize(path.startsWith("/") ? path : join(here, path)).replace(/(.)\/+$/, "$1");
  for (const [index, source] of settings.sources.entries()) {
    if (source.kind !== "files" || !source.folder) continue;
    for (const [what, own] of ownPlaces(settings))
      if (takesIn(absolute(source.folder), absolute(own), source.dataset, what))
        yield [`sources[${index}].folder`, `the folder \`${source.folder}\` of source \`${source.id}\` and the ${what} \`${own}\` overlap: kfm would take in its own output; keep them apart`];
  }
}

/** @param {any} settings @returns {Generator<Problem>} */
function* targets(settings) {
  const used = new Set();
  for (const [index, target] of settings.publish.entries()) {
    const path = `publish[${index}]`;
    yield* targetProblems(target, path);
    const name = target.name || target.kind;
    if (!ID.test(name)) yield [`${path}.name`, `the target name \`${head(name, 40)}\` ${BAD_CHARACTERS}`];
    else if (used.has(name)) yield [path, `two targets are called \`${name}\`; give one of them a \`name\``];
    used.add(name);
    yield* takenProblems(settings, target, path);
  }
}

/** Ids and levels that contradict the datasets that are there. @param {any} settings @param {any} target @param {string} path @returns {Generator<Problem>} */
function* takenProblems(settings, target, path) {
  const known = new Map(settings.datasets.map((/** @type {any} */ one) => [one.id, one]));
  for (const field of ["datasets", "care"]) if (target[field]?.length === 0) yield [`${path}.${field}`, `\`${field}\` must not be empty: the target would show nothing; leave it out`];
  for (const [position, pattern] of target.datasets.entries()) {
    const here = `${path}.datasets[${position}]`;
    if (/[*?[]/.test(pattern)) continue;
    if (!known.has(pattern)) {
      yield [here, `the target names \`${pattern}\`, which is not one of the datasets${nearest(pattern, [...known.keys()])}`];
      continue;
    }
    const level = known.get(pattern).rights?.care.level;
    if (level === "blocked") yield [here, `the target names \`${pattern}\`, whose CARE level is blocked: it is shown nowhere`];
    else if (level && target.care !== null && !target.care.includes(level))
      yield [here, `the target names \`${pattern}\`, whose CARE level is ${level}, and its \`care\` does not take that level; add it, or name no levels`];
  }
}

/** @param {any} target @param {string} path @returns {Generator<Problem>} */
function* targetProblems(target, path) {
  if (!(target.kind in TARGET_NEEDS)) {
    yield [`${path}.kind`, `there is no kind of target \`${head(target.kind, 40)}\`${nearest(target.kind, sortedByPoints(Object.keys(TARGET_NEEDS)))}`];
    return;
  }
  const needed = TARGET_NEEDS[target.kind];
  if (needed && !target[needed]) yield [path, `a target of kind \`${target.kind}\` needs \`${needed}\``];
  if (target.kind === "s3" && target.url && !target.url.startsWith("s3://")) yield [`${path}.url`, "`url` must begin with `s3://` and name a place"];
  if (CATALOGUES.includes(target.kind)) {
    if (target.url && !isWebAddress(target.url)) yield [`${path}.url`, "`url` must begin with `http://` or `https://` and name a place"];
    if (!target.options.assets) yield [`${path}.options`, `a target of kind \`${target.kind}\` needs \`assets\`: where its files are read`];
  }
  if (target.provider !== null) {
    yield* providerName(target.provider, path);
    if (!["s3", ...CATALOGUES].includes(target.kind)) yield [`${path}.provider`, `\`provider\` does not apply to a target of kind \`${target.kind}\`: nothing outside is called`];
  }
}

/** @param {any} settings @returns {Generator<Problem>} */
function* freezes(settings) {
  const known = { datasets: settings.datasets.map((/** @type {any} */ one) => one.id), domains: settings.datasets.map((/** @type {any} */ one) => one.domain) };
  for (const [index, freeze] of settings.freezes.entries()) {
    const path = `freezes[${index}]`;
    try {
      freezeSpanMs(freeze);
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error;
      yield [`${path}.start`, clause(error.detail)];
    }
    for (const [field, right] of Object.entries(known))
      for (const [position, pattern] of freeze[field].entries())
        if (!/[*?[]/.test(pattern) && !right.includes(pattern))
          yield [`${path}.${field}[${position}]`, `the freeze names \`${pattern}\`, which is not one of the ${field}${nearest(pattern, right)}`];
  }
}

const LIMITS = ["objects_per_run_max", "object_bytes_max", "run_bytes_max", "call_timeout_ms", "versions_kept", "run_seconds"];

/** @param {any} settings @returns {Generator<Problem>} */
function* numbers(settings) {
  for (const field of LIMITS) if (settings.limits[field] < 1) yield [`limits.${field}`, `\`${field}\` must be at least 1`];
  const lease = settings.lease;
  if (!(lease.seconds >= 1 && lease.seconds <= 86_400)) yield ["lease.seconds", "`seconds` must be from 1 to 86400"];
  if (lease.heartbeat_seconds !== null && !(lease.heartbeat_seconds > 0 && lease.heartbeat_seconds < lease.seconds))
    yield ["lease.heartbeat_seconds", "`heartbeat_seconds` must be more than 0 and less than `seconds`"];
  for (const [index, source] of settings.sources.entries()) {
    if (source.run_seconds !== null && source.run_seconds < 1) yield [`sources[${index}].run_seconds`, "`run_seconds` must be at least 1"];
    if (source.pagination)
      for (const field of ["page_size", "pages_max"])
        if (source.pagination[field] < 1) yield [`sources[${index}].pagination.${field}`, `\`${field}\` must be at least 1`];
  }
  if (settings.store !== null && !STORES.some((start) => settings.store.startsWith(start)))
    yield ["store", "`store` must be `sqlite:PATH`, a `postgresql://` address, `env:NAME` or `file:PATH`"];
}

/** @param {any} settings @returns {Generator<Problem>} */
function* evidence(settings) {
  for (const [field, most] of Object.entries(FIGURES_MAX)) {
    const figure = settings.energy[field];
    const none = field === "carbon_g_per_kwh" && figure === 0;
    if (!(none || (figure >= FIGURE_MIN && figure <= most))) yield [`energy.${field}`, `\`${field}\` must be more than 0 and at most ${most}`];
  }
  if (!/^[\p{L}\p{N}_ .,()/-]{1,60}$/u.test(settings.energy.region)) yield ["energy.region", "`region` must be a name of at most 60 letters, digits, spaces, `.,()/-`"];
  for (const [path, value] of [["lineage.url", settings.lineage.url], ["telemetry.otlp", settings.telemetry.otlp]]) if (value !== null) yield* address(value, "url", path);
  for (const [path, value] of [["lineage.path", settings.lineage.path], ["audit.anchors", settings.audit.anchors]])
    if (value !== null && !value.trim()) yield [path, `\`${rpartition(path, ".")[2]}\` must not be empty`];
}

/** @param {any} settings @returns {Generator<Problem>} */
function* webhooks(settings) {
  for (const [index, source] of settings.sources.entries()) {
    if (!source.webhook) continue;
    const path = `sources[${index}].webhook`;
    const { secrets, tolerance_seconds } = source.webhook;
    if (!secrets.length) yield [`${path}.secrets`, `\`secrets\` of \`${source.id}\` is empty: name at least one; ${WAY_OUT}`];
    if (secrets.length > 8) yield [`${path}.secrets`, "`secrets` has at most 8 of them"];
    for (const [position, text] of secrets.entries()) {
      const here = `${path}.secrets[${position}]`;
      if (!isReference(text)) yield [here, `\`secrets\` holds a secret; ${WAY_OUT}`];
      else if (secrets.slice(0, position).includes(text)) yield [here, "`secrets` names this one twice"];
    }
    if (!(tolerance_seconds >= 1 && tolerance_seconds <= 86_400)) yield [`${path}.tolerance_seconds`, "`tolerance_seconds` must be from 1 to 86400"];
  }
}

/** Give each source the defaults that fit its kind, with their lines: what is wrong is wrong there. @param {import("./document.mjs").Document} document */
export function applySourceDefaults(document) {
  const { source_defaults: defaults, sources } = document.values;
  if (!isGroup(defaults) || !Array.isArray(sources)) return; // the shape is checked later
  const fields = Object.keys(contract("schemas/settings.schema.json").$defs.SourceDefaults.properties);
  for (const [index, source] of sources.entries()) {
    if (!isGroup(source)) continue;
    const kind = Object.hasOwn(source, "kind") ? source.kind : defaults.kind;
    for (const field of fields) {
      if (!Object.hasOwn(defaults, field) || Object.hasOwn(source, field) || !hasField(kind, field)) continue;
      source[field] = defaults[field];
      copyLines(document, `source_defaults.${field}`, `sources[${index}].${field}`);
    }
  }
}

/** Does a source of this kind have the field? Of an unknown kind it is not known. @param {any} kind @param {string} field */
function hasField(kind, field) {
  if (field === "provider") return !WITHOUT_PROVIDER.includes(kind);
  const owners = Object.keys(OWN).filter((name) => OWN[name]?.includes(field));
  return !owners.length || owners.includes(kind) || !Object.hasOwn(OWN, String(kind));
}

/** @param {import("./document.mjs").Document} document @param {string} here @param {string} there */
function copyLines(document, here, there) {
  for (const [path, line] of [...document.lines])
    if (path === here || path.startsWith(`${here}.`) || path.startsWith(`${here}[`)) document.lines.set(there + path.slice(here.length), line);
}
