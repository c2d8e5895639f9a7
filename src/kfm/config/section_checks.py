"""Checks of `ingest`, `webhook`, `retry`, `providers`, `serve` and `people`: names and numbers make sense."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING

from kfm.config.document import NAME, NAME_RULE, Problem, clause, is_web_address
from kfm.config.secrets import WAY_OUT, is_reference
from kfm.model.breaker import PROVIDER_CHARS_MAX, is_provider_name
from kfm.model.errors import ConfigError, WindowError
from kfm.model.quantities import did_you_mean
from kfm.model.roles import KnownPerson, read_hash
from kfm.model.settings import (
    CONCURRENCY_MAX,
    OWN_LICENCE,
    TRIGGERS,
    LicenceTerms,
    PersonSettings,
    ProviderSettings,
    RetrySettings,
    Settings,
    SourceSettings,
    TriggerRetrySettings,
)
from kfm.model.windows import parse_duration, parse_instant

if TYPE_CHECKING:
    from kfm.model.settings import Ingest, IngestQueue


BATCH_MAX = 10_000  # units in one transaction; others wait that long
DAY_S = 86_400
VISIBILITY_S_MAX = 12 * 3_600  # of SQS, and long enough for any object
REPLAYS_MAX = 10_000_000
QUEUE_OPTIONS = ["region", "endpoint_url"]
DATASET_RULE = "lower-case letters, digits and `-`, beginning and ending with a letter or digit, at most 64"
_DATASET = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_OWN_LICENCE = re.compile(r"LicenseRef-[A-Za-z0-9.-]{1,100}", re.ASCII)
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", re.ASCII)
_TOPIC = re.compile(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,256}")
_PLACE = re.compile(r"(?:s3(?:\+[a-z0-9-]+)?|gs|az)://\S+")
PROVIDER_RULE = "a-z, 0-9 and `-`, beginning with one of a-z, at most 30"


def ingest_problems(settings: Settings) -> Iterator[Problem]:
    ingest = settings.ingest
    yield from _queues(ingest)
    yield from _policies(ingest)
    yield from _ingest_providers(ingest)
    yield from _generic(ingest)
    yield from _feeds(ingest)
    yield from _places(ingest)
    yield from _replicas(ingest)
    yield from _figures(ingest)
    yield from _follows(settings)


def dataset_problems(settings: Settings, known: Collection[str]) -> Iterator[Problem]:
    """Names of datasets that nothing announces. `known` come with kfm or from entry points."""
    generic = {one.dataset for one in settings.ingest.generic}
    for index, one in enumerate(settings.ingest.generic):
        if one.dataset in known:
            yield (
                f"ingest.generic[{index}].dataset",
                f"`{one.dataset[:64]}` is a known dataset; give the objects that nothing describes a name of "
                "their own",
            )
    names = sorted({*known, *generic})
    said = [
        (f"ingest.policies[{index}].datasets[{position}]", name)
        for index, policy in enumerate(settings.ingest.policies)
        for position, name in enumerate(policy.datasets)
        if name != "*"
    ]
    said += [
        (f"ingest.feeds[{index}].dataset", one.dataset) for index, one in enumerate(settings.ingest.feeds)
    ]
    said += [
        (f"ingest.providers[{index}].buckets.{bucket}", name)
        for index, one in enumerate(settings.ingest.providers)
        for bucket, name in one.buckets.items()
    ]
    said += [
        (f"sources[{index}].follows[{position}]", name)
        for index, source in enumerate(settings.sources)
        for position, name in enumerate(source.follows)
    ]
    for path, name in said:
        if name not in names:
            yield path, f"there is no announced dataset `{name[:64]}`{did_you_mean(name, names)}"


def _queues(ingest: Ingest) -> Iterator[Problem]:
    names: set[str] = set()
    places: set[str] = set()
    for index, queue in enumerate(ingest.queues):
        path = f"ingest.queues[{index}]"
        if not NAME.fullmatch(queue.name):
            yield f"{path}.name", f"the queue name `{queue.name[:40]}` is not allowed: {NAME_RULE}"
        elif queue.name in names:
            yield f"{path}.name", f"two queues are called `{queue.name}`"
        names.add(queue.name)
        yield from _queue(queue, path)
        place = queue.path if queue.kind == "folder" else queue.url
        if place and place.rstrip("/") in places:
            yield (
                path,
                f"the queue `{queue.name[:40]}` reads what another one reads: one queue for each place",
            )
        places.add((place or "").rstrip("/"))


def _queue(queue: IngestQueue, path: str) -> Iterator[Problem]:
    needed, foreign = ("path", "url") if queue.kind == "folder" else ("url", "path")
    if not getattr(queue, needed):
        yield path, f"the queue `{queue.name[:40]}` is of kind `{queue.kind}` and needs `{needed}`"
    if getattr(queue, foreign) is not None:
        yield f"{path}.{foreign}", f"`{foreign}` does not apply to a queue of kind `{queue.kind}`"
    if queue.kind == "folder":
        if "\0" in (queue.path or ""):
            yield f"{path}.path", "`path` holds a character that no path can hold"
        if queue.options:
            yield f"{path}.options", "`options` does not apply to a queue of kind `folder`"
        return
    if queue.url and not is_web_address(queue.url):
        yield f"{path}.url", "`url` must begin with `http://` or `https://` and name a place"
    for name in queue.options:
        if name not in QUEUE_OPTIONS:
            hint = did_you_mean(name, QUEUE_OPTIONS)
            yield f"{path}.options.{name}", f"`{name[:40]}` is unknown here{hint}"


def _policies(ingest: Ingest) -> Iterator[Problem]:
    named: dict[str, int] = {}  # dataset → which policy holds
    for index, policy in enumerate(ingest.policies):
        path = f"ingest.policies[{index}]"
        if not policy.datasets:
            yield f"{path}.datasets", "a policy names at least one dataset, or `*` for all others"
        for position, name in enumerate(policy.datasets):
            here = f"{path}.datasets[{position}]"
            if name != "*" and not _DATASET.fullmatch(name):
                yield here, f"`{name[:64]}` can't be the name of a dataset: {DATASET_RULE}"
            elif name in named or "*" in named:
                first = named.get(name, named.get("*", 0))
                yield here, f"this never holds for `{name}`: policy {first + 1} of the list names it first"
            named.setdefault(name, index)
        for position, code in enumerate(policy.replay_quarantined):
            if code != "*" and not _CODE.fullmatch(code):
                yield f"{path}.replay_quarantined[{position}]", f"`{code[:64]}` is no error code"


def _feeds(ingest: Ingest) -> Iterator[Problem]:
    rows: set[tuple[str, str, str | None]] = set()
    plain = {one.dataset for one in ingest.generic}
    for index, feed in enumerate(ingest.feeds):
        path = f"ingest.feeds[{index}]"
        if feed.dataset in plain:
            yield f"{path}.dataset", f"objects of `{feed.dataset}` have no product and no time: it is generic"
        for name, listed in (("products", feed.products), ("platforms", feed.platforms)):
            for position, text in enumerate(listed):
                if (
                    not text
                    or len(text) > 200
                    or any(char.isspace() or not char.isprintable() for char in text)
                ):
                    yield f"{path}.{name}[{position}]", f"`{text[:64]}` can't be a name: no spaces, 1 to 200"
        alone = [
            name for name in ("platforms", "per_hour", "hours", "within", "since") if getattr(feed, name)
        ]
        if not feed.products and alone:
            said = "from" if alone[0] == "since" else alone[0]
            yield f"{path}.{said}", f"`{said}` is about products: name them in `products`"
        if feed.per_hour is not None and feed.per_hour < 1:
            yield (
                f"{path}.per_hour",
                "`per_hour` is at least 1; leave the product out where nothing is expected",
            )
        for position, hour in enumerate(feed.hours):
            if not 0 <= hour <= 23:
                yield f"{path}.hours[{position}]", f"{hour} is no hour of the day: 0 to 23"
        if feed.within is not None:
            yield from _unreadable(f"{path}.within", partial(parse_duration, feed.within))
        if feed.since is not None:
            yield from _unreadable(f"{path}.from", partial(parse_instant, feed.since, "UTC"))
        platforms: tuple[str | None, ...] = feed.platforms or (None,)
        for row in ((feed.dataset, product, platform) for product in feed.products for platform in platforms):
            if row in rows:
                what = " of ".join(part for part in row[1:] if part)
                yield f"{path}.products", f"`{what[:80]}` is expected twice: name it once"
            rows.add(row)


def _unreadable(path: str, read: Callable[[], object]) -> Iterator[Problem]:
    try:
        read()
    except WindowError as error:
        yield path, f"`{path.rpartition('.')[2]}` can't be used: {clause(error.detail)}"


def _ingest_providers(ingest: Ingest) -> Iterator[Problem]:
    named = [(f"ingest.generic[{index}]", one.provider) for index, one in enumerate(ingest.generic)]
    named += [(f"ingest.queues[{index}]", one.provider) for index, one in enumerate(ingest.queues)]
    if not ingest.providers and all(name == "aws" for _, name in named):
        return
    from kfm.model.units import PROVIDER_NAME, SCHEMES, scheme_of  # late: most configurations name none

    known = set(SCHEMES)
    for index, one in enumerate(ingest.providers):
        path = f"ingest.providers[{index}]"
        if not PROVIDER_NAME.match(one.name):
            yield f"{path}.name", f"the provider name `{one.name[:40]}` is not allowed: {PROVIDER_RULE}"
        elif one.name in known:
            yield f"{path}.name", f"there is a provider `{one.name}` already"
        known.add(one.name)
        place = f"{scheme_of(one.name)}://"
        if ingest.reads_buckets and not any(each.startswith(place) for each in ingest.object_options):
            yield (
                path,
                f"policies have objects looked at: `ingest.object_options` needs `{place}*`, an endpoint",
            )
        for bucket, dataset in one.buckets.items():
            if not bucket.strip() or "://" in bucket:
                yield f"{path}.buckets.{bucket}", "a bucket is named alone, without `://`"
            if not _DATASET.fullmatch(dataset):
                yield f"{path}.buckets.{bucket}", f"`{dataset[:64]}` can't be the name of a dataset"
    for path, name in named:
        if name not in known:
            yield f"{path}.provider", f"there is no provider `{name[:40]}`{did_you_mean(name, sorted(known))}"


def _generic(ingest: Ingest) -> Iterator[Problem]:
    seen: set[tuple[str, str]] = set()
    for index, one in enumerate(ingest.generic):
        path = f"ingest.generic[{index}]"
        if not _DATASET.fullmatch(one.dataset):
            yield f"{path}.dataset", f"`{one.dataset[:64]}` can't be the name of a dataset: {DATASET_RULE}"
        if not one.bucket.strip() or "://" in one.bucket:
            yield f"{path}.bucket", "`bucket` is a bucket's name alone; `provider` says whose it is"
        elif (one.provider, one.bucket) in seen:
            yield f"{path}.bucket", f"the bucket `{one.bucket[:64]}` is named twice"
        seen.add((one.provider, one.bucket))


def _places(ingest: Ingest) -> Iterator[Problem]:
    for index, topic in enumerate(ingest.topics):
        if not _TOPIC.fullmatch(topic):
            yield (
                f"ingest.topics[{index}]",
                "a topic is named by its full ARN: arn:aws:sns:REGION:ACCOUNT:NAME",
            )
    for bucket, folder in ingest.mirrors.items():
        if not bucket.strip() or not folder.strip() or "\0" in folder:
            yield f"ingest.mirrors.{bucket}", "a mirror is a bucket's name, or `*`, and a folder"
    for place in ingest.object_options:
        if not _PLACE.fullmatch(place):
            yield (
                f"ingest.object_options.{place}",
                "options go under the address of a bucket, such as `s3://name` or `s3://*`",
            )


def _replicas(ingest: Ingest) -> Iterator[Problem]:
    names: set[str] = set()
    for index, replica in enumerate(ingest.replicas):
        path = f"ingest.replicas[{index}]"
        if not NAME.fullmatch(replica.name):
            yield f"{path}.name", f"the replica name `{replica.name[:40]}` is not allowed: {NAME_RULE}"
        elif replica.name in names:
            yield f"{path}.name", f"two replicas are called `{replica.name}`"
        names.add(replica.name)
        if not is_reference(replica.url) and not is_web_address(replica.url):
            yield f"{path}.url", "`url` must begin with `http://` or `https://` and name a place"


def _figures(ingest: Ingest) -> Iterator[Problem]:
    for field, least, most in (
        ("batch", 1, BATCH_MAX),
        ("concurrency", 1, CONCURRENCY_MAX),
        ("visibility_seconds", 1, VISIBILITY_S_MAX),
        ("safety_seconds", 0, VISIBILITY_S_MAX),
        ("coalesce_seconds", 0, DAY_S),
        ("replays_max", 1, REPLAYS_MAX),
    ):
        if not least <= getattr(ingest, field) <= most:  # NaN compares with nothing
            yield f"ingest.{field}", f"`{field}` must be from {least} to {most}"
    for index, reason in enumerate(ingest.replay_reasons):
        if not NAME.fullmatch(reason):
            yield f"ingest.replay_reasons[{index}]", f"`{reason[:40]}` is no code for a reason: {NAME_RULE}"
        elif reason in ingest.replay_reasons[:index]:
            yield f"ingest.replay_reasons[{index}]", f"the reason `{reason}` is named twice"


def _follows(settings: Settings) -> Iterator[Problem]:
    for index, source in enumerate(settings.sources):
        for position, name in enumerate(source.follows):
            here = f"sources[{index}].follows[{position}]"
            if not _DATASET.fullmatch(name):
                yield here, f"`{name[:64]}` can't be the name of a dataset: {DATASET_RULE}"
            elif name in source.follows[:position]:
                yield here, f"source `{source.id}` follows `{name}` twice"


SECRETS_MAX = 8  # each costs every request a comparison
SECRET_CHARS_MIN = 16
TOLERANCE_MIN_S, TOLERANCE_MAX_S = 1.0, 86_400.0
BODY_BYTES_MIN, BODY_BYTES_MAX = 1024, 16 * 1024 * 1024
RUNNERS_MAX = 64
LATE_MAX_S = 86_400.0
CLOSING_MAX_S = 3_600.0


def webhook_problems(settings: Settings) -> Iterator[Problem]:
    for index, source in enumerate(settings.sources):
        if source.webhook is not None:
            yield from _webhook(source, f"sources[{index}].webhook")


def approval_problems(settings: Settings) -> Iterator[Problem]:
    """Whom `approvals.standing` names has the role approve; its date can be read."""
    approvers = [one.subject for one in settings.people if "approve" in one.roles]
    for index, source in enumerate(settings.sources):
        rule = source.approvals.standing if source.approvals is not None else None
        if rule is None:
            continue
        path = f"sources[{index}].approvals.standing"
        for number, name in enumerate(rule.by):
            if name not in approvers:
                hint = did_you_mean(name, approvers)
                yield (
                    f"{path}.by[{number}]",
                    f"`{name[:40]}` is not among the people with the role approve{hint}",
                )
        if rule.until is not None:
            try:
                parse_instant(rule.until, "UTC")
            except WindowError as error:
                yield f"{path}.until", f"`until` can't be used: {clause(error.detail)}"


def licence_problems(settings: Settings) -> Iterator[Problem]:
    """Licences of one's own are declared, with a name that SPDX has for them, before a dataset names them."""
    for name, declared in settings.licences.items():
        path = f"licences.{name}"
        if not _OWN_LICENCE.fullmatch(name):
            yield (
                path,
                f"`{name[:40]}` is no name for a licence of one's own: write `LicenseRef-` and characters "
                "a-z, digits, `.` or `-`; one of the SPDX list needs no declaration",
            )
        if not declared.name.strip():
            yield f"{path}.name", "`name` must not be empty"
        if declared.url is not None and not is_web_address(declared.url):
            yield f"{path}.url", "`url` must be a web address"
    for index, dataset in enumerate(settings.datasets):
        rights = dataset.rights
        if rights is None:
            continue
        path = f"datasets[{index}].rights"
        if isinstance(rights.terms, LicenceTerms):
            yield f"{path}.terms", "`terms` belong to a licence: declare them under `licences`"
        if rights.license.startswith(OWN_LICENCE) and rights.license not in settings.licences:
            hint = did_you_mean(rights.license, list(settings.licences))
            yield f"{path}.license", f"`{rights.license[:60]}` is not declared under `licences`{hint}"


