"""Settings: what a configuration says, as frozen values. Reading files is the work of `kfm.config`."""

from collections.abc import Iterator
from typing import Literal

import msgspec


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A value whose unknown fields are errors."""


CareLevel = Literal["public", "review", "restricted", "blocked"]  # the most open first
ReadAs = Literal["window", "current"]  # what lies in the run's window, or all


class Care(Strict, frozen=True):
    label: str
    level: CareLevel = "public"


class Sovereignty(Strict, frozen=True):
    authority: str
    consent: Literal["granted", "pending", "withdrawn"]
    agreement: str | None = None


OWN_LICENCE = "LicenseRef-"


class LicenceTerms(Strict, frozen=True):
    """A licence that is not on the SPDX list, as `licences` declares it: LicenseRef-NAME."""

    name: str
    terms: Literal["open", "attribution", "share-alike", "non-commercial", "no-derivatives", "closed"]
    url: str | None = None


class Rights(Strict, frozen=True):
    license: str
    care: Care
    sovereignty: Sovereignty | None = None
    local_contexts: str | None = None
    attribution: str | None = None
    terms: LicenceTerms | msgspec.UnsetType = msgspec.UNSET  # of a declared licence; taken from `licences`


class Owner(Strict, frozen=True):
    """Who answers for a dataset: named in every notification about it."""

    name: str
    contact: str | None = None  # how to reach them: an address, a number, a channel


class Escalate(Strict, frozen=True):
    """Who else gets an incident that stays unacknowledged."""

    after: str  # ISO 8601, from its opening
    to: tuple[str, ...]  # names of hooks


class DatasetSettings(Strict, frozen=True):
    id: str
    title: str | None = None
    description: str | None = None
    domain: str = "general"
    keywords: tuple[str, ...] = ()
    bbox: tuple[float, float, float, float] | None = None
    rights: Rights | None = None
    lock: Literal["dataset", "domain"] = "dataset"
    owner: Owner | None = None
    escalate: Escalate | None = None
    formerly: tuple[str, ...] = ()  # in a file: earlier ids, the first one first; see `identified`

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that it goes or went by."""
        return (self.id, *self.formerly)

    @property
    def name(self) -> str:
        """What the configuration calls it now; readers find it by this name once it was renamed."""
        return self.names[-1]


class Pagination(Strict, frozen=True):
    """How an HTTP API hands out its pages."""

    style: Literal["link-header", "json-next", "page-number", "offset"]
    next_pointer: str = "/next"
    parameter: str = "page"
    first: int = 1
    page_size: int = 100
    size_parameter: str | None = None
    items_pointer: str = ""
    pages_max: int = 1000


class Webhook(Strict, frozen=True):
    """Who else may ask for an update of a source, over HTTP."""

    secrets: tuple[str, ...]  # references; any of them signs: a new one is added before the old one goes
    signature: Literal["hmac", "legacy-concat"] = "hmac"  # legacy-concat: sha256(secret + body) passes, too
    tolerance_seconds: float = 300.0  # between its sending and now
    approval: Literal["none", "required"] = "none"  # required: a second person approves the preview


class StandingApproval(Strict, frozen=True):
    """Who may give a standing approval with `kfm approvals stand`, and for how long."""

    by: tuple[str, ...] = ()  # subjects of people with the role approve; none: any of them
    until: str | None = None  # a date or time: no standing approval reaches beyond it


class SourceApprovals(Strict, frozen=True):
    """Approvals of a source, beside those of single previews."""

    standing: StandingApproval | None = None  # None: any person with the role approve, for at most 366 days


TRIGGERS = ("cron", "manual", "webhook", "upstream-event")


class TriggerRetrySettings(Strict, frozen=True):
    """How often, how far apart and for how long a run is tried. Left out: as configured further out."""

    attempts: int | None = None  # the first one included
    base_seconds: float | None = None
    cap_seconds: float | None = None
    ladder_seconds: tuple[float, ...] | None = None  # in place of base and cap; empty: none
    budget_seconds: float | None = None


class RetrySettings(TriggerRetrySettings, frozen=True):
    """The retry budget of runs: for every trigger, and for single ones, which win."""

    grants: int | None = None  # of one content version
    grants_per_day: int | None = None  # of one piece of work, in a day of UTC
    cron: TriggerRetrySettings | None = None
    manual: TriggerRetrySettings | None = None
    webhook: TriggerRetrySettings | None = None
    upstream_event: TriggerRetrySettings | None = msgspec.field(name="upstream-event", default=None)

    def of(self, trigger_type: str) -> TriggerRetrySettings | None:
        """What is said for runs of this trigger alone."""
        found: TriggerRetrySettings | None = getattr(self, trigger_type.replace("-", "_"))
        return found


