"""Canonical bytes, tagged floats, hashes of inputs."""

from __future__ import annotations

import struct
from typing import Any

from kfm.model.canonical import canonical_bytes, canonical_hashed, strict_loads, tag_floats
from kfm.model.input_hash import inputs_bytes, sha256_text
from tools.vector_cases.shape import Case, Family, error

RFC = "RFC 8785"
HAND = "by hand, from RFC 8785's rules"


def _canonical(given: dict[str, Any]) -> Any:
    encoded = canonical_bytes(strict_loads(given["json"].encode("utf-8", "surrogatepass")))
    return {"utf8": encoded.decode(), "sha256": sha256_text(encoded)}


def _tagged(given: dict[str, Any]) -> Any:
    if "bits" in given:
        return tag_floats(struct.unpack(">d", bytes.fromhex(given["bits"]))[0])
    return canonical_hashed(strict_loads(given["json"].encode())).decode()


def _inputs(given: dict[str, Any]) -> Any:
    encoded = inputs_bytes(given["inputs"], given.get("params"))
    return {"canonical": encoded.decode(), "hash": sha256_text(encoded)}


def _json(name: str, text: str, utf8: str | None = None, source: str = HAND) -> Case:
    """A document and the canonical text that it must become."""
    if utf8 is None:
        return Case(name, {"json": text})
    return Case(name, {"json": text}, {"utf8": utf8, "sha256": sha256_text(utf8.encode())}, source)


def _bad(name: str, text: str, code: str) -> Case:
    return Case(name, {"json": text}, error(code), "by the rules of the format")


