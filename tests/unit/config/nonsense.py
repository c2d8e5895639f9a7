# ruff: noqa: E501 - one sentence, one line
"""Configurations that make no sense, each with the sentence that a person is told."""

from __future__ import annotations

GOOD = """\
version: 1
datasets:
  - id: levels
    rights: {license: CC0-1.0, care: {label: Public}}
sources:
  - {id: daily, dataset: levels, kind: files, folder: incoming}
publish:
  - {kind: local, path: published}
"""

DATASET = "datasets: [{id: levels, rights: {license: CC0-1.0, care: {label: Public}}}]\n"
SOURCE = DATASET + "sources:\n  - {id: daily, dataset: levels, "

# name → (text of kfm.yml, everything after "The configuration is not valid. ")
NONSENSE: dict[str, tuple[str, str]] = {
    "misspelt section": (
        GOOD.replace("sources:", "sorces:"),
        "kfm.yml:5: `sorces` is not a setting; did you mean `sources`?",
    ),
    "misspelt field": (
        SOURCE + "kind: files, foldr: x}",
        "kfm.yml:3: `foldr` is not a setting of `sources[0]`; did you mean `folder`?",
    ),
    "field of nothing like it": ("zzzz: 1\n", "kfm.yml:1: `zzzz` is not a setting"),
    "twice": ("version: 1\nversion: 1\n", "kfm.yml:2: `version` is given twice; the first is on line 1"),
    "empty": ("", "kfm.yml: the file is empty"),
    "comments only": ("# later\n", "kfm.yml:1: the file holds no settings, only comments"),
    "a list": ("- a\n- b\n", "kfm.yml:1: the file must hold settings, written as `name: value`"),
    "a word": ("hello\n", "kfm.yml:1: the file must hold settings, written as `name: value`"),
    "open bracket": (
        "datasets: [\n",
        "kfm.yml:2: not YAML: while parsing a flow node, expected the node content, but found '<stream end>'",
    ),
    "a tab": (
        "version: 1\n\tstate: x\n",
        "kfm.yml:2: not YAML: while scanning for the next token, found character '\\t' that cannot start any token",
    ),
    "two colons": ("version: 1: 2\n", "kfm.yml:1: not YAML: mapping values are not allowed here"),
    "unknown alias": ("version: *one\n", "kfm.yml:1: not YAML: found undefined alias 'one'"),
    "endless alias": ("datasets: &a [*a]\n", "kfm.yml:1: an alias refers to something that it is part of"),
    "object tag": (
        "state: !!python/name:os.system x\n",
        "kfm.yml:1: the tag `python/name:os.system` is not supported",
    ),
    "second document": (
        "version: 1\n---\nversion: 1\n",
        "kfm.yml:2: a second document begins here; one file holds one configuration",
    ),
    "huge number": (
        "limits: {versions_kept: 99999999999999999999}\n",
        "kfm.yml:1: `99999999999999999999` is too large a number",
    ),
    "infinite": ("lease: {seconds: .inf}\n", "kfm.yml:1: `.inf` is not a finite number"),
    "wrong version": ("version: 2\n", "kfm.yml:1: `version` must be `1`, not `2`"),
    "text for number": ("lease:\n  seconds: soon\n", "kfm.yml:2: `seconds` must be a number, not `soon`"),
    "number for text": ("environment: 3\n", "kfm.yml:1: `environment` must be text, not `3`"),
    "yes for number": (
        "limits:\n\n  versions_kept: true\n",
        "kfm.yml:3: `versions_kept` must be a whole number, not `true`",
    ),
    "list for text": ("state: [a]\n", "kfm.yml:1: `state` must be text, not a list"),
    "text for list": ("datasets: levels\n", "kfm.yml:1: `datasets` must be a list, not `levels`"),
    "number for group": (
        "datasets:\n  - 7\n",
        "kfm.yml:2: `datasets[0]` must be a group of settings, not `7`",
    ),
    "list for group": ("lease: [1]\n", "kfm.yml:1: `lease` must be a group of settings, not a list"),
    "empty for list": ("datasets:\n", "kfm.yml:1: `datasets` must be a list, not empty"),
    "no id": ("datasets:\n  - title: x\n", "kfm.yml:2: `id` is missing from `datasets[0]`"),
    "no rights label": (
        "datasets:\n  - id: a\n    rights: {license: MIT, care: {}}\n",
        "kfm.yml:3: `label` is missing from `care`",
    ),
    "misspelt level": (
        "datasets: [{id: a, rights: {license: MIT, care: {label: x, level: pubic}}}]\n",
        "kfm.yml:1: `level` can't be `pubic`; did you mean `public`?",
    ),
    "strange lock": (
        "datasets: [{id: a, lock: nothing}]\n",
        "kfm.yml:1: `lock` must be `dataset` or `domain`, not `nothing`",
    ),
    "short box": ("datasets: [{id: a, bbox: [1, 2]}]\n", "kfm.yml:1: `bbox` must hold 4 values, not 2"),
    "box upside down": (
        "datasets: [{id: a, bbox: [-102, 40, -94, 37]}]\n",
        "kfm.yml:1: `bbox` must be west, south, east, north in degrees",
    ),
    "blank licence": (
        'datasets: [{id: a, rights: {license: " ", care: {label: x}}}]\n',
        "kfm.yml:1: `license` must not be empty",
    ),
    "id with slash": (
        "datasets:\n  - id: ../levels\n",
        "kfm.yml:2: the dataset id `../levels` has characters that are not allowed: letters, digits, `.`, `_` and `-`, "
        "beginning with a letter or digit, at most 100",
    ),
    "id with two dots": (
        "datasets:\n  - id: a..b\n",
        "kfm.yml:2: the dataset id `a..b` has characters that are not allowed: letters, digits, `.`, `_` and `-`, "
        "beginning with a letter or digit, at most 100",
    ),
    "same id": ("datasets:\n  - id: a\n  - id: a\n", "kfm.yml:3: two datasets have the id `a`"),
    "same id but case": (
        "datasets:\n  - id: a\n  - id: A\n",
        "kfm.yml:3: the dataset ids `a` and `A` differ in case only",
    ),
    "environment with space": (
        "environment: my laptop\n",
        "kfm.yml:1: the environment `my laptop` has characters that are not allowed: letters, digits, `.`, `_` and `-`, "
        "beginning with a letter or digit, at most 100",
    ),
    "unknown dataset": (
        GOOD.replace("dataset: levels", "dataset: level"),
        "kfm.yml:6: source `daily` names the dataset `level`, which is not there; did you mean `levels`?",
    ),
    "unknown kind": (
        GOOD.replace("kind: files", "kind: file"),
        "kfm.yml:6: there is no kind of source `file`; did you mean `files`?",
    ),
    "http without url": (
        SOURCE + "kind: http}",
        "kfm.yml:3: source `daily` is of kind `http` and needs `url`",
    ),
    "files without folder": (
        SOURCE + "kind: files}",
        "kfm.yml:3: source `daily` is of kind `files` and needs `folder`",
    ),
    "bucket without bucket": (
        SOURCE + "kind: bucket}",
        "kfm.yml:3: source `daily` is of kind `bucket` and needs `bucket`",
    ),
    "url for files": (
        SOURCE + "kind: files, folder: x, url: 'http://h/'}",
        "kfm.yml:3: `url` does not apply to a source of kind `files`",
    ),
    "url without scheme": (
        SOURCE + "kind: http, url: example.org/x}",
        "kfm.yml:3: `url` must begin with `http://` or `https://` and name a place",
    ),
    "url by ftp": (
        SOURCE + "kind: http, url: 'ftp://example.org/x'}",
        "kfm.yml:3: `url` must begin with `http://` or `https://` and name a place",
    ),
    "bucket without scheme": (
        SOURCE + "kind: bucket, bucket: levels}",
        "kfm.yml:3: `bucket` must begin with `s3://` or `gs://` or `az://` or `file://` and name a place",
    ),
    "bad zone": (
        SOURCE + "kind: files, folder: x, time_zone: America/Chigago}",
        "kfm.yml:3: there is no time zone `America/Chigago`; did you mean `America/Chicago`?",
    ),
    "bad window": (
        SOURCE + "kind: files, folder: x, window: daily}",
        "kfm.yml:3: `window` can't be used: 'daily' is not an ISO 8601 duration",
    ),
    "window of no length": (
        SOURCE + "kind: files, folder: x, window: P0D}",
        "kfm.yml:3: `window` can't be used: 'P0D' has no length",
    ),
    "window that does not tile": (
        SOURCE + "kind: files, folder: x, window: PT7H}",
        "kfm.yml:3: `window` can't be used: 'PT7H' does not divide a day: use a length that does, whole days, "
        "or name a start",
    ),
    "pipeline without function": (
        SOURCE + "kind: files, folder: x, pipeline: tidy.py}",
        "kfm.yml:3: `pipeline` must be `path/to/file.py:function`, not `tidy.py`",
    ),
    "provider of a folder": (
        SOURCE + "kind: files, folder: x, provider: usgs}",
        "kfm.yml:3: `provider` does not apply to a source of kind `files`: nothing outside is called",
    ),
    "provider of several words": (
        SOURCE + 'kind: http, url: "https://example.org/", provider: "US GS"}',
        "kfm.yml:3: `provider` must be one word of plain characters, at most 200",
    ),
    "template of nothing": (
        SOURCE + 'kind: files, folder: x, path: "{window.begin}/x"}',
        "kfm.yml:3: `path` can't be used: {window.begin} in '{window.begin}/x' means nothing here. "
        "Did you mean `window.end`?",
    ),
    "missing contract": (
        SOURCE + "kind: files, folder: x, contract: contracts/none.odcs.yaml}",
        "kfm.yml:3: there is no file `contracts/none.odcs.yaml`",
    ),
    "missing policy": ("policies:\n  - own.cedar\n", "kfm.yml:2: there is no file `own.cedar`"),
    "missing pipeline": (
        SOURCE + "kind: files, folder: x, pipeline: 'gone.py:run'}",
        "kfm.yml:3: there is no file `gone.py`",
    ),
    "sync without members": (
        SOURCE + "kind: sync}",
        "kfm.yml:3: source `daily` is of kind `sync` and needs `members`",
    ),
    "sync of strangers": (
        SOURCE + "kind: sync, members: [daly]}",
        "kfm.yml:3: sync `daily` names the member `daly`, which is not there; did you mean `daily`?",
    ),
    "sync of itself": (
        SOURCE + "kind: sync, members: [daily]}",
        "kfm.yml:3: sync `daily` contains itself",
    ),
    "sync twice": (
        SOURCE + "kind: sync, members: [b, b]}\n  - {id: b, dataset: levels, kind: files, folder: x}",
        "kfm.yml:3: sync `daily` names the member `b` twice",
    ),
    "sync of syncs": (
        SOURCE + "kind: sync, members: [b]}\n  - {id: b, dataset: levels, kind: sync, members: [c]}\n"
        "  - {id: c, dataset: levels, kind: files, folder: x}",
        "kfm.yml:3: sync `daily` has the sync `b` among its members; name the members of `b` instead",
    ),
    "sync past a pipeline": (
        SOURCE + "kind: sync, members: [b]}\n"
        "  - {id: b, dataset: levels, kind: files, folder: x, pipeline: 'p.py:run'}",
        "kfm.yml:3: sync `daily` would publish what its member `b` fetches without running the member's `pipeline`; "
        "give the sync itself a pipeline",
    ),
    "source of what is published": (
        GOOD.replace("folder: incoming", "folder: ./published/"),
        "kfm.yml:6: the folder `./published/` of source `daily` and the local target `published` overlap: "
        "kfm would take in its own output; keep them apart",
    ),
    "source around what is published": (
        GOOD.replace("folder: incoming", "folder: ."),
        "kfm.yml:6: the folder `.` of source `daily` and the local target `published` overlap: "
        "kfm would take in its own output; keep them apart",
    ),
    "source within its own dataset": (
        GOOD.replace("folder: incoming", "folder: published/levels/current/data"),
        "kfm.yml:6: the folder `published/levels/current/data` of source `daily` and the local target `published` "
        "overlap: kfm would take in its own output; keep them apart",
    ),
    "source around the state": (
        GOOD.replace("folder: incoming", "folder: x") + "state: x/state\n",
        "kfm.yml:6: the folder `x` of source `daily` and the state folder `x/state` overlap: "
        "kfm would take in its own output; keep them apart",
    ),
    "source within the state": (
        GOOD.replace("folder: incoming", "folder: .kfm/objects"),
        "kfm.yml:6: the folder `.kfm/objects` of source `daily` and the state folder `.kfm` overlap: "
        "kfm would take in its own output; keep them apart",
    ),
    "target without path": (
        DATASET + "publish: [{kind: local}]",
        "kfm.yml:2: a target of kind `local` needs `path`",
    ),
    "unknown target": (
        DATASET + "publish: [{kind: locl}]",
        "kfm.yml:2: there is no kind of target `locl`; did you mean `local`?",
    ),
    "two targets of one name": (
        DATASET + "publish:\n  - {kind: local, path: a}\n  - {kind: local, path: b}",
        "kfm.yml:4: two targets are called `local`; give one of them a `name`",
    ),
    "bucket target by http": (
        DATASET + "publish: [{kind: s3, url: 'https://h/b'}]",
        "kfm.yml:2: `url` must begin with `s3://` and name a place",
    ),
    "freeze backwards": (
        DATASET + "freezes: [{start: 2026-02-01, end: 2026-01-01, reason: x}]",
        "kfm.yml:2: the freeze window 2026-02-01 … 2026-01-01 ends before it begins",
    ),
    "freeze of strangers": (
        DATASET + "freezes: [{start: 2026-01-01, end: 2026-02-01, reason: x, datasets: [level]}]",
        "kfm.yml:2: the freeze names `level`, which is not one of the datasets; did you mean `levels`?",
    ),
    "no versions kept": ("limits: {versions_kept: 0}\n", "kfm.yml:1: `versions_kept` must be at least 1"),
    "no time for runs": ("limits: {run_seconds: 0}\n", "kfm.yml:1: `run_seconds` must be at least 1"),
    "no time for a source's runs": (
        SOURCE + "kind: files, folder: ., run_seconds: 0}",
        "kfm.yml:3: `run_seconds` must be at least 1",
    ),
    "no lease": ("lease: {seconds: 0}\n", "kfm.yml:1: `seconds` must be from 1 to 86400"),
    "slow heartbeat": (
        "lease: {seconds: 10, heartbeat_seconds: 10}\n",
        "kfm.yml:1: `heartbeat_seconds` must be more than 0 and less than `seconds`",
    ),
    "strange store": (
        "store: mysql://h/db\n",
        "kfm.yml:1: `store` must be `sqlite:PATH`, a `postgresql://` address, `env:NAME` or `file:PATH`",
    ),
    "header secret": (
        SOURCE + "kind: http, url: 'http://h/', headers: {Authorization: Bearer s3cr3t}}",
        "kfm.yml:3: `Authorization` holds a secret; write `env:NAME` or `file:PATH` and keep the secret there",
    ),
    "parameter secret": (
        SOURCE + "kind: http, url: 'http://h/', params: {api_key: s3cr3t}}",
        "kfm.yml:3: `api_key` holds a secret; write `env:NAME` or `file:PATH` and keep the secret there",
    ),
    "address secret": (
        SOURCE + "kind: http, url: 'http://me:s3cr3t@h/'}",
        "kfm.yml:3: `url` holds credentials; give them in `headers`, as `Authorization: env:NAME`",
    ),
    "query secret": (
        SOURCE + "kind: http, url: 'http://h/?token=s3cr3t'}",
        "kfm.yml:3: `url` holds a secret in `token`; move it out, as `token: env:NAME`",
    ),
    "store secret": (
        "store: postgresql://me:s3cr3t@h/db\n",
        "kfm.yml:1: `store` holds credentials; put the whole address into KFM_STORE, or write `env:NAME` or `file:PATH` "
        "and keep the secret there",
    ),
    "option secret": (
        DATASET + "publish: [{kind: s3, url: 's3://b/', options: {secret_access_key: s3cr3t}}]",
        "kfm.yml:2: `secret_access_key` holds a secret; write `env:NAME` or `file:PATH` and keep the secret there",
    ),
    "a machine that needs nothing": (
        "energy: {watts_per_core: 0}\n",
        "kfm.yml:1: `watts_per_core` must be more than 0 and at most 1000",
    ),
    "overhead below nothing": (
        "energy: {overhead: -1.5}\n",
        "kfm.yml:1: `overhead` must be more than 0 and at most 10",
    ),
    "endless carbon": (
        "energy: {carbon_g_per_kwh: 1.0e9}\n",
        "kfm.yml:1: `carbon_g_per_kwh` must be more than 0 and at most 10000",
    ),
    "nowhere": (
        'energy: {region: ""}\n',
        "kfm.yml:1: `region` must be a name of at most 60 letters, digits, spaces, `.,()/-`",
    ),
    "collector that is no address": (
        "lineage: {export: http, url: collector}\n",
        "kfm.yml:1: `url` must begin with `http://` or `https://` and name a place",
    ),
    "collector's key in the file": (
        "lineage: {export: http, url: 'https://example.org', token: s3cr3t}\n",
        "kfm.yml:1: `token` holds a secret; write `env:NAME` or `file:PATH` and keep the secret there",
    ),
    "telemetry's key in the file": (
        "telemetry: {otlp: 'https://example.org', headers: {api-key: s3cr3t}}\n",
        "kfm.yml:1: `api-key` holds a secret; write `env:NAME` or `file:PATH` and keep the secret there",
    ),
    "telemetry to nowhere": (
        "telemetry: {otlp: 'grpc://example.org'}\n",
        "kfm.yml:1: `otlp` must begin with `http://` or `https://` and name a place",
    ),
}