class ProviderSettings(Strict, frozen=True):
    """The circuit breaker of one provider."""

    failures: int = 3  # in a row
    cool_down_seconds: float = 300.0


class Expect(Strict, frozen=True):
    """When the data of each window has to be there. What is left out follows from schedule and contract."""

    by: str | None = (
        None  # HH:MM in the source's zone, the first at or after the window's end: late after that
    )
    within: str | None = (
        None  # ISO 8601, after the window's end: asked for until then; without `by` late, too
    )
    every: str | None = (
        None  # ISO 8601: a window this long is expected again and again where no schedule asks
    )
    rows_min: int | None = None  # fewer rows are refused as a broken contract is
    since: str | None = msgspec.field(name="from", default=None)  # None: since it was configured


NotYet = int | Literal["empty", "unchanged"]  # an HTTP status, nothing there, nothing new


class SourceSettings(Strict, frozen=True):
    """One place that data comes from. Which fields apply depends on `kind`."""

    id: str
    dataset: str
    kind: str  # files | http | bucket | dataset | sync, or the name of a kfm.sources entry point
    window: str = "P1D"  # none: it has no windows, content alone says whether there is something new
    time_zone: str = "UTC"
    partition: str | None = None
    output_version: str | None = None  # pinned; None: a hash of the pipeline's own files
    contract: str | None = None
    pipeline: str | None = None  # "path/to/file.py:function"
    mode: Literal["merge", "replace"] = "merge"
    idempotent: bool = True  # False: the pipeline acts on the outside by itself, so it is not retried
    path: str | None = None  # template of the published path, see the reference
    provider: str | None = None  # whose circuit its calls pass; None: by the address
    retry: RetrySettings | None = None  # None: the project's
    run_seconds: int | None = None  # how long an attempt may take; None: limits.run_seconds
    expect: Expect | None = None  # None: by its schedule and its contract
    not_yet: tuple[NotYet, ...] = ()  # answers that mean that the data has not come yet
    # files
    folder: str | None = None
    pattern: str = "**/*"
    # http
    url: str | None = None
    params: dict[str, str] = {}
    headers: dict[str, str] = {}
    pagination: Pagination | None = None
    allow: tuple[str, ...] = ()  # private hosts and ranges that its address or its redirects lead to
    # bucket
    bucket: str | None = None  # s3://name, gs://name, az://name, file:///path
    prefix: str = ""
    bucket_options: dict[str, str] = {}
    # dataset
    datasets: dict[str, ReadAs] = {}  # what it is made of, and how much of each is read
    lowers_care: str | None = None  # why its dataset may be less restricted than one that it is made of
    # sync
    members: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()  # datasets of announced objects whose arrival starts it
    webhook: Webhook | None = None  # None: no webhooks
    # required: a second person approves the preview of each run, whatever asked for it
    approval: Literal["none", "required"] = "none"
    approvals: SourceApprovals | None = None
    formerly: tuple[str, ...] = ()  # in a file: earlier ids, the first one first; see `identified`

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that it goes or went by."""
        return (self.id, *self.formerly)


class SourceDefaults(Strict, frozen=True):
    """Fields of every source that does not have them itself, as far as its kind has such fields."""

    dataset: str | None = None
    kind: str | None = None
    window: str | None = None
    time_zone: str | None = None
    contract: str | None = None
    pipeline: str | None = None
    mode: Literal["merge", "replace"] | None = None
    idempotent: bool | None = None
    path: str | None = None
    provider: str | None = None
    retry: RetrySettings | None = None
    run_seconds: int | None = None
    pattern: str | None = None
    headers: dict[str, str] | None = None
    params: dict[str, str] | None = None
    pagination: Pagination | None = None
    bucket_options: dict[str, str] | None = None


class Freeze(Strict, frozen=True):
    """A span of time in which nothing is published."""

    start: str
    end: str
    reason: str
    datasets: tuple[str, ...] = ("*",)
    domains: tuple[str, ...] = ("*",)


class Target(Strict, frozen=True):
    """A publishing target: a projection of the promoted head of every dataset that it takes."""

    kind: str  # branch | dcat | github-actions | local | noop | s3 | stac, or a kfm.publishers entry point
    name: str | None = None
    path: str | None = None
    url: str | None = None
    provider: str | None = None  # whose circuit its calls pass; None: by the address
    options: dict[str, str] = {}
    datasets: tuple[str, ...] = ("*",)  # ids or patterns
    care: tuple[Literal["public", "review", "restricted"], ...] | None = None  # None: public and review


class Limits(Strict, frozen=True):
    objects_per_run_max: int = 10_000
    object_bytes_max: int = 5 * 1024**3
    run_bytes_max: int = 50 * 1024**3
    call_timeout_ms: int = 60_000
    versions_kept: int = 10
    run_seconds: int = 86_400
    store_connections: int | None = None  # of a process to PostgreSQL; None: 6 of `kfm serve`, 3 of others


class Lease(Strict, frozen=True):
    seconds: float = 60.0
    heartbeat_seconds: float | None = None  # None: a third of the lease


class LineageSettings(Strict, frozen=True):
    """Where OpenLineage events go."""

    export: Literal["file", "http", "none"] = "file"
    path: str | None = None  # file: None is lineage/openlineage.jsonl in the state folder
    url: str | None = None  # http: the collector; OPENLINEAGE_URL and OPENLINEAGE__TRANSPORT__* are honoured
    token: str | None = None  # http: env:NAME or file:PATH
    namespace: str | None = None  # of jobs; None: kfm.<environment>
    rotate_bytes: int = 64 * 1024**2  # file: a new one is begun before it would grow beyond that; 0: never
    rotate_hours: int = 24  # file: a new one is begun for each span of so many hours; 0: never


class TelemetrySettings(Strict, frozen=True):
    """OpenTelemetry. Off unless an endpoint is named here or in OTEL_EXPORTER_OTLP_ENDPOINT."""

    otlp: str | None = None
    headers: dict[str, str] = {}
    service: str = "kfm"


class EnergyModel(Strict, frozen=True):
    """The assumptions behind every figure of energy and carbon."""

    watts_per_core: float = 10.0  # of one busy core, with its share of the machine
    overhead: float = 1.0  # power usage effectiveness of the place
    carbon_g_per_kwh: float = 332.6  # Kansas, EPA
    region: str = "US-KS"


class Audit(Strict, frozen=True):
    anchors: str = "audit-anchors.jsonl"  # beside the configuration, to be kept elsewhere, too


class RetentionSettings(Strict, frozen=True):
    """For how many days the ledger keeps what none of its promises needs. None: for ever."""

    enabled: bool = False  # without it nothing of the ledger goes, whatever its age
    outbox_days: int | None = 90
    unit_history_days: int | None = 90
    invocations_days: int | None = 400
    attempts_days: int | None = 400
    trigger_documents_days: int | None = 400
    inputs_days: int | None = 400
    previews_days: int | None = 90
    request_members_days: int | None = 90
    request_details_days: int | None = 400
    run_states_days: int | None = 90
    replay_units_days: int | None = 400
    dead_bodies_days: int | None = 90
    artifacts_days: int | None = 400


class Hook(Strict, frozen=True):
    """Who is told when an incident opens, gets worse or is resolved."""

    kind: str  # command | webhook | file | email | chat, or a kfm.notifiers entry point
    name: str | None = None  # None: the kind; what was delivered is kept under it
    command: tuple[str, ...] = ()
    url: str | None = None
    secret: str | None = None  # env:NAME or file:PATH
    path: str | None = None
    options: dict[str, str] = {}
    timeout_seconds: float = 5.0
    host: str | None = None  # email: of the mail server
    port: int | None = None  # email; None: 587 with starttls, 465 with tls, 25 with none
    security: Literal["starttls", "tls", "none"] = "starttls"
    ca_file: str | None = None  # email: authorities to trust, in place of the system's
    user: str | None = None  # env:NAME or file:PATH
    password: str | None = None  # env:NAME or file:PATH
    sender: str | None = None
    to: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()  # only of these; empty: of all, and of providers
    kinds: tuple[str, ...] = ()  # only of these kinds; empty: of all
    severity: Literal["warning", "error", "critical"] = "warning"  # the least
    escalation: bool = False  # only what is escalated to it, from then on


class RunStateSettings(Strict, frozen=True):
    """Where the records of nodes are kept: one store for an environment, and no other."""

    store: Literal["relational", "delta", "branch", "lakefs"] = "relational"
    path: str | None = None  # delta: a folder or s3://…; None: run-state in the state folder
    options: dict[str, str] = {}  # delta: of the client of that bucket


class Lakefs(Strict, frozen=True):
    """The lakeFS repository that an environment's branches are in."""

    endpoint: str  # https://…, without /api/v1; env:NAME or file:PATH
    repository: str
    access_key: str  # env:NAME or file:PATH
    secret_key: str  # env:NAME or file:PATH


