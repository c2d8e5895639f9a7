/** RFC 7946: what a GeoJSON object has to look like; GeoJSON as a stream of features; its bounding box as decimal text. */

import { Float } from "../../model/json.mjs";
import { decimalText } from "../manifest.mjs";
import { FileProblem, JsonStream, formatOf } from "./streams.mjs";

const NESTING_MAX = 16;
const MEMBERS_MAX = 1000;
const CRS84 = ["urn:ogc:def:crs:OGC:1.3:CRS84", "urn:ogc:def:crs:OGC::CRS84", "OGC:CRS84"];
const DEPTH = /** @type {Record<string, number>} */ ({ Point: 0, MultiPoint: 1, LineString: 1, MultiLineString: 2, Polygon: 2, MultiPolygon: 3 });

/** What is wrong, and with which of the checks. */
export class GeometryProblem extends Error {
  /** @param {string} check @param {string} problem */
  constructor(check, problem) {
    super(problem);
    this.check = check;
  }
}

/** @param {string} check @param {string} problem @returns {never} */
function wrong(check, problem) {
  throw new GeometryProblem(check, problem);
}

/** @param {any} value */
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof Float);
/** @param {any} kind */
const isGeometry = (kind) => typeof kind === "string" && (Object.hasOwn(DEPTH, kind) || kind === "GeometryCollection");
/** A number as JavaScript's; NaN for what is none. @param {any} value @returns {number} */
const numberOf = (value) => (value instanceof Float ? value.value : typeof value === "number" || typeof value === "bigint" ? Number(value) : NaN);

/** Raises the first problem of a geometry object. @param {any} geometry @param {number} [nesting] */
export function checkGeometry(geometry, nesting = 0) {
  if (!isObject(geometry)) wrong("structure", "the geometry is not an object");
  const kind = geometry.type;
  if (!isGeometry(kind)) wrong("structure", "the geometry has an unknown type");
  if (geometry.bbox !== null && geometry.bbox !== undefined) checkBbox(geometry.bbox);
  if (kind === "GeometryCollection") {
    if (!Array.isArray(geometry.geometries)) wrong("structure", "a GeometryCollection has no geometries");
    if (nesting >= NESTING_MAX) wrong("structure", "geometry collections are nested too deeply");
    for (const member of geometry.geometries) checkGeometry(member, nesting + 1);
    return;
  }
  if (!Array.isArray(geometry.coordinates)) wrong("structure", `a ${kind} has no coordinates`);
  checkCoordinates(kind, geometry.coordinates);
}

/** @param {string} kind @param {any[]} coordinates */
function checkCoordinates(kind, coordinates) {
  if (!coordinates.length) return; // RFC 7946 reads an empty array as a null geometry
  for (const line of linesOf(kind, coordinates)) for (const position of line) checkPosition(position);
  if (kind === "LineString" || kind === "MultiLineString")
    for (const line of kind === "LineString" ? [coordinates] : coordinates) if (line.length < 2) wrong("structure", "a line has fewer than two positions");
  for (const ring of ringsOf(kind, coordinates)) {
    if (ring.length < 4) wrong("rings", "a ring has fewer than four positions");
    const [first, last] = [ring[0], ring.at(-1)];
    if (first.length !== last.length || first.some((/** @type {any} */ edge, /** @type {number} */ at) => numberOf(edge) !== numberOf(last[at]))) wrong("rings", "a ring is not closed");
  }
}

/** @param {string} kind @param {any[]} coordinates @returns {Generator<any[]>} */
function* linesOf(kind, coordinates) {
  const depth = /** @type {number} */ (DEPTH[kind]);
  if (depth) yield* atDepth(coordinates, depth - 1);
  else yield [coordinates];
}

/** @param {any} coordinates @param {number} depth @returns {Generator<any[]>} */
function* atDepth(coordinates, depth) {
  if (!Array.isArray(coordinates)) wrong("structure", "the coordinates are not nested as the type asks");
  if (depth === 0) yield coordinates;
  else for (const inner of coordinates) yield* atDepth(inner, depth - 1);
}

/** @param {any} position */
function checkPosition(position) {
  if (!Array.isArray(position) || position.length < 2 || position.length > 3) wrong("positions", "a position is not two or three numbers");
  const numbers = position.map(numberOf);
  if (!numbers.every(Number.isFinite)) wrong("positions", "a coordinate is not a finite number");
  if (Math.abs(/** @type {number} */ (numbers[0])) > 180) wrong("positions", "a longitude is beyond ±180");
  if (Math.abs(/** @type {number} */ (numbers[1])) > 90) wrong("positions", "a latitude is beyond ±90");
}

/** @param {string} kind @param {any[]} coordinates @returns {any[]} */
function ringsOf(kind, coordinates) {
  return kind === "Polygon" ? coordinates : kind === "MultiPolygon" ? coordinates.flat() : [];
}

