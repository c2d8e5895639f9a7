/** Reading over HTTP with Node's own client: GET and HEAD, bounded redirects, no surprises from the environment. */

import * as http from "node:http";
import * as https from "node:https";
import { UpstreamUnavailable } from "../core/errors.mjs";
import { redact } from "../core/redact.mjs";
import { joinUrl, splitUrl } from "../core/urls.mjs";
import { rpartition } from "../core/wording.mjs";

/** @typedef {{status: number, headers: Record<string, string>, chunks: AsyncIterable<Buffer>, close: () => void}} Response */
/** @typedef {{address: string, secrets: string[]}} Wording */

const REDIRECTS_MAX = 5;
const REDIRECTS = [301, 302, 303, 307, 308];
// What a stranger may see when an answer sends us elsewhere.
const HARMLESS = ["accept", "accept-encoding", "range", "if-range", "if-none-match", "user-agent"];
const PORTS = /** @type {Record<string, number>} */ ({ http: 80, https: 443 });
const TRUST = ["CERT", "SELF_SIGNED", "UNABLE_TO"];

/** @param {"GET" | "HEAD"} method @param {string} url @param {Record<string, string>} given @param {number} timeoutMs @param {Wording} wording @param {string} version @returns {Promise<Response>} */
export async function request(method, url, given, timeoutMs, wording, version) {
  /** @type {Record<string, string>} */
  let headers = { "accept-encoding": "identity", "user-agent": `kfm/${version}`, ...Object.fromEntries(Object.entries(given).map(([name, value]) => [name.toLowerCase(), value])) };
  let address = url;
  for (let round = 0; round <= REDIRECTS_MAX; round += 1) {
    const response = await send(method, address, headers, timeoutMs, wording);
    const { location } = response.headers;
    if (!REDIRECTS.includes(response.status) || !location) return response;
    response.close();
    const target = targetOf(address, location, wording);
    if (!keepsTrust(address, target)) headers = Object.fromEntries(Object.entries(headers).filter(([name]) => HARMLESS.includes(name)));
    address = target;
  }
  throw new UpstreamUnavailable(`${wording.address} redirects more than ${REDIRECTS_MAX} times.`, { transient: false });
}

/** @param {string} method @param {string} url @param {Record<string, string>} headers @param {number} timeoutMs @param {Wording} wording @returns {Promise<Response>} */
function send(method, url, headers, timeoutMs, wording) {
  if (!URL.canParse(url)) throw new UpstreamUnavailable(`${wording.address} is no address.`, { transient: false });
  const client = url.startsWith("https:") ? https : http;
  return new Promise((done, fail) => {
    const asked = client.request(new URL(url), { method, headers, agent: false, timeout: timeoutMs }, (answer) => {
      done({
        status: answer.statusCode ?? 0,
        headers: Object.fromEntries(Object.entries(answer.headers).map(([name, value]) => [name, Array.isArray(value) ? value.join(", ") : (value ?? "")])),
        chunks: explained(answer, wording),
        close: () => answer.destroy(),
      });
    });
    asked.on("timeout", () => asked.destroy(Object.assign(new Error("timeout"), { code: "KFM_TIMEOUT" })));
    asked.on("error", (error) => fail(inOurWords(error, wording)));
    asked.end();
  });
}

/** @param {AsyncIterable<Buffer>} answer @param {Wording} wording @returns {AsyncGenerator<Buffer>} */
async function* explained(answer, wording) {
  try {
    yield* answer;
  } catch (error) {
    throw inOurWords(/** @type {Error} */ (error), wording);
  }
}

/** Errors of the client, in our words, without secrets. @param {Error} error @param {Wording} wording */
function inOurWords(error, wording) {
  const code = String(/** @type {any} */ (error).code ?? "");
  if (code === "KFM_TIMEOUT") return new UpstreamUnavailable(`${wording.address} did not answer in time (ReadTimeout).`, { transient: true, cause: "timeout" });
  const reason = redact(error.message || code || error.constructor.name, wording.secrets);
  const trusted = !TRUST.some((start) => code.startsWith(start) || code.includes("_CERT"));
  return new UpstreamUnavailable(`${wording.address}: ${reason}.`, { transient: trusted, cause: "network" });
}

/** @param {string} address @param {string} location @param {Wording} wording */
function targetOf(address, location, wording) {
  const target = URL.canParse(location, address) ? splitUrl(new URL(location, address).href) : null;
  if (!target?.hostname || target.port === false || !PORTS[target.scheme]) throw new UpstreamUnavailable(`${wording.address} redirects to no web address.`, { transient: false });
  if (address.startsWith("https:") && target.scheme === "http") throw new UpstreamUnavailable(`${wording.address} redirects from https to http.`, { transient: false });
  return joinUrl({ scheme: target.scheme, netloc: rpartition(target.netloc, "@")[2], path: target.path || "/", query: target.query });
}

/** Same host and port, or the step from http to https on the same host. @param {string} address @param {string} target */
function keepsTrust(address, target) {
  const [here, there] = [splitUrl(address), splitUrl(target)];
  if (!here || !there || here.hostname !== there.hostname) return false;
  const [from, to] = [here, there].map((parts) => parts.port || PORTS[parts.scheme]);
  return (here.scheme === there.scheme && from === to) || (from === 80 && to === 443);
}