CANONICAL = Family(
    "canonical",
    "JSON text, read strictly, and its RFC 8785 bytes. Floats are refused here.",
    _canonical,
    [
        _json("empty object", "{}", "{}"),
        _json("empty list", "[]", "[]"),
        _json("null", " null ", "null"),
        _json("true", "true", "true"),
        _json("zero", "0", "0"),
        _json("negative zero, whole", "-0", "0"),
        _json("largest whole number", "9007199254740991", "9007199254740991"),
        _json("smallest whole number", "-9007199254740991", "-9007199254740991"),
        _bad("2^53", "9007199254740992", "KFM212"),
        _bad("-2^53", "-9007199254740992", "KFM212"),
        _bad("hundred digits", "1" * 100, "KFM212"),
        _bad("float", '{"a":0.1}', "KFM206"),
        _bad("float that is whole", '{"a":1.0}', "KFM206"),
        _bad("exponent", "1e3", "KFM206"),
        _bad("number that overflows", "1e400", "KFM212"),
        _bad("NaN", '{"a":NaN}', "KFM212"),
        _bad("Infinity", "[-Infinity]", "KFM212"),
        _bad("key twice", '{"a":1,"a":1}', "KFM212"),
        _bad("key twice, once escaped", '{"a":1,"\\u0061":2}', "KFM212"),
        _bad("half of a surrogate pair", '"\\ud800"', "KFM212"),
        _bad("half of a surrogate pair in a key", '{"\\udc00":1}', "KFM212"),
        _bad("surrogates in the wrong order", '"\\ude00\\ud83d"', "KFM212"),
        _bad("byte order mark", "\ufeff{}", "KFM212"),
        _bad("trailing comma", "[1,]", "KFM212"),
        _bad("comment", "[1] // no", "KFM212"),
        _bad("nothing", "", "KFM212"),
        _bad("nested 101 deep", "[" * 101 + "1" + "]" * 101, "KFM212"),
        _bad("nested 2,000 deep", "[" * 2_000 + "]" * 2_000, "KFM212"),
        _json("nested 100 deep", "[" * 100 + "1" + "]" * 100, "[" * 100 + "1" + "]" * 100),
        _json("white space goes", '{ "b" : [ 1 , 2 ] }', '{"b":[1,2]}'),
        _json("keys are sorted", '{"b":1,"a":2,"B":3,"":4}', '{"":4,"B":3,"a":2,"b":1}'),
        _json("prefix first", '{"aa":1,"a":2,"a ":3}', '{"a":2,"a ":3,"aa":1}'),
        _json("digits sort as text", '{"10":1,"9":2,"1":3}', '{"1":3,"10":1,"9":2}'),
        _json("inner objects too", '[{"d":{"z":1,"y":2}}]', '[{"d":{"y":2,"z":1}}]'),
        _json(
            "published sorting example",
            '{"\\u20ac":"Euro Sign","\\r":"Carriage Return","\\ufb33":"Hebrew Letter Dalet With Dagesh",'
            '"1":"One","\\ud83d\\ude00":"Emoji: Grinning Face","\\u0080":"Control",'
            '"\\u00f6":"Latin Small Letter O With Diaeresis"}',
            '{"\\r":"Carriage Return","1":"One","\u0080":"Control","ö":"Latin Small Letter O With Diaeresis",'
            '"€":"Euro Sign","😀":"Emoji: Grinning Face","\ufb33":"Hebrew Letter Dalet With Dagesh"}',
            f"{RFC}, section 3.2.3",
        ),
        _json(
            "published string example",
            '"\\u20ac$\\u000F\\u000aA\'\\u0042\\u0022\\u005c\\\\\\"\\/"',
            '"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"',
            f"{RFC}, section 3.2.2",
        ),
        _json("beyond the BMP before U+FFFF", '{"\uffff":1,"\U00010000":2}', '{"\U00010000":2,"\uffff":1}'),
        _json("beyond the BMP after U+D7FF", '{"\U0001f600":1,"\ud7ff":2}', '{"\ud7ff":2,"\U0001f600":1}'),
        _json("private use after emoji", '{"\ue000":1,"😀":2,"a":3}', '{"a":3,"😀":2,"\ue000":1}'),
        _json("emoji only in a value", '{"b":"😀","a":"\ue000"}', '{"a":"\ue000","b":"😀"}'),
        _json("no normalisation", '["\\u00e9","e\\u0301"]', '["é","e\u0301"]'),
        _json("delete and C1 stay", '"\\u007f\\u009f"', '"\u007f\u009f"'),
        _json("line separators stay", '"\\u2028\\u2029"', '"\u2028\u2029"'),
        _json("short escapes", '"\\u0008\\u0009\\u000a\\u000c\\u000d"', '"\\b\\t\\n\\f\\r"'),
        _json("long escapes", '"\\u0000\\u001F\\u000b"', '"\\u0000\\u001f\\u000b"'),
        _json("slash is not escaped", '"\\/"', '"/"'),
        _json("noncharacters stay", '"\\uffff\\ufdd0"', '"\uffff\ufdd0"'),
    ],
)


def _bits(name: str, bits: str, pin: Any, source: str = f"{RFC}, appendix B") -> Case:
    return Case(name, {"bits": bits}, pin, source)


def _tag(text: str) -> dict[str, str]:
    return {"$float": text}


def _text(name: str, text: str, pin: Any, source: str = "by hand") -> Case:
    return Case(name, {"json": text}, pin, source)


