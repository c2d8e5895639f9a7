/** The composition root: settings → ledger, objects, sources, targets, a clock. */

import * as fs from "node:fs";
import { dirname, join, normalize } from "node:path";
import { guarded, retryText } from "./calls/guard.mjs";
import { SharedBreakers } from "./calls/shared_breakers.mjs";
import { account, github } from "./config/loader.mjs";
import { Ledger } from "./db/ledger.mjs";
import { LedgerReader } from "./db/ledger_reader.mjs";
import { migrate } from "./db/migrations.mjs";
import { SqliteDatabase } from "./db/sqlite.mjs";
import { MemoryDatabase, SqliteReader } from "./db/sqlite_readonly.mjs";
import { LineageEmitter } from "./lineage/emitter.mjs";
import { below, datasetName } from "./lineage/naming.mjs";
import { providerOf, providersOf } from "./model/breaker.mjs";
import { BackendUnavailable, ConfigError, PlanError, isCode, why } from "./model/errors.mjs";
import { IncidentRenderer } from "./model/incidents.mjs";
import { MASK_KEY, isMasked, mask, namesByDataset } from "./model/redaction.mjs";
import { expectationRules, ownPlaces, takesIn } from "./model/settings.mjs";
import { takes } from "./model/targets.mjs";
import { resolveWindow } from "./model/windows.mjs";
import { repr, sortedByPoints } from "./model/wording.mjs";
import { LocalObjects } from "./objects/local.mjs";
import { ScratchObjects } from "./objects/scratch.mjs";
import { watched } from "./objects/secret_scan.mjs";
import { CedarPolicies } from "./policy/cedar.mjs";
import { FolderTarget } from "./publish/targets/folder.mjs";
import { GithubActions } from "./publish/targets/github_actions.mjs";
import { Noop } from "./publish/targets/noop.mjs";
import { RunExecutor } from "./runs/executor.mjs";
import { PLAN_BYTES_MAX, readPlan } from "./runs/plan.mjs";
import { preview } from "./runs/preview.mjs";
import { describe, outputVersion } from "./runs/subject.mjs";
import { FilesSource } from "./sources/files.mjs";
import { lazyHttp, syncOf } from "./sources/joint.mjs";
import { redactedSource } from "./sources/redacted.mjs";
import { FlockLiveness, SystemIds, processMeter, systemClock, unitRandom } from "./system.mjs";

/** @typedef {import("./config/loader.mjs").Loaded} Loaded */

const LINKINGS = ["versions", "objects", "never"];

const QUIET = { phase() {}, advance() {}, done() {} };

/** The application that a command opens. */
export class App {
  /** @param {Loaded} loaded @param {{readOnly: boolean, version: string, progress?: any, log?: (line: string) => void, warn?: (line: string) => void, system?: any}} about */
  constructor(loaded, { readOnly, version, progress = QUIET, log = () => {}, warn = () => {}, system = {} }) {
    this.loaded = loaded;
    this.settings = loaded.settings;
    this.readOnly = readOnly;
    this.version = version;
    this.clock = system.clock ?? systemClock;
    this.ids = system.ids ?? new SystemIds();
    this.meter = system.meter ?? processMeter;
    this.unitRandom = system.unitRandom ?? unitRandom;
    this.actor = system.actor ?? account();
    this.state = loaded.resolve(this.settings.state).replace(/\/+$/, "");
    this.progress = progress;
    this.logTo = log;
    this.warnTo = warn;
    this.liveness = new FlockLiveness(`${this.state}/workers`);
    /** @type {((retrying: any) => void) | null} */
    this.retryObserver = null;
    /** @type {any} */
    this.kernelMade = null;
    this.isCancelled = false;
    /** @type {Ledger | null} */
    this.store = readOnly ? null : this.#openStore();
    /** @type {LedgerReader} */
    this.ledger = this.store ?? this.#openLedger();
  }

  // --- the ledger ----------------------------------------------------------------------