class PersonSettings(Strict, frozen=True):
    """A person or machine that may use kfm, by all its names."""

    subject: str
    roles: tuple[Literal["read", "operate", "approve"], ...]
    accounts: tuple[str, ...] = ()  # of the operating system
    tokens: tuple[str, ...] = ()  # sha256:HEX of each, or a reference to such a text


class IngestQueue(Strict, frozen=True):
    """A queue of announcements."""

    name: str  # units keep it
    kind: Literal["sqs", "folder"] = "sqs"
    url: str | None = None  # sqs
    path: str | None = None  # folder
    signatures: Literal["off", "required"] = "off"  # of SNS, on every message
    options: dict[str, str] = {}  # sqs: region, endpoint_url
    provider: str = "aws"  # whose buckets are meant by messages in S3's form


class IngestProvider(Strict, frozen=True):
    """A provider beside aws, azure and gcp. Its buckets speak S3; `object_options` says where they are."""

    name: str
    buckets: dict[str, str] = {}  # bucket → the known dataset that it has a copy of


class GenericBucketSettings(Strict, frozen=True):
    """A bucket whose objects are taken in although no dataset describes them."""

    bucket: str
    dataset: str
    provider: str = "aws"  # aws, azure, gcp, or one of `providers`


class IngestPolicy(Strict, frozen=True):
    """What is asked of the objects of some datasets. The first policy that names a dataset holds."""

    datasets: tuple[str, ...] = ("*",)
    integrity: Literal["announced", "head", "magic", "full"] = "announced"
    metadata: Literal["key", "header"] = "key"
    reissue: Literal["update", "ignore"] = "update"
    removal: Literal["keep", "remove"] = "keep"
    provenance: Literal["ok", "partial"] = "partial"  # the least that a success may have
    replay_quarantined: tuple[str, ...] = ()  # error codes whose quarantine a replay may end; `*`: all
    retry: RetrySettings | None = None  # None: the project's

    def may_end_quarantine(self, error_code: str | None) -> bool:
        """May a replay end the quarantine of this error?"""
        return "*" in self.replay_quarantined or error_code in self.replay_quarantined