TAGGED_FLOATS = Family(
    "tagged_floats",
    "A float (as IEEE 754 bits) or a JSON text, and what enters a hash: whole floats become whole numbers, "
    "others an object with the shortest decimal as ECMAScript prints it.",
    _tagged,
    [
        _bits("zero", "0000000000000000", 0),
        _bits("minus zero", "8000000000000000", 0),
        _bits("smallest", "0000000000000001", _tag("5e-324")),
        _bits("smallest, negative", "8000000000000001", _tag("-5e-324")),
        _bits("largest", "7fefffffffffffff", _tag("1.7976931348623157e+308")),
        _bits("largest, negative", "ffefffffffffffff", _tag("-1.7976931348623157e+308")),
        _bits("2^53", "4340000000000000", _tag("9007199254740992")),
        _bits("-2^53", "c340000000000000", _tag("-9007199254740992")),
        _bits("2^68", "4430000000000000", _tag("295147905179352830000")),
        _bits("below 1e23", "44b52d02c7e14af5", _tag("9.999999999999997e+22")),
        _bits("1e23", "44b52d02c7e14af6", _tag("1e+23")),
        _bits("above 1e23", "44b52d02c7e14af7", _tag("1.0000000000000001e+23")),
        _bits("999999999999999700000", "444b1ae4d6e2ef4e", _tag("999999999999999700000")),
        _bits("999999999999999900000", "444b1ae4d6e2ef4f", _tag("999999999999999900000")),
        _bits("1e21", "444b1ae4d6e2ef50", _tag("1e+21")),
        _bits("9.999999999999997e-7", "3eb0c6f7a0b5ed8c", _tag("9.999999999999997e-7")),
        _bits("1e-6", "3eb0c6f7a0b5ed8d", _tag("0.000001")),
        _bits("333333333.3333332", "41b3de4355555553", _tag("333333333.3333332")),
        _bits("333333333.33333325", "41b3de4355555554", _tag("333333333.33333325")),
        _bits("333333333.3333333", "41b3de4355555555", _tag("333333333.3333333")),
        _bits("333333333.3333334", "41b3de4355555556", _tag("333333333.3333334")),
        _bits("333333333.33333343", "41b3de4355555557", _tag("333333333.33333343")),
        _bits("-0.0000033333333333333333", "becbf647612f3696", _tag("-0.0000033333333333333333")),
        _bits("half way rounds to even", "43143ff3c1cb0959", _tag("1424953923781206.2")),
        _bits("NaN", "7fffffffffffffff", error("KFM206")),
        _bits("infinity", "7ff0000000000000", error("KFM206")),
        _bits("minus infinity", "fff0000000000000", error("KFM206"), "as infinity"),
        _bits("one", "3ff0000000000000", 1, "a whole number is a whole number"),
        _bits("2^53 - 1", "433fffffffffffff", 9007199254740991, "the largest that is exact"),
        _text("a float", '{"a":0.1}', '{"a":{"$float":"0.1"}}'),
        _text("whole floats", "[1.0,-0.0,1e3,-7.0]", "[1,0,1000,-7]"),
        _text(
            "mixed",
            '{"box":[-102.05,36.99,-94.59,40.0]}',
            '{"box":[{"$float":"-102.05"},{"$float":"36.99"},{"$float":"-94.59"},40]}',
        ),
        _text("nothing to tag", '{"b":1,"a":"x"}', '{"a":"x","b":1}'),
        _text("the tag as a value is text", '{"a":"$float"}', '{"a":"$float"}'),
        _text("the tag as a key is refused", '{"a":{"$float":"0.1"}}', error("KFM206")),
        _text("the tag among other keys is refused", '{"$float":1,"b":2}', error("KFM206")),
        _text("0.1 + 0.2", "0.30000000000000004", '{"$float":"0.30000000000000004"}'),
        _text("more digits than a float has", "0.1000000000000000055511151231257827", '{"$float":"0.1"}'),
        _text("1e21 as text", "1e21", '{"$float":"1e+21"}'),
    ],
)

_A = {"uri": "s3://bucket/a.nc", "etag": "aa11"}
_B = {"uri": "s3://bucket/b.nc", "checksum": "sha256:" + "0" * 64}
_EMPTY = '{"inputs":[],"kfm":"inputs/1","params":{}}'
_ONE = '{"inputs":[{"etag":"aa11","uri":"s3://bucket/a.nc"}],"kfm":"inputs/1","params":{}}'
_TWO = _ONE.replace('nc"}]', 'nc"},{"checksum":"sha256:' + "0" * 64 + '","uri":"s3://bucket/b.nc"}]')


def _in(name: str, inputs: list[Any], params: Any = None, canonical: str | None = None) -> Case:
    given = {"inputs": inputs} if params is None else {"inputs": inputs, "params": params}
    if canonical is None:
        return Case(name, given)
    return Case(
        name, given, {"canonical": canonical, "hash": sha256_text(canonical.encode())}, "document by hand"
    )