# What `ingest:` says, each under `ingest:` and with what stands after "kfm.yml:2: ".
_RULE = "letters, digits, `.`, `_` and `-`, beginning with a letter or digit, at most 100"
_DATASET_RULE = "lower-case letters, digits and `-`, beginning and ending with a letter or digit, at most 64"
_INGEST = {
    "queue with an odd name": (
        "queues: [{name: a b, kind: folder, path: x}]",
        f"the queue name `a b` is not allowed: {_RULE}",
    ),
    "two queues of one name": (
        "queues: [{name: q, kind: folder, path: x}, {name: q, kind: folder, path: y}]",
        "two queues are called `q`",
    ),
    "two queues of one place": (
        "queues: [{name: p, kind: folder, path: x}, {name: q, kind: folder, path: x/}]",
        "the queue `q` reads what another one reads: one queue for each place",
    ),
    "folder without a path": (
        "queues: [{name: q, kind: folder}]",
        "the queue `q` is of kind `folder` and needs `path`",
    ),
    "sqs without a url": ("queues: [{name: q}]", "the queue `q` is of kind `sqs` and needs `url`"),
    "sqs at no address": (
        "queues: [{name: q, url: q}]",
        "`url` must begin with `http://` or `https://` and name a place",
    ),
    "folder with a url": (
        "queues: [{name: q, kind: folder, path: x, url: 'https://x'}]",
        "`url` does not apply to a queue of kind `folder`",
    ),
    "misspelt option of a queue": (
        "queues: [{name: q, url: 'https://x', options: {regoin: us-east-1}}]",
        "`regoin` is unknown here; did you mean `region`?",
    ),
    "policy that never holds": (
        "policies: [{datasets: ['*']}, {datasets: [gfs]}]",
        "this never holds for `gfs`: policy 1 of the list names it first",
    ),
    "policy for nothing": (
        "policies: [{datasets: []}]",
        "a policy names at least one dataset, or `*` for all others",
    ),
    "generic name that can't be": (
        "generic: [{bucket: b, dataset: My Data}]",
        f"`My Data` can't be the name of a dataset: {_DATASET_RULE}",
    ),
    "bucket with a scheme": (
        "generic: [{bucket: 's3://b', dataset: mine}]",
        "`bucket` is a bucket's name alone; `provider` says whose it is",
    ),
    "bucket twice": (
        "generic: [{bucket: b, dataset: mine}, {bucket: b, dataset: yours}]",
        "the bucket `b` is named twice",
    ),
    "topic that is no ARN": (
        "topics: [NewGOES16Object]",
        "a topic is named by its full ARN: arn:aws:sns:REGION:ACCOUNT:NAME",
    ),
    "options of no bucket": (
        "object_options: {noaa: {region: us-east-1}}",
        "options go under the address of a bucket, such as `s3://name` or `s3://*`",
    ),
    "two replicas of one name": (
        "replicas: [{name: r, url: 'https://x'}, {name: r, url: 'https://y'}]",
        "two replicas are called `r`",
    ),
    "replica's key in the file": (
        "replicas: [{name: r, url: 'https://x', token: s3cr3t}]",
        "`token` holds a secret; write `env:NAME` or `file:PATH` and keep the secret there",
    ),
    "bucket's key in the file": (
        "object_options: {'s3://*': {secret_access_key: s3cr3t}}",
        "`secret_access_key` holds a secret; write `env:NAME` or `file:PATH` and keep the secret there",
    ),
    "empty batch": ("batch: 0", "`batch` must be from 1 to 10000"),
    "endless batch": ("batch: 10001", "`batch` must be from 1 to 10000"),
    "visible at once": ("visibility_seconds: 0", "`visibility_seconds` must be from 1 to 43200"),
    "negative safety": ("safety_seconds: -1", "`safety_seconds` must be from 0 to 43200"),
    "negative window": ("coalesce_seconds: -0.5", "`coalesce_seconds` must be from 0 to 86400"),
    "no replays": ("replays_max: 0", "`replays_max` must be from 1 to 10000000"),
}
NONSENSE |= {name: (f"ingest:\n  {text}\n", f"kfm.yml:2: {said}") for name, (text, said) in _INGEST.items()}
NONSENSE["follows twice"] = (
    SOURCE + "kind: files, folder: x, follows: [gfs, gfs]}",
    "kfm.yml:3: source `daily` follows `gfs` twice",
)
