/** The twin's scope: what it does not support is refused at the start, with the Python command. */

import { UsageError } from "../model/errors.mjs";
import { rpartition } from "../model/wording.mjs";

/** @type {string[]} */
let asked = [];

/** The arguments of this process, for the remedy. @param {string[]} argv */
export function remember(argv) {
  asked = argv;
}

/** A word as a shell reads it. @param {string} word */
export function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** @param {string} what */
export function outOfScope(what) {
  const command = ["kfm", ...asked].map(quoted).join(" ");
  return new UsageError(`${what}, which the Node.js runner does not do.`, { remedy: `Run it with Python: \`${command}\`.` });
}

/** @param {import("./loader.mjs").Loaded} loaded @param {Iterable<string>} sourceIds */
export function requireInScope(loaded, sourceIds) {
  const { settings, environ } = loaded;
  const store = loaded.store;
  if (store !== null && !store.startsWith("sqlite:")) throw outOfScope("The ledger is in PostgreSQL");
  if (settings.objects !== null) throw outOfScope("The objects are in a bucket");
  if (settings.people.length) throw outOfScope("The configuration gives people roles");
  if (Object.keys(settings.licences).length) throw outOfScope("The configuration declares licences");
  if (Object.keys(settings.providers).length) throw outOfScope("The configuration sets limits of providers");
  if (Object.values(settings.retry).some((value) => value !== null)) throw outOfScope("The configuration sets retry budgets");
  const collector = environ.OTEL_EXPORTER_OTLP_ENDPOINT || settings.telemetry.otlp;
  if (collector && environ.OTEL_SDK_DISABLED?.toLowerCase() !== "true") throw outOfScope("Spans and metrics go to an OpenTelemetry collector");
  const foreign = /** @type {Record<string, string>} */ ({ branch: "a branch", dcat: "a catalogue", s3: "a bucket", stac: "a catalogue" });
  for (const target of settings.publish) if (target.kind in foreign) throw outOfScope(`The target ${target.name || target.kind} is ${foreign[target.kind]}`);
  for (const dataset of settings.datasets) if (dataset.formerly.length) throw outOfScope(`The dataset ${dataset.id} was renamed (\`formerly\`)`);
  for (const id of sourceIds) {
    const source = loaded.source(id);
    for (const each of [source, ...source.members.map((/** @type {string} */ member) => loaded.source(member))]) {
      if (each.formerly.length) throw outOfScope(`The source ${each.id} was renamed (\`formerly\`)`);
      if (each.approval === "required") throw outOfScope(`The source ${each.id} needs an approval of each preview`);
      if (each.approvals) throw outOfScope(`The source ${each.id} has rules for standing approvals`);
      if (each.retry) throw outOfScope(`The source ${each.id} has a retry budget of its own`);
      if (each.not_yet.length) throw outOfScope(`The source ${each.id} waits for data (\`not_yet\`)`);
      if (each.expect !== null && each.expect.rows_min !== null) throw outOfScope(`The source ${each.id} expects rows (\`expect.rows_min\`)`);
      if (each.kind === "bucket") throw outOfScope(`The source ${each.id} is a bucket`);
      if (each.pipeline && !rpartition(each.pipeline, ":")[0].endsWith(".mjs")) throw outOfScope(`The pipeline ${each.pipeline} is written in Python`);
    }
  }
}