class FeedSettings(Strict, frozen=True):
    """Products of an announced dataset that are expected hour by hour. What is left out is as the dataset
    ships it."""

    dataset: str
    products: tuple[str, ...] = ()  # none: nothing is expected, the feed is shown by its lag
    platforms: tuple[str, ...] = ()  # satellites, sites, regions: each by itself; none: all together
    per_hour: int | None = None  # objects of each product and platform, at least
    hours: tuple[int, ...] = ()  # of the day, in UTC, such as a model's cycles
    within: str | None = None  # ISO 8601, after the hour's end: late after that
    since: str | None = msgspec.field(name="from", default=None)  # None: since it was configured


class Replica(Strict, frozen=True):
    """An external STAC API with transactions that follows our catalogue."""

    name: str
    url: str
    token: str | None = None  # env:NAME or file:PATH


_NO_POLICY = IngestPolicy()
CONCURRENCY_MAX = 256  # objects that one worker reads at once


class Ingest(Strict, frozen=True):
    """Taking in objects that others announce."""

    queues: tuple[IngestQueue, ...] = ()
    policies: tuple[IngestPolicy, ...] = ()
    providers: tuple[IngestProvider, ...] = ()
    generic: tuple[GenericBucketSettings, ...] = ()
    feeds: tuple[FeedSettings, ...] = ()  # what is expected of announced datasets
    topics: tuple[str, ...] = ()  # beyond those of the known datasets
    mirrors: dict[str, str] = {}  # bucket → a folder that has its objects
    object_options: dict[str, dict[str, str]] = {}  # s3://bucket, or s3://* → options of the client
    batch: int = 100  # units in one transaction
    concurrency: int = 4  # objects that a worker reads at once
    visibility_seconds: float = 300.0
    safety_seconds: float = 30.0
    coalesce_seconds: float = 60.0
    replays_max: int = 10_000  # units in one replay
    replay_reasons: tuple[str, ...] = ()  # codes beyond those that everybody has
    replicas: tuple[Replica, ...] = ()

    def policy_of(self, dataset: str) -> IngestPolicy:
        for policy in self.policies:
            if "*" in policy.datasets or dataset in policy.datasets:
                return policy
        return _NO_POLICY

    def provider_of(self, queue: str) -> str:
        """Whose buckets are meant by messages in S3's form that this queue brings."""
        return next((one.provider for one in self.queues if one.name == queue), "aws")

    @property
    def reads_buckets(self) -> bool:
        """Does some policy have objects looked at, with no folder anywhere that stands in for a bucket?"""
        asked = any(
            (one.integrity, one.metadata, one.provenance) != ("announced", "key", "partial")
            for one in self.policies
        )
        return asked and not self.mirrors

    @property
    def lease_ms(self) -> int:
        return round((self.visibility_seconds + self.safety_seconds) * 1000)


