/** `run`: bring sources up to date, and print the result of each. */

import { appendFileSync } from "node:fs";
import { github, load } from "../config/loader.mjs";
import { outOfScope, requireInScope } from "../config/scope.mjs";
import { nearest } from "../config/shape.mjs";
import { BackendUnavailable, Cancelled, KfmError, RationaleRequired, UsageError, WindowError, isSystemError, strerror } from "../model/errors.mjs";
import { stepLine } from "../model/next_steps.mjs";
import { rfc3339 } from "../model/times.mjs";
import { parseInstant, resolveWindow } from "../model/windows.mjs";
import { counted, moment, readableSize, oneLine, visibleJson } from "../model/wording.mjs";
import { Lineup, colouredPlan, exitCode, remarks, reportDocument, shownWord, worst } from "./results.mjs";

/** @typedef {import("../config/loader.mjs").Loaded} Loaded */

/** One line when a phase is over: logs stay readable, however many objects there are. @param {(line: string) => void} log */
export function phases(log) {
  let [name, amount, noted, last] = ["", 0, 0, ""];
  const done = () => {
    if (amount) log(`${oneLine(name)}: ${noted ? `${counted(noted, "object")}, ${readableSize(amount)}` : counted(amount, "object")}`);
    [name, amount, noted, last] = ["", 0, 0, ""];
  };
  return {
    phase: (/** @type {string} */ next) => {
      done();
      name = next;
    },
    advance: (/** @type {number} */ more, /** @type {string} */ note) => {
      amount += more;
      if (note && note !== last) [noted, last] = [noted + 1, note];
    },
    done,
  };
}

