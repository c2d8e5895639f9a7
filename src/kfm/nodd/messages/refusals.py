"""Why a record is not taken in: stable codes, one sentence each."""

from __future__ import annotations

# Not retryable: the same bytes are refused again.
REFUSED = {
    "BODY_EMPTY": "The body has no bytes.",
    "BODY_TOO_LARGE": "The body has more bytes than a queue would carry.",
    "BODY_NOT_UTF8": "The body is not UTF-8.",
    "BODY_NOT_JSON": "The body, or a text within it, is not JSON.",
    "BODY_TOO_DEEP": "The body is nested too deeply.",
    "SHAPE_UNKNOWN": "No known publisher writes messages of this shape.",
    "ENVELOPE_INVALID": "The envelope lacks a required field.",
    "ENVELOPES_TOO_MANY": "The message is wrapped too often.",
    "TOPIC_NOT_ALLOWED": "The topic is not on the list of allowed topics.",
    "CERTIFICATE_HOST": "The signing certificate is not where the topic's region keeps it.",
    "CERTIFICATE_INVALID": "The signing certificate is not there, can't be used, or is not valid now.",
    "SIGNATURE_MISSING": "The message is not signed by its topic, and this queue takes no others.",
    "SIGNATURE_INVALID": "The signature does not match the message and the topic's certificate.",
    "RECORDS_MISSING": "The message has no list of records.",
    "RECORDS_TOO_MANY": "The message has too many records.",
    "RECORD_INVALID": "The record lacks a required field, or has a field twice.",
    "EVENT_VERSION": "The event's version is not one that is understood.",
    "SIZE_INVALID": "The size is not a number of bytes.",
    "KEY_ENCODING": "The key's escapes are malformed.",
    "KEY_TOO_LONG": "The key is longer than any store allows.",
    "KEY_UNSAFE": "The key contains characters or path segments that are not allowed.",
    "KEY_UNKNOWN": "The bucket is known, but no dataset in it has keys like this one.",
    "KEY_AMBIGUOUS": "Two datasets claim the key.",
    "BUCKET_UNKNOWN": "The bucket belongs to no known dataset, and no policy names it.",
    "TIME_INVALID": "The key names a time that does not exist or can't be.",
    "TIME_ORDER": "The key's end is before its start.",
    "PLATFORM_UNKNOWN": "The key names a platform that is not known.",
    "PLATFORM_MISMATCH": "The key's platform does not belong into this bucket.",
    "FIELDS_DISAGREE": "Fields of the message contradict its key.",
}
# The message was not checked: it stays in its queue and comes again.
PUT_OFF = {
    "CERTIFICATE_UNAVAILABLE": "The signing certificate is not available at present.",
}
IGNORED = {
    "TEST_EVENT": "A test of the notification itself.",
    "SUBSCRIPTION": "A subscription begins or ends; nothing is confirmed or fetched.",
    "REMOVED": "The object was removed.",
    "NOT_A_CREATION": "The event is neither a creation nor a removal.",
    "EVENT_UNKNOWN": "The event's name is not known.",
    "RECORDS_NONE": "The message has a list of records, and nothing in it.",
    "OVERWRITTEN": "An older generation made room for a newer one, which is announced by itself.",
    "REPEATED": "The same object is announced more than once in this message; the newest counts.",
}
SUSPECT = {
    "EVENT_TIME_FUTURE": "The time of the event is more than a day in the future.",
    "TIME_FUTURE": "The time in the key is more than a day in the future.",
    "EVENT_TIME_INVALID": "The event's time can't be read.",
    "FOLDER_DISAGREES": "The key's folders contradict its file name.",
}


class RecordRefusal(Exception):
    """A record that is not taken in. It becomes a line and a dead letter, never a crash.

    One that is `retryable` becomes neither: its message is not acknowledged.
    """

    def __init__(self, code: str, detail: str = "") -> None:
        self.code = code
        self.retryable = code in PUT_OFF
        sentence = PUT_OFF[code] if self.retryable else REFUSED[code]
        self.text = f"{sentence} {detail}" if detail else sentence
        super().__init__(self.text)