class Serve(Strict, frozen=True):
    """The service: where it listens, and what it allows itself."""

    host: str = "127.0.0.1"
    port: int = 8377
    hosts: tuple[str, ...] = ()  # names that it answers to, beside the address it listens on
    runners: int = 2  # runs at a time
    late_seconds: float = 60.0  # an instant that is older than this was missed
    body_bytes_max: int = 262_144  # of one webhook
    grace_seconds: float = 30.0  # for what is under way when it is stopped
    drain_seconds: float = 0.0  # after SIGTERM it goes on answering, as not ready, for so long at least

    @property
    def late_ms(self) -> int:
        return round(self.late_seconds * 1000)


class Settings(Strict, frozen=True):
    version: Literal[1] = 1
    environment: str = "default"
    state: str = ".kfm"
    store: str | None = None  # None: sqlite in the state folder; postgresql://…
    objects: str | None = None  # None: a folder in the state folder; s3://name for machines that share
    objects_options: dict[str, str] = {}
    datasets: tuple[DatasetSettings, ...] = ()
    source_defaults: SourceDefaults = SourceDefaults()
    sources: tuple[SourceSettings, ...] = ()
    publish: tuple[Target, ...] = ()
    policies: tuple[str, ...] = ()
    licences: dict[str, LicenceTerms] = {}  # LicenseRef-NAME, that rights.license may name
    freezes: tuple[Freeze, ...] = ()
    limits: Limits = Limits()
    lease: Lease = Lease()
    retry: RetrySettings = RetrySettings()
    providers: dict[str, ProviderSettings] = {}  # by the provider's name
    lineage: LineageSettings = LineageSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    energy: EnergyModel = EnergyModel()
    audit: Audit = Audit()
    retention: RetentionSettings = RetentionSettings()
    incidents: tuple[Hook, ...] = ()
    run_state: RunStateSettings = RunStateSettings()
    lakefs: Lakefs | None = None  # None: branches are tables of the ledger
    ingest: Ingest = Ingest()
    serve: Serve = Serve()
    schedules: str | None = None  # None: cron.yml beside the configuration, if it is there
    people: tuple[PersonSettings, ...] = ()  # none: every account that can run kfm here may do everything

    def dataset(self, dataset_id: str) -> DatasetSettings:
        return next(d for d in self.datasets if d.id == dataset_id)

    def declared(self, dataset_id: str | None) -> DatasetSettings | None:
        """The dataset as declared; None for those that only the ledger knows, and for those of announced
        objects, which need no declaration."""
        return next((one for one in self.datasets if one.id == dataset_id), None)

    def dataset_id(self, name: str | None) -> str | None:
        """The id behind a name of a dataset, present or former; the name itself where no dataset has it."""
        return next((one.id for one in self.datasets if name in one.names), name)

    def called_dataset(self, dataset_id: str) -> str:
        """What the dataset of this id is called in the configuration now."""
        return next((one.name for one in self.datasets if one.id == dataset_id), dataset_id)

    def domain_of(self, dataset_id: str) -> str:
        """The domain of a dataset, for switches and freezes; the default one where nothing is declared."""
        return (self.declared(dataset_id) or DatasetSettings(id=dataset_id)).domain

    def source(self, name: str) -> SourceSettings:
        return next(source for source in self.sources if name in source.names)

    def source_named(self, name: str | None) -> SourceSettings | None:
        """The source of this name, the present one or a former one; None if there is none."""
        return next((source for source in self.sources if name in source.names), None)

    def source_id(self, name: str | None) -> str | None:
        """The id behind a name of a source; the name itself where no source has it."""
        found = self.source_named(name)
        return name if found is None else found.id

    def called(self, source_id: str) -> str:
        """What the source of this id is called in the configuration now."""
        return next((source.names[-1] for source in self.sources if source.id == source_id), source_id)

    def sync_of(self, source_id: str) -> str | None:
        """The sync that publishes this source as a member; run alone, its data would be published twice."""
        return next((source.id for source in self.sources if source_id in source.members), None)

    def retry_of(self, source_id: str) -> tuple[RetrySettings, ...]:
        """The retry settings of a source, the nearest last; of an undeclared one only the project's."""
        own = next((source.retry for source in self.sources if source.id == source_id), None)
        return (self.retry,) if own is None else (self.retry, own)

    def unit_retry_of(self, dataset_id: str) -> tuple[RetrySettings, ...]:
        """The retry settings of a dataset's units, the nearest last."""
        own = self.ingest.policy_of(dataset_id).retry
        return (self.retry,) if own is None else (self.retry, own)