_COUNTS = (1, 1_000)
_SPAN_S = (0.1, 7 * DAY_S)
LADDER_MAX = 20  # steps
_FIGURES: dict[str, tuple[float, float]] = {
    "attempts": (1, 100),
    "base_seconds": _SPAN_S,
    "cap_seconds": _SPAN_S,
    "budget_seconds": (1, 90 * DAY_S),
    "grants": _COUNTS,
    "grants_per_day": _COUNTS,
    "failures": _COUNTS,
    "cool_down_seconds": (1, DAY_S),
}


def retry_problems(settings: Settings) -> Iterator[Problem]:
    """Path and sentence of whatever is wrong with the budgets of runs and the breakers of providers."""
    yield from _retry(settings.retry, "retry")
    for index, policy in enumerate(settings.ingest.policies):
        if policy.retry is not None:
            yield from _retry(policy.retry, f"ingest.policies[{index}].retry")
    for index, source in enumerate(settings.sources):
        if source.retry is not None:
            yield from _retry(source.retry, f"sources[{index}].retry")
    for name, provider in settings.providers.items():
        if not is_provider_name(name):
            rule = f"one word of plain characters, at most {PROVIDER_CHARS_MAX}"
            yield f"providers.{name}", f"the provider `{name[:40]}` can't be called: its name is {rule}"
        yield from _within_bounds(provider, f"providers.{name}")