  #openStore() {
    makeFolder(this.state);
    const path = this.databasePath;
    makeFolder(dirname(path));
    /** @type {{value: string | null}} */
    const key = { value: null };
    const masking = (/** @type {string} */ name) => mask(name, key.value);
    const database = new SqliteDatabase(path, this.clock);
    migrate(database, this.clock.nowMs());
    const store = new Ledger(database, this.#lineageEmitter(masking), this.#incidentRenderer(masking));
    if (this.settings.incidents.length || this.settings.datasets.some(isMasked)) key.value = store.mark(MASK_KEY) ?? store.ensureMark(MASK_KEY, this.ids.new() + this.ids.new());
    store.rememberNames(namesByDataset(this.settings, (source) => providersOf(source, (id) => this.loaded.source(id))));
    store.rememberExpectations(expectationRules(this.settings));
    return store;
  }

  get databasePath() {
    const { store } = this.loaded;
    if (store === null) return join(this.state, "kfm.db");
    const named = store.slice("sqlite:".length);
    return named.startsWith("/") ? named : join(dirname(this.state), named);
  }

  /** For reading only; leaves no trace, also where there is none yet. */
  #openLedger() {
    const path = this.databasePath;
    if (isFilled(path)) {
      const reader = new SqliteReader(path, this.clock);
      return new LedgerReader(reader);
    }
    const nothing = new MemoryDatabase(this.clock);
    migrate(nothing, this.clock.nowMs());
    return new LedgerReader(nothing);
  }

  /** The lineage emitter: an event for each change of the ledger; null where lineage is off. @param {(name: string) => string} masking */
  #lineageEmitter(masking) {
    const { settings, loaded } = this;
    if (exportOf(settings, loaded.environ) === "none") return null;
    const datasets = new Map(settings.datasets.map((/** @type {any} */ one) => [one.id, isMasked(one)]));
    return new LineageEmitter({
      namespace: settings.lineage.namespace || `kfm.${settings.environment}`,
      version: this.version,
      outputs: (id) => this.#homes(id),
      masked: (id) => datasets.get(id) ?? true, // the rights of an unconfigured dataset are unknown
      mask: masking,
      folder: loaded.folder,
      hide: (text) => loaded.hide(text),
    });
  }

  /** Where the configured targets show a dataset, by the names of lineage. @param {string} datasetId @returns {[string, string][]} */
  #homes(datasetId) {
    const homes = [];
    const dataset = this.loaded.dataset(datasetId);
    for (const target of this.settings.publish) {
      if (dataset && !takes(target, dataset)) continue;
      // What a job uploads is not found under its path, and a catalogue has no data.
      if (["noop", "github-actions", "dcat", "stac"].includes(target.kind)) continue;
      if (target.url !== null) {
        const [namespace, name] = datasetName(target.url);
        homes.push(below([namespace, name === "/" ? "" : name], datasetId));
      } else if (target.path !== null) homes.push(below(["file", normalize(this.loaded.resolve(target.path)).replace(/(.)\/+$/, "$1")], datasetId));
    }
    return homes;
  }

  /** @param {(name: string) => string} masking */
  #incidentRenderer(masking) {
    const { settings, loaded } = this;
    const hidden = new Set(settings.datasets.filter(isMasked).map((/** @type {any} */ one) => one.id));
    const masked = (/** @type {string} */ about, /** @type {string} */ name) => {
      if (about === "dataset") return hidden.has(name) || !loaded.dataset(name);
      if (!hidden.size) return false;
      const users = settings.sources.filter((/** @type {any} */ source) => providersOf(source, (id) => loaded.source(id)).includes(name));
      return !users.length || users.some((/** @type {any} */ source) => hidden.has(source.dataset));
    };
    const responsible = (/** @type {string} */ name) => {
      const { owner = null, escalate = null } = loaded.dataset(name) ?? {};
      return { owner: owner && { name: owner.name, contact: owner.contact }, escalation: escalate && { after: escalate.after, to: escalate.to, at: null } };
    };
    return new IncidentRenderer({ environment: settings.environment, masked, mask: masking, hide: (text) => loaded.hide(text), responsible });
  }

  // --- the kernel ----------------------------------------------------------------------

  /** Everything that a run needs. */
  get kernel() {
    this.kernelMade ??= this.#makeKernel();
    return this.kernelMade;
  }

  #makeKernel() {
    const { loaded, settings, clock, ids } = this;
    const secrets = loaded.referencedSecrets();
    const objects = new LocalObjects(`${this.state}/objects`, ids);
    const providers = new SharedBreakers(this.ledger, this.store, clock);
    const { lease } = settings;
    const leaseMs = Math.round(lease.seconds * 1000);
    /** @type {any} */
    const kernel = {
      loaded,
      settings,
      ledger: this.ledger,
      store: this.store,
      clock,
      ids,
      version: this.version,
      objects: watched(objects, secrets),
      scratch: () => watched(new ScratchObjects(), secrets),
      providers,
      policies: new CedarPolicies(settings.policies, loaded.folder),
      liveness: this.liveness,
      progress: this.progress,
      runsFolder: `${this.state}/runs`,
      leaseMs,
      heartbeatMs: lease.heartbeat_seconds === null ? Math.max(1, Math.floor(leaseMs / 3)) : Math.round(lease.heartbeat_seconds * 1000),
      // As it is declared now, with its rights; null: it is declared no more.
      datasetNow: async (/** @type {string} */ id) => (await loaded.current()).datasets.find((/** @type {any} */ one) => one.id === id) ?? null,
      // How long one attempt of this source may take.
      runMs: (/** @type {any} */ source) => (source.run_seconds ?? settings.limits.run_seconds) * 1000,
      redact: (/** @type {string} */ text) => loaded.redaction.redact(text),
      leaks: (/** @type {any} */ value) => loaded.redaction.leaks(value),
      log: (/** @type {string} */ line) => this.logTo(loaded.redaction.redact(line)),
      warn: (/** @type {string} */ line) => this.warnTo(loaded.redaction.redact(line)),
      meter: this.meter,
      unitRandom: this.unitRandom,
      readProject: (/** @type {string} */ path) => fs.readFileSync(loaded.resolve(path)),
      observeRetries: (/** @type {any} */ observer) => {
        this.retryObserver = observer;
      },
      guard: (/** @type {any} */ call, /** @type {any} */ more = {}) => this.#guard(call, more),
      cancelled: () => this.isCancelled,
      tick: () => {},
      targets: this.#targets(objects),
    };
    kernel.upstream = (/** @type {any} */ source) => this.#upstream(source, kernel);
    kernel.workerId = ids.new();
    return kernel;
  }

  /** @param {any} call @param {any} more */
  #guard(call, more) {
    const onRetry =
      more.onRetry ??
      ((/** @type {any} */ retrying) => {
        this.kernel.log(retryText(retrying));
        this.retryObserver?.(retrying);
      });
    return guarded(call, { clock: this.clock, unitRandom: this.unitRandom, timeoutMs: this.settings.limits.call_timeout_ms, ...more, onRetry });
  }

  /** @param {any} source @param {any} kernel @returns {any} */
  #upstream(source, kernel) {
    const made = this.#made(source, kernel);
    const { redactor } = this.loaded.redaction;
    return redactor.secrets.length ? redactedSource(made, (text) => redactor.hide(text)) : made;
  }

  /** @param {any} source @param {any} kernel @returns {any} */
  #made(source, kernel) {
    const { loaded, settings } = this;
    if (source.kind === "files") {
      const folder = loaded.resolve(source.folder ?? ".");
      this.#requireApart(source, folder);
      return new FilesSource(source, folder, settings.limits, () => kernel.tick());
    }
    if (source.kind === "http") {
      const provider = providerOf(source);
      const circuit = provider === null ? null : kernel.providers.circuit(provider);
      return lazyHttp(source, kernel, circuit);
    }
    // One promotion, one calendar: the members' dates are those of the sync.
    const members = new Map(source.members.map((/** @type {string} */ id) => [id, this.#made({ ...loaded.source(id), time_zone: source.time_zone }, kernel)]));
    return syncOf(source.id, members, settings.limits);
  }

  /** Links and a state folder named by the environment are known only now. @param {any} source @param {string} folder */
  #requireApart(source, folder) {
    const real = (/** @type {string} */ path) => (fs.existsSync(path) ? fs.realpathSync(path) : normalize(path));
    for (const [what, own] of ownPlaces(this.settings))
      if (takesIn(real(folder), real(this.loaded.resolve(own)), source.dataset, what))
        throw new ConfigError(`The folder \`${source.folder}\` of source \`${source.id}\` and the ${what} \`${own}\` overlap: kfm would take in its own output.`);
  }

  /** @param {LocalObjects} objects */
  #targets(objects) {
    return this.settings.publish.map((/** @type {any} */ target) => {
      const name = target.name || target.kind;
      if (target.kind === "noop") return new Noop(name);
      const known = target.kind === "local" ? ["link"] : [];
      const linking = target.options.link ?? "versions";
      if (target.kind === "local" && !LINKINGS.includes(linking)) throw new ConfigError(`Target ${name}: link is one of ${LINKINGS.join(", ")}, not ${repr(linking)}.`);
      const unknown = sortedByPoints(Object.keys(target.options)).find((option) => !known.includes(option));
      if (unknown) throw new ConfigError(`Target ${name}: there is no option ${repr(unknown)} for the kind ${target.kind}.`);
      if (target.kind === "local") return new FolderTarget(name, objects, this.ids, this.loaded.resolve(target.path), linking);
      return new GithubActions(name, objects, this.ids, this.loaded.resolve(target.path || "artifacts/published"), github(this.loaded.environ) ?? { output: null, summary: null });
    });
  }

  // --- requests ------------------------------------------------------------------------

  /** The subject of a request, by the present configuration. @param {any} request */
  subject(request) {
    const { loaded } = this;
    const source = loaded.source(request.sourceId);
    const window = resolveWindow(request.windowSpec ?? source.window, source.time_zone, this.clock.nowMs());
    const members = source.members.map((/** @type {string} */ id) => loaded.source(id));
    const redacted = (/** @type {string | null} */ text) => (text ? loaded.redaction.redactReason(text) : text);
    /** @type {import("./types.js").Trigger} */
    const trigger = {
      type: "manual",
      source_id: source.id,
      dataset_id: source.dataset,
      correction: redacted(request.correction),
      actor: this.actor,
      claimed_actor: redacted(request.claimedActor),
      rationale: redacted(request.rationale),
      ticket: redacted(request.ticket),
    };
    const version = outputVersion(source, members, (path) => fs.readFileSync(loaded.resolve(path)));
    return describe(source, loaded.dataset(source.dataset), window, version, trigger, this.settings.environment);
  }

  /** @param {string} path */
  openPlan(path) {
    return openPlan(path);
  }

  /** @param {any} request */
  run(request) {
    return new RunExecutor(this.kernel, this.subject(request), this.#start(request)).run();
  }

  /** @param {any} request */
  preview(request) {
    return preview(this.kernel, this.subject(request), this.#start(request));
  }

  /** How a request is asked for. @param {any} request @returns {import("./runs/admission.mjs").Start} */
  #start({ byPerson, force, artifactsDir, planPath }) {
    return { byPerson, force, artifactsDir, plan: planPath === null ? null : openPlan(planPath) };
  }

  close() {
    const mine = this.kernelMade?.workerId;
    const holds = this.store?.locks().some((lock) => lock.holder?.worker_id === mine) ?? false;
    // Otherwise the liveness file stays until the process ends: then every process sees that it is dead.
    if (!holds) this.liveness.close();
    this.ledger.close();
  }
}

