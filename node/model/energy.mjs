/** What processor time costs in energy and carbon: whole-number arithmetic, rounded once, half up. */

import { pythonFloat } from "./canonical.mjs";

/** @typedef {{watts_per_core: number, overhead: number, carbon_g_per_kwh: number, region: string}} Model */

const UJ_PER_UWH = 3600n;

/** @param {number} cpuUs @param {Model} model @param {number | null} [packageUj] */
export function energyOf(cpuUs, model, packageUj = null) {
  const [watts, wattsScale] = fraction(model.watts_per_core);
  const [overhead, overheadScale] = fraction(model.overhead);
  const [carbon, carbonScale] = fraction(model.carbon_g_per_kwh);
  const [power, powerScale] = [watts * overhead, wattsScale * overheadScale * UJ_PER_UWH];
  const cpu = BigInt(cpuUs);
  return {
    cpu_us: cpuUs,
    energy_uwh: Number(halfUp(cpu * power, powerScale)),
    co2_ug: Number(halfUp(cpu * power * carbon, powerScale * carbonScale * 1000n)),
    assumption: assumptionOf(model),
    method: "modelled",
    package_uwh: packageUj === null ? null : Number(halfUp(BigInt(packageUj), UJ_PER_UWH)),
  };
}

/** @param {bigint} top @param {bigint} bottom */
function halfUp(top, bottom) {
  return (2n * top + bottom) / (2n * bottom);
}

/** @param {number} before @param {number} after @param {number} highest */
export function counterGrowth(before, after, highest) {
  return after >= before ? after - before : highest - before + after + 1;
}

/** @param {Model} model */
export function assumptionOf(model) {
  return (
    `Modelled from processor time: ${figureText(model.watts_per_core)} W per busy core, overhead ${figureText(model.overhead)}, ` +
    `${figureText(model.carbon_g_per_kwh)} g CO2e per kWh (${model.region}).`
  );
}

/** @param {number} value */
export function figureText(value) {
  const [digits, scale] = fraction(value);
  const places = String(scale).length - 1;
  return places ? fixedPoint(digits, places).replace(/0+$/, "").replace(/\.$/, "") : String(digits);
}

/** @param {bigint | number} given @param {number} places */
export function fixedPoint(given, places) {
  const number = BigInt(given);
  const [sign, value] = number < 0n ? ["-", -number] : ["", number];
  if (!places) return `${sign}${value}`;
  const scale = 10n ** BigInt(places);
  return `${sign}${value / scale}.${String(value % scale).padStart(places, "0")}`;
}

/** Digits and power of ten of the shortest decimal: 332.6 is (3326, 10). @param {number} value @returns {[bigint, bigint]} */
function fraction(value) {
  const [mantissa, exponent] = pythonFloat(value).split("e");
  const [integer, decimals = ""] = /** @type {string} */ (mantissa).split(".");
  const part = decimals.replace(/0+$/, "");
  const power = Number(exponent ?? 0) - part.length;
  const digits = BigInt(integer + part);
  return power >= 0 ? [digits * 10n ** BigInt(power), 1n] : [digits, 10n ** BigInt(-power)];
}