def _retry(retry: RetrySettings, path: str) -> Iterator[Problem]:
    yield from _retry_limits(retry, path)
    for trigger in TRIGGERS:
        limits = retry.of(trigger)
        if limits is not None:
            yield from _retry_limits(limits, f"{path}.{trigger}")


def _retry_limits(limits: TriggerRetrySettings, path: str) -> Iterator[Problem]:
    yield from _within_bounds(limits, path)
    base, cap, ladder = limits.base_seconds, limits.cap_seconds, limits.ladder_seconds
    if base is not None and cap is not None and base > cap:
        yield f"{path}.cap_seconds", "`cap_seconds` must not be less than `base_seconds`"
    if ladder and (base is not None or cap is not None):
        yield (
            f"{path}.ladder_seconds",
            "`ladder_seconds` takes the place of `base_seconds` and `cap_seconds`: leave those out",
        )
    least, most = _SPAN_S
    if ladder is not None and len(ladder) > LADDER_MAX:
        yield f"{path}.ladder_seconds", f"`ladder_seconds` has at most {LADDER_MAX} steps"
    for position, seconds in enumerate(ladder or ()):
        if not least <= seconds <= most:
            here = f"{path}.ladder_seconds[{position}]"
            yield here, f"a step of `ladder_seconds` must be from {least} to {most}"