def _refused(name: str, inputs: list[Any], params: Any = None) -> Case:
    given = {"inputs": inputs} if params is None else {"inputs": inputs, "params": params}
    return Case(name, given, error("KFM206"), "fails closed")


INPUTS_HASH = Family(
    "inputs_hash",
    "Inputs in any order, and parameters; the canonical document and its hash. Names sort by UTF-16 code units.",
    _inputs,
    [
        _in("nothing", [], None, _EMPTY),
        _in("nothing, empty parameters", [], {}, _EMPTY),
        _in("one", [_A], None, _ONE),
        _in("order of members does not matter", [{"etag": "aa11", "uri": "s3://bucket/a.nc"}], None, _ONE),
        _in("two", [_A, _B], None, _TWO),
        _in("two, other order", [_B, _A], None, _TWO),
        _in("exact duplicates count once", [_A, _B, _A], None, _TWO),
        _in("three of the same", [_A, _A, _A], None, _ONE),
        _in("null counts as absent", [{**_A, "version": None, "size": None}], None, _ONE),
        _refused("one name, two contents", [_A, {**_A, "etag": "bb22"}]),
        _refused("one name, more members", [_A, {**_A, "size": 1}]),
        _refused("a uri and an id of one name", [_A, {"id": "s3://bucket/a.nc", "etag": "aa11"}]),
        _refused("no content", [{"uri": "s3://bucket/a.nc"}]),
        _refused("empty content", [{"uri": "s3://bucket/a.nc", "etag": ""}]),
        _refused("null content", [{"uri": "s3://bucket/a.nc", "etag": None}]),
        _refused("size alone is no content", [{"uri": "s3://bucket/a.nc", "size": 4}]),
        _refused("no name", [{"etag": "aa11"}]),
        _refused("empty name", [{"uri": "", "etag": "aa11"}]),
        _refused("name is a number", [{"uri": 7, "etag": "aa11"}]),
        _refused("name is a number, among others", [_A, {"uri": 7, "etag": "aa11"}]),
        _refused("not a mapping", ["s3://bucket/a.nc"]),
        _refused("key kept for floats", [{**_A, "$float": "1"}]),
        _refused("key kept for floats, in parameters", [_A], {"x": {"$float": "1"}}),
        _in("logical id", [{"id": "ks-counties", "commit": "c0ffee"}]),
        _in("ids and uris together", [{"id": "ks-counties", "commit": "c0ffee"}, _A]),
        _in("modification time", [{"uri": "file:///a", "modified_ms": 0}]),
        _in("whole number among text", [{**_A, "size": 10}, {**_B, "size": 20}]),
        _in("floats in an input", [{**_A, "cloud": 0.25}]),
        _in(
            "whole floats are whole numbers",
            [{**_A, "size": 10.0}],
            None,
            _ONE.replace('"uri"', '"size":10,"uri"'),
        ),
        _in("nested members", [{**_A, "query": {"b": [1, 2], "a": None}}]),
        _in("booleans", [{**_A, "gzip": True}]),
        _in("parameters", [_A], {"band": 13, "area": [-102.05, 36.99, -94.59, 40.0], "name": "Kansas"}),
        _in(
            "parameters keep null",
            [_A],
            {"limit": None},
            _ONE.replace('"params":{}', '"params":{"limit":null}'),
        ),
        _in("parameter order does not matter", [_A], {"b": 1, "a": 2}, _ONE.replace("{}", '{"a":2,"b":1}')),
        _in("names beyond the BMP", [{"uri": "x:\uffff", "etag": "1"}, {"uri": "x:\U0001f600", "etag": "2"}]),
        _in("names outside ASCII", [{"uri": "x:é", "etag": "1"}, {"uri": "x:z", "etag": "2"}]),
        _in("quotes and backslashes", [{"uri": 'x:"\\', "etag": 'W/"abc"'}]),
        _in("rows that differ in shape", [_A, {**_B, "etag": "e", "size": 3}]),
    ],
)

FAMILIES = [CANONICAL, TAGGED_FLOATS, INPUTS_HASH]