def identified(settings: Settings) -> Settings:
    """The settings of a file with each renamed source and dataset under its first name, which is its
    identity: work keys, items, versions, runs and requests hold it. `formerly` has the later names then, the
    present one last."""
    return _with_sources_identified(with_datasets_identified(settings))


def _with_sources_identified(settings: Settings) -> Settings:
    renamed = {source.id: source.formerly[0] for source in settings.sources if source.formerly}
    if not renamed:
        return settings
    sources = []
    for source in settings.sources:
        first, *later = *source.formerly, source.id
        members = tuple(renamed.get(member, member) for member in source.members)
        sources.append(msgspec.structs.replace(source, id=first, formerly=tuple(later), members=members))
    return msgspec.structs.replace(settings, sources=tuple(sources))


def with_datasets_identified(settings: Settings) -> Settings:
    """The settings with each renamed dataset under its first name, wherever it is named."""
    first = {name: one.formerly[0] for one in settings.datasets if one.formerly for name in one.names}
    if not first:
        return settings
    replace, identity = msgspec.structs.replace, first.get
    datasets = []
    for one in settings.datasets:
        earliest, *later = *one.formerly, one.id
        datasets.append(replace(one, id=earliest, formerly=tuple(later)))
    sources = tuple(
        replace(
            one,
            dataset=identity(one.dataset, one.dataset),
            datasets={identity(name, name): read_as for name, read_as in one.datasets.items()},
        )
        for one in settings.sources
    )
    return replace(
        settings,
        datasets=tuple(datasets),
        sources=sources,
        freezes=tuple(replace(one, datasets=_meant(one.datasets, first)) for one in settings.freezes),
        incidents=tuple(replace(one, datasets=_meant(one.datasets, first)) for one in settings.incidents),
    )


def _meant(patterns: tuple[str, ...], first: dict[str, str]) -> tuple[str, ...]:
    """Patterns over the names of datasets, with the ids of the renamed ones that they mean."""
    from fnmatch import fnmatchcase

    found = {first[name] for name in first if any(fnmatchcase(name, pattern) for pattern in patterns)}
    return (*patterns, *sorted(found - set(patterns)))


def with_declared_licences(settings: Settings) -> Settings:
    """The settings, each dataset's rights with the terms of its licence, where `licences` declares it."""
    if not settings.licences:
        return settings
    return msgspec.structs.replace(
        settings, datasets=tuple(_with_terms(one, settings.licences) for one in settings.datasets)
    )


def _with_terms(dataset: DatasetSettings, licences: dict[str, LicenceTerms]) -> DatasetSettings:
    rights = dataset.rights
    if rights is None or rights.license not in licences:
        return dataset
    terms = msgspec.structs.replace(rights, terms=licences[rights.license])
    return msgspec.structs.replace(dataset, rights=terms)


STATE = "state folder"
TARGET = "local target"


def own_places(settings: Settings) -> Iterator[tuple[str, str]]:
    """What each is, and its path as it was configured."""
    yield STATE, settings.state
    for target in settings.publish:
        if target.kind == "local" and target.path:
            yield TARGET, target.path


def takes_in(folder: str, own: str, dataset_id: str, what: str) -> bool:
    """Would reading the folder (absolute, as `own`) bring in what is written to `own`?

    Hidden folders are never entered; another dataset's published files are a fair source.
    """
    if _holds(folder, own):
        below = own[len(folder.rstrip("/")) :].split("/")
        return not any(name.startswith(".") for name in below)
    return _holds(own if what == STATE else f"{own.rstrip('/')}/{dataset_id}", folder)


def _holds(outer: str, inner: str) -> bool:
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")