def _within_bounds(limits: TriggerRetrySettings | ProviderSettings, path: str) -> Iterator[Problem]:
    for field, (least, most) in _FIGURES.items():
        figure = getattr(limits, field, None)
        if figure is not None and not least <= figure <= most:  # NaN compares with nothing
            yield f"{path}.{field}", f"`{field}` must be from {least} to {most}"


def serve_problems(settings: Settings) -> Iterator[Problem]:
    serve = settings.serve
    if not 0 <= serve.port <= 65_535:
        yield "serve.port", "`port` must be from 0 to 65535"
    if not serve.host.strip():
        yield "serve.host", "`host` must not be empty"
    if not 1 <= serve.runners <= RUNNERS_MAX:
        yield "serve.runners", f"`runners` must be from 1 to {RUNNERS_MAX}"
    if not 1 <= serve.late_seconds <= LATE_MAX_S:
        yield "serve.late_seconds", f"`late_seconds` must be from 1 to {LATE_MAX_S:g}"
    for name in ("grace_seconds", "drain_seconds"):
        if not 0 <= getattr(serve, name) <= CLOSING_MAX_S:
            yield f"serve.{name}", f"`{name}` must be from 0 to {CLOSING_MAX_S:g}"
    if not BODY_BYTES_MIN <= serve.body_bytes_max <= BODY_BYTES_MAX:
        yield (
            "serve.body_bytes_max",
            f"`body_bytes_max` must be from {BODY_BYTES_MIN} to {BODY_BYTES_MAX}",
        )