/** @param {Record<string, any>} options @param {{out: (text: string) => void, note: (line: string, level?: import("./results.mjs").Level) => void, environ: Record<string, string | undefined>, version: string, isTerminal: boolean, keepDataApart: () => void, hasPerson: boolean, system?: any, onCancel?: (cancel: () => void) => void}} around @returns {Promise<number>} */
export async function run(options, around) {
  const output = options.as_json ? "json" : options.output;
  const { note } = around;
  if (options.missing && options.at) throw new UsageError("--missing chooses windows by their state, not by --at.");
  if (options.missing) throw outOfScope("`--missing` asks for windows by what became of them");
  if (options.start || options.end || options.states.length || options.digest || options.together || options.leave_out_failed)
    throw new UsageError("--from, --to, --state, --digest, --together and --leave-out-failed go with --missing.", { remedy: "Name sources with --source, and a window with --window." });
  if (options.force) requireReasons(options);
  if (options.correction && !options.dry_run && !(options.rationale ?? "").trim()) throw new RationaleRequired("A correction needs --rationale.");
  const byPerson = asksInPerson(options, around.hasPerson);
  const loaded = await load(options.config, overrides(options.overrides), around.environ);
  const clean = (/** @type {string} */ text) => loaded.hide(text);
  const log = (/** @type {string} */ line, /** @type {import("./results.mjs").Level} */ level = "info") => note(clean(line), level);
  const { App } = await import("../app.mjs");
  const named = options.sources.filter((/** @type {string} */ id) => loaded.source(id));
  const chosen = options.sources.length ? named : loaded.settings.sources.map((/** @type {any} */ one) => one.id);
  requireInScope(loaded, chosen);
  if (chosen.some((/** @type {string} */ id) => loaded.source(id).pipeline)) around.keepDataApart();
  const progress = !options.quiet && (output === "text" || options.verbose) ? phases(log) : undefined;
  const app = new App(loaded, { readOnly: options.dry_run, version: around.version, progress, log: options.verbose ? log : () => {}, warn: (/** @type {string} */ line) => log(line, "warning"), system: around.system });
  around.onCancel?.(() => {
    app.isCancelled = true;
  });
  try {
    const requests = requestsOf(app, loaded, { ...options, byPerson });
    const lineup = new Lineup(loaded, requests.map((request) => request.sourceId));
    const colour = output === "text" && wantsColour(options.color, around.isTerminal, around.environ);
    /** @type {any[]} */
    const reports = [];
    const codes = [];
    for (const request of requests) {
      const report = await attempt(app, loaded, request, options.verbose, log);
      reports.push(report);
      codes.push(exitCode(report));
      progress?.done();
      if (output === "jsonl") around.out(`${visibleJson(clean(JSON.stringify(reportDocument(report))))}\n`);
      else if (output === "text") {
        const text = [lineup.line(report), ...colouredPlan(report)].map((line) => `${line}\n`).join("");
        around.out(clean(colour ? text : text.replace(/\x1b\[[0-9;]*m/g, "")));
      }
      for (const [level, line] of remarks(report, options)) log(line, level);
      if (report.error) annotate(report.error, `${report.sourceId}: ${shownWord(report.word)}`, around, report.nextStep ? stepLine(report.nextStep) : undefined);
      if (report.error instanceof Cancelled) break;
    }
    const left = requests.slice(reports.length).map((request) => request.sourceId);
    if (left.length && codes.includes(130)) log(`cancelled; not run: ${left.join(", ")}`, "warning");
    const code = worst(codes);
    if (output === "json") around.out(`${visibleJson(clean(JSON.stringify({ results: reports.map(reportDocument), exit_code: code }, null, 2)))}\n`);
    summarise(reports, around);
    return code;
  } finally {
    app.close();
  }
}

/** @param {string[]} given @returns {[string, string][]} */
function overrides(given) {
  return given.map((text) => {
    const at = text.indexOf("=");
    if (at <= 0) throw new UsageError(`--set takes FIELD=VALUE, not \`${at < 0 ? text : ""}\`.`);
    return [text.slice(0, at), text.slice(at + 1)];
  });
}

/** @param {Record<string, any>} options */
function requireReasons(options) {
  const missing = ["rationale", "ticket"].filter((name) => !(options[name] ?? "").trim()).map((name) => `--${name}`);
  if (missing.length) throw new RationaleRequired(`A force needs ${missing.join(" and ")}.`);
}

/** Does a person ask? At a terminal, or by saying so with a reason. @param {Record<string, any>} options @param {boolean} hasPerson is an interactive terminal there? */
function asksInPerson(options, hasPerson) {
  if (options.now && !(options.rationale ?? "").trim()) throw new UsageError("--now needs --rationale: a person answers for it.");
  return options.now || (hasPerson && !options.no_input);
}

// --- which work ------------------------------------------------------------------------

/** One request for each chosen source. What can't be asked of one of them is asked of none. @param {any} app @param {Loaded} loaded @param {Record<string, any>} options */
function requestsOf(app, loaded, options) {
  let { sources, window } = options;
  const at = options.plan ? null : options.at;
  if (options.plan) [sources, window] = planned(app, options.plan, sources, window ?? options.at);
  const chosen = choose(loaded, sources);
  const specs = window !== null || at !== null ? requireWindow(window, chosen.map((id) => loaded.source(id)), app.clock.nowMs(), at) : chosen.map(() => null);
  const folder = options.artifacts;
  return chosen.map((sourceId, index) => ({
    sourceId,
    windowSpec: specs[index],
    dryRun: options.dry_run,
    byPerson: options.byPerson,
    force: options.force,
    correction: options.correction,
    // Several sources must not write over each other's artifacts.
    artifactsDir: folder && chosen.length > 1 ? `${folder}/${sourceId}` : folder,
    claimedActor: options.actor,
    rationale: options.rationale,
    ticket: options.ticket,
    planPath: options.plan,
  }));
}

/** The sources to run. Members of a sync run through it only. @param {Loaded} loaded @param {string[]} wanted @returns {string[]} */
function choose(loaded, wanted) {
  const known = loaded.settings.sources.map((/** @type {any} */ one) => one.id);
  if (!known.length) throw new UsageError("The configuration has no sources.", { remedy: "Add one under `sources:`." });
  for (const id of wanted)
    if (!known.includes(id))
      throw new UsageError(`There is no source \`${id}\`${nearest(id, known)}`, { remedy: `The configuration has: ${known.slice(0, 10).join(", ")}${known.length > 10 ? ", …" : ""}.` });
  for (const id of wanted) {
    const sync = loaded.settings.sources.find((/** @type {any} */ one) => one.members.includes(id))?.id;
    if (sync !== undefined)
      throw new UsageError(`Source \`${id}\` is a member of the sync \`${sync}\`, which publishes its data: run alone, it would publish the same once more.`, { remedy: `Run the sync: \`kfm run --source ${sync}\`.` });
  }
  if (wanted.length) return [...new Set(wanted)];
  const members = new Set(loaded.settings.sources.flatMap((/** @type {any} */ one) => one.members));
  return known.filter((/** @type {string} */ id) => !members.has(id));
}

/** What a plan file is about. @param {any} app @param {string} path @param {string[]} sources @param {string | null} window @returns {[string[], string]} */
function planned(app, path, sources, window) {
  const { header } = app.openPlan(path);
  if (window !== null || (sources.length && (sources.length !== 1 || sources[0] !== header.source_id)))
    throw new UsageError(`The plan is about source ${header.source_id}; --source, --window and --at can't change that.`, { remedy: "Leave them out, or make a new plan with `kfm diff --plan FILE`." });
  return [[header.source_id], `${rfc3339(header.window.start_ms)}/${rfc3339(header.window.end_ms)}`];
}

/** The window of each source as a run is asked for it. Refuse one that no source could be run for. @param {string | null} spec @param {any[]} sources @param {number} nowMs @param {string | null} at @returns {(string | null)[]} */
function requireWindow(spec, sources, nowMs, at) {
  return sources.map((source) => {
    const atMs = at === null ? nowMs : instantIn(source.time_zone, at);
    let window;
    try {
      window = resolveWindow(spec ?? source.window, source.time_zone, atMs);
    } catch (error) {
      if (!(error instanceof WindowError)) throw error;
      const remedy = spec === null ? null : meant(spec, nowMs);
      throw new WindowError(error.detail, remedy === null ? {} : { remedy });
    }
    if (window.start_ms > nowMs)
      throw new WindowError(`${spec ?? at} begins in the future, at ${moment(window.start_ms)}: nothing is there yet.`, { remedy: "Choose a window that has begun; P1D is the last complete day." });
    return at === null ? spec : `${rfc3339(window.start_ms)}/${rfc3339(window.end_ms)}`;
  });
}

/** @param {string} zone @param {string} at */
function instantIn(zone, at) {
  try {
    return parseInstant(at, zone);
  } catch (error) {
    if (!(error instanceof WindowError)) throw error;
    throw new UsageError(`--at takes a date or a time: ${error.detail}`, { remedy: "Write it as --at 2026-01-31 or --at 2026-01-31T06:00Z." });
  }
}

const LENGTHS = "Choose a length that is more than zero and, below a day, divides it: P1D, PT6H, PT15M.";

/** The right form of a window that was written in another; null if there is no telling. @param {string} spec @param {number} nowMs */
function meant(spec, nowMs) {
  if (/^\d{4}-\d\d-\d\d$/.test(spec)) return `For that day write --window ${spec}/P1D.`;
  if (/^\d{4}-\d\d$/.test(spec)) return `For that month write --window ${spec}-01/P1M.`;
  if (["yesterday", "today", "day"].includes(spec.toLowerCase())) return "P1D is the last complete day, so yesterday; a named day is written as 2026-01-31/P1D.";
  const pair = /^(\d{4}-[^\s./,]+)\s*(?:\.\.+|,|-|to|\s)\s*(\d{4}-[^\s./,]+)$/.exec(spec);
  if (pair) return `A start and an end are written with a slash: --window ${pair[1]}/${pair[2]}.`;
  const size = /^p?t?(\d{1,4})\s*([dhmw])(?:[a-z]*)$/i.exec(spec);
  if (!size) return null;
  const written = `P${/[hm]/i.test(/** @type {string} */ (size[2])) ? "T" : ""}${size[1]}${/** @type {string} */ (size[2]).toUpperCase()}`;
  return isLength(written, nowMs) ? `A length is written as --window ${written}.` : LENGTHS;
}

/** @param {string} spec @param {number} nowMs */
function isLength(spec, nowMs) {
  try {
    resolveWindow(spec, "UTC", nowMs);
    return true;
  } catch (error) {
    if (error instanceof WindowError) return false;
    throw error;
  }
}

// --- one source --------------------------------------------------------------------------

/** One source's report, whatever happens. @param {any} app @param {Loaded} loaded @param {any} request @param {boolean} verbose @param {(line: string, level?: import("./results.mjs").Level) => void} log */
async function attempt(app, loaded, request, verbose, log) {
  try {
    return await (request.dryRun ? app.preview(request) : app.run(request));
  } catch (problem) {
    const error = asError(problem);
    if (verbose && !(problem instanceof KfmError)) log(String(/** @type {Error} */ (problem).stack ?? problem), "error");
    const [outcome, word] = error.exitCode === 3 ? ["refused", "blocked"] : error.exitCode === 5 ? ["busy", "busy"] : ["failed", "failed"];
    const { dataset } = loaded.source(request.sourceId);
    return { outcome, word, sourceId: request.sourceId, datasetId: dataset, windowStartMs: 0, windowEndMs: 0, invocationId: null, reason: error.message, error, durationMs: 0 };
  }
}

/** Any problem as an error with a message for people. @param {unknown} problem @returns {KfmError} */
export function asError(problem) {
  if (problem instanceof KfmError) return problem;
  if (isSystemError(problem)) return new BackendUnavailable(`${strerror(problem)}${problem.path ? ` (${problem.path})` : ""}.`);
  const found = /** @type {Error} */ (problem);
  return new KfmError(`${found?.constructor?.name ?? typeof problem}: ${found?.message ?? problem}`, {
    remedy: "This is a defect. Run it again with --verbose for the traceback, and report it.",
  });
}

/** @param {string} choice @param {boolean} isTerminal @param {Record<string, string | undefined>} environ */
function wantsColour(choice, isTerminal, environ) {
  if (["always", "never"].includes(choice)) return choice === "always";
  if (environ.NO_COLOR) return false;
  if (!["", "0", "false", undefined].includes(environ.FORCE_COLOR)) return true;
  return isTerminal && environ.TERM !== "dumb";
}

// --- a GitHub Actions job ----------------------------------------------------------------

/** An annotation in the job's log. It is read from stderr too, so stdout stays data. @param {KfmError} error @param {string} title @param {any} around @param {string} [way] */
export function annotate(error, title, around, way = error.wayOut) {
  if (!github(around.environ)) return;
  const properties = Object.entries({ title, ...error.place }).map(([name, value]) => `${name}=${escaped(String(value), ":,")}`).join(",");
  around.note(`::error ${properties}::${escaped(`${error.message} ${way}`)}`);
}

/** @param {string} text @param {string} [more] */
function escaped(text, more = "") {
  return Array.from(text, (char) => (`%\r\n${more}`.includes(char) ? `%${char.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}` : char)).join("");
}

/** The job's summary and outputs. @param {any[]} reports @param {any} around */
function summarise(reports, around) {
  const job = github(around.environ);
  if (!job) return;
  const append = (/** @type {string} */ path, /** @type {string} */ text) => {
    try {
      appendFileSync(path, text);
    } catch (error) {
      around.note(`warning: ${asError(error).message}`, "warning");
    }
  };
  if (job.summary) {
    const rows = reports.map((report) => `| ${shownWord(report.word)} | ${report.datasetId} | ${report.sourceId} | ${report.sequence || "-"} |`);
    append(job.summary, ["| result | dataset | source | version |", "|---|---|---|---|", ...rows, "", ""].join("\n"));
  }
  if (job.output) {
    const ids = reports.filter((report) => report.run).map((report) => report.run.run_id).join(",");
    append(job.output, `changed=${reports.some((report) => report.word === "published")}\nrun_ids=${ids}\n`);
  }
}
