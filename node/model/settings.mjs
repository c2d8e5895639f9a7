/** Settings: the folders that kfm itself writes, which no source may read. */

const STATE = "state folder";

/** What each is, and its path as it was configured. @param {any} settings @returns {[string, string][]} */
export function ownPlaces(settings) {
  const targets = settings.publish.filter((/** @type {any} */ one) => one.kind === "local" && one.path);
  return [[STATE, settings.state], ...targets.map((/** @type {any} */ one) => ["local target", one.path])];
}

/** Would reading the folder bring in what is written to `own`? @param {string} folder @param {string} own @param {string} datasetId @param {string} what */
export function takesIn(folder, own, datasetId, what) {
  if (holds(folder, own)) {
    const below = own.slice(folder.replace(/\/+$/, "").length).split("/");
    return !below.some((name) => name.startsWith("."));
  }
  return holds(what === STATE ? own : `${own.replace(/\/+$/, "")}/${datasetId}`, folder);
}

/** @param {string} outer @param {string} inner */
function holds(outer, inner) {
  return inner === outer || inner.startsWith(`${outer.replace(/\/+$/, "")}/`);
}

/** Which windows are expected of each source; members of a sync are expected of the sync. @param {any} settings @returns {[string, string][]} */
export function expectationRules(settings) {
  const members = new Set(settings.sources.flatMap((/** @type {any} */ source) => source.members));
  return settings.sources.filter((/** @type {any} */ source) => !members.has(source.id)).map((/** @type {any} */ source) => [source.id, `${source.expect?.every ?? source.window} ${source.time_zone}`]);
}