def _webhook(source: SourceSettings, path: str) -> Iterator[Problem]:
    webhook = source.webhook
    assert webhook is not None
    if not webhook.secrets:
        yield f"{path}.secrets", f"`secrets` of `{source.id}` is empty: name at least one; {WAY_OUT}"
    if len(webhook.secrets) > SECRETS_MAX:
        yield f"{path}.secrets", f"`secrets` has at most {SECRETS_MAX} of them"
    for position, text in enumerate(webhook.secrets):
        here = f"{path}.secrets[{position}]"
        if not is_reference(text):
            yield here, f"`secrets` holds a secret; {WAY_OUT}"
        elif text in webhook.secrets[:position]:
            yield here, "`secrets` names this one twice"
    if not TOLERANCE_MIN_S <= webhook.tolerance_seconds <= TOLERANCE_MAX_S:  # NaN compares with nothing
        yield (
            f"{path}.tolerance_seconds",
            f"`tolerance_seconds` must be from {TOLERANCE_MIN_S:g} to {TOLERANCE_MAX_S:g}",
        )


def webhook_secrets(source: SourceSettings, resolve: Callable[[str], str]) -> tuple[str, ...]:
    """The secrets behind the references. A missing or short one keeps the service from starting."""
    assert source.webhook is not None
    found: list[str] = []
    for reference in source.webhook.secrets:
        secret = resolve(reference).strip()
        if len(secret) < SECRET_CHARS_MIN:
            raise ConfigError(
                f"`{reference}`, a webhook secret of `{source.id}`, has fewer than {SECRET_CHARS_MIN} "
                "characters: it can be guessed.",
                remedy="Make one of 32 random bytes: `kfm webhook secret` prints it.",
            )
        if secret in found:
            raise ConfigError(f"`{reference}` of `{source.id}` holds the same secret as another one.")
        found.append(secret)
    return tuple(found)