/** @param {string} path */
function openPlan(path) {
  try {
    const data = fs.readFileSync(path);
    return readPlan(data.length > PLAN_BYTES_MAX ? data.subarray(0, PLAN_BYTES_MAX + 1) : data);
  } catch (error) {
    if (error instanceof PlanError) throw error;
    throw new PlanError(`${path} can't be read: ${why(error)}.`);
  }
}

/** @param {string} path */
function makeFolder(path) {
  try {
    fs.mkdirSync(path, { recursive: true, mode: 0o700 });
  } catch (error) {
    throw new BackendUnavailable(`The folder ${path} for the state can't be made: ${why(error)}.`, { remedy: "Name a folder that can be made and written, with `state:` or `store:`." });
  }
}

/** Is there a ledger? One that can't be looked at is not an empty one. @param {string} path */
function isFilled(path) {
  try {
    return fs.statSync(path).size > 0;
  } catch (error) {
    if (isCode(error, "ENOENT", "ENOTDIR")) return false;
    throw new BackendUnavailable(`${path} can't be looked at: ${why(error)}.`, { remedy: "Let this user read the state folder and what is in it." });
  }
}

/** Where lineage events go: OpenLineage's own variables beat the file. @param {any} settings @param {Record<string, string | undefined>} environ */
function exportOf(settings, environ) {
  if (settings.lineage.export === "none") return "none";
  const kind = environ.OPENLINEAGE__TRANSPORT__TYPE ?? "http";
  const off = kind === "noop" || (environ.OPENLINEAGE_DISABLED ?? "").trim().toLowerCase() === "true";
  return off ? "none" : settings.lineage.export;
}