/** Outer rings counterclockwise, holes clockwise; call it on a checked geometry. @param {any} geometry @returns {boolean} */
export function windsRight(geometry) {
  if (geometry.type === "GeometryCollection") return geometry.geometries.every(windsRight);
  const coordinates = geometry.coordinates ?? [];
  const polygons = geometry.type === "Polygon" ? [coordinates] : geometry.type === "MultiPolygon" ? coordinates : [];
  return polygons.every((/** @type {any[]} */ polygon) => polygon.every((ring, index) => doubledArea(ring) >= 0 === (index === 0)));
}

/** @param {any[]} ring */
function doubledArea(ring) {
  let sum = 0;
  for (let at = 0; at + 1 < ring.length; at += 1) sum += numberOf(ring[at][0]) * numberOf(ring[at + 1][1]) - numberOf(ring[at + 1][0]) * numberOf(ring[at][1]);
  return sum;
}

/** Four or six numbers; south is not north of north. @param {any} bbox */
export function checkBbox(bbox) {
  if (!Array.isArray(bbox) || ![4, 6].includes(bbox.length)) wrong("bbox", "a bbox is not four or six numbers");
  const numbers = bbox.map(numberOf);
  if (!numbers.every(Number.isFinite)) wrong("bbox", "a bbox holds something that is not a finite number");
  const at = (/** @type {number} */ index) => /** @type {number} */ (numbers[index]);
  const half = numbers.length / 2;
  if (Math.abs(at(0)) > 180 || Math.abs(at(half)) > 180) wrong("bbox", "a bbox has a longitude beyond ±180");
  if (!(-90 <= at(1) && at(1) <= at(half + 1) && at(half + 1) <= 90)) wrong("bbox", "a bbox has its latitudes in the wrong order or beyond ±90");
}

/** The old `crs` member may only say what RFC 7946 says anyway. @param {any} crs */
export function checkCrs(crs) {
  const word = isObject(crs) && isObject(crs.properties) ? crs.properties.name : null;
  if (typeof word !== "string" || !CRS84.includes(word)) wrong("crs", "there is a crs other than CRS84");
}

/** Longitude and latitude of every position of a checked geometry. @param {any} geometry @returns {Generator<[number, number]>} */
export function* positionsOf(geometry) {
  if (geometry.type === "GeometryCollection") {
    for (const member of geometry.geometries) yield* positionsOf(member);
    return;
  }
  if (!geometry.coordinates.length) return;
  for (const line of linesOf(geometry.type, geometry.coordinates)) for (const position of line) yield [numberOf(position[0]), numberOf(position[1])];
}

/** Every feature; the other members of the document are left in `head`. @param {import("./streams.mjs").JsonStream} stream @param {Record<string, any>} head @returns {Generator<any>} */
export function* featuresOf(stream, head) {
  let found = false;
  for (const name of stream.named()) {
    if (name === "features" && stream.peek() === "[") {
      found = true;
      yield* stream.elements();
    } else head[name] = stream.value();
    if (Object.keys(head).length > MEMBERS_MAX) throw new FileProblem(`has more than ${MEMBERS_MAX} members at the top`);
  }
  stream.end();
  const kind = head.type;
  if (kind === "FeatureCollection" && found) return;
  if (found || kind === "FeatureCollection") throw new FileProblem("is not a FeatureCollection with an array of features");
  if (kind === "Feature") yield head;
  else if (isGeometry(kind)) yield { type: "Feature", properties: null, geometry: head };
  else throw new FileProblem("is not GeoJSON: it has no known type");
}

// --- bounding box ------------------------------------------------------------------------

/** West, south, east, north of all GeoJSON assets; null if there is none, or if one can't be trusted. @param {import("../../types.js").Asset[]} assets @param {(sha256: string) => any} open @returns {[string, string, string, string] | null} */
export function bboxOf(assets, open) {
  /** @type {[number, number, number, number] | null} */
  let box = null;
  for (const asset of assets) {
    if (formatOf(asset) !== "geojson") continue;
    const reader = open(asset.sha256);
    try {
      for (const feature of featuresOf(new JsonStream(reader), {})) {
        const geometry = feature && typeof feature === "object" && !Array.isArray(feature) ? (feature.geometry ?? null) : null;
        if (geometry === null) continue;
        checkGeometry(geometry);
        for (const [longitude, latitude] of positionsOf(geometry))
          box = box === null ? [longitude, latitude, longitude, latitude] : [Math.min(box[0], longitude), Math.min(box[1], latitude), Math.max(box[2], longitude), Math.max(box[3], latitude)];
      }
    } catch (error) {
      if (error instanceof FileProblem || error instanceof GeometryProblem) return null;
      throw error;
    } finally {
      reader.close();
    }
  }
  return box === null ? null : /** @type {[string, string, string, string]} */ (box.map(decimalText));
}