def webhook_warnings(settings: Settings) -> list[str]:
    """Warnings at the start of the service."""
    return [
        f"warning: source {source.id} accepts sha256(secret + body) as a signature (legacy-concat): a reader "
        "of one message can lengthen it; have its sender use HMAC, then remove `signature`"
        for source in settings.sources
        if source.webhook is not None and source.webhook.signature == "legacy-concat"
    ]


SUBJECT_RULE = "letters, digits and `._@+-`, beginning with a letter or digit, at most 100"
_SUBJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}", re.ASCII)
_RESERVED = ("kfm", "unknown")  # what is recorded where no person acted, or it is not known who did
PEOPLE_MAX = 1000


def people_problems(settings: Settings) -> Iterator[Problem]:
    """Path and sentence of whatever is wrong with the people; no token is ever repeated."""
    if len(settings.people) > PEOPLE_MAX:
        yield "people", f"at most {PEOPLE_MAX} people"
    owners: dict[str, str] = {}  # a name or a hash → whose it is
    for index, person in enumerate(settings.people):
        path = f"people[{index}]"
        if not _SUBJECT.fullmatch(person.subject) or person.subject in _RESERVED:
            said = f"the subject `{person.subject[:40]}`"
            kept = f"{said} is what kfm calls itself or a stranger"
            yield (
                f"{path}.subject",
                kept
                if person.subject in _RESERVED
                else f"{said} has characters that are not allowed: {SUBJECT_RULE}",
            )
        if not person.roles:
            yield f"{path}.roles", "give at least one role: `read`, `operate`, `approve`"
        if not (person.accounts or person.tokens):
            yield (
                path,
                f"`{person.subject[:40]}` has neither `accounts` nor `tokens`, so no person can act as it",
            )
        yield from _names(person, index, owners)
        yield from _tokens(person, index, owners)


def _names(person: PersonSettings, index: int, owners: dict[str, str]) -> Iterator[Problem]:
    """A name is one person's: a second one could approve what the first has asked for."""
    taken = owners.get(person.subject)
    if taken is not None:
        yield (
            f"people[{index}].subject",
            f"`{person.subject[:40]}` is a name of `{taken[:40]}` already: one person is one entry",
        )
    own = {person.subject}
    owners.setdefault(person.subject, person.subject)
    for position, account in enumerate(person.accounts):
        path = f"people[{index}].accounts[{position}]"
        if not account.strip():
            yield path, "an account must not be empty"
        elif account not in own and account in owners:
            yield (
                path,
                f"`{account[:40]}` is a name of `{owners[account][:40]}` already: one person is one entry",
            )
        own.add(account)
        owners.setdefault(account, person.subject)


def _tokens(person: PersonSettings, index: int, owners: dict[str, str]) -> Iterator[Problem]:
    for position, text in enumerate(person.tokens):
        path = f"people[{index}].tokens[{position}]"
        found = read_hash(text)
        if found is None and not is_reference(text):
            yield (
                path,
                "write `sha256:` and the token's SHA-256 in hex, or `env:NAME` or `file:PATH` that hold it; "
                "a token itself is never written here",
            )
        elif text in owners:
            yield path, f"`{owners[text][:40]}` has this token already"
        owners.setdefault(text, person.subject)


def known_people(settings: Settings, resolve: Callable[[str], str]) -> tuple[KnownPerson, ...]:
    """The people with the hashes of their tokens. One that can't be read stops everything: who is who?"""
    return tuple(
        KnownPerson(
            subject=person.subject,
            roles=person.roles,
            accounts=person.accounts,
            token_hashes=tuple(_hash(person, text, resolve) for text in person.tokens),
        )
        for person in settings.people
    )


def _hash(person: PersonSettings, text: str, resolve: Callable[[str], str]) -> str:
    found = read_hash(resolve(text))
    if found is None:
        raise ConfigError(
            f"people: `{text}` of {person.subject} holds no `sha256:HEX`.",
            remedy="Put `sha256:` and the SHA-256 of the token there, not the token.",
        )
    return found
