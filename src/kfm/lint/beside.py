"""Words for what goes beside the work: tidying up, comfort, telling, remembering for speed."""

from __future__ import annotations

import re


def _any(words: str) -> str:
    return "(" + "|".join(words.split()) + ")"


# Tidying up goes on whatever happens; an error there would hide the one that matters.
TIDYING = re.compile(
    r"(?i)^_*(force_|safe_|a)?"
    + _any(
        r"""close shutdown disconnect release unlink remove rm kill terminate cancel rollback stop join
        clean clear flush quit logout detach deregister
        un(register|subscribe|bind|install|lock|link|set|watch|mount|load|patch|hook) dispose destroy
        __a?exit__ restore abort delete discard free end(_|$) wait disable drop reset server_close
        teardown tear_down finali[sz]e purge evict expire invalidate exit interrupt send_signal nack
        reject finish done task_done leave prune"""
    )
)
# Comfort: permissions, priorities, terminals, sockets, settings. Done where the platform allows it.
COMFORT = re.compile(
    r"(?i)^_*"
    + _any(
        r"""set(timeout|blocking|sockopt|locale|proctitle|rlimit|recursionlimit|switchinterval|attr)
        set_(?!state|status|result|value|data|item|record|password|permission|acl)\w+ __setattr__ chmod
        fchmod chown utime copystat copymode nice ionice cpu_affinity signal prctl simplefilter
        filterwarnings reconfigure register\w* (re)?install\w* enable\w* patch\w* activate basicConfig
        configure_logging tight_layout collect touch startfile open_new\w* addHandler update_layout
        redraw repaint draw\w* render\w* show\w* display\w* beep focus\w* raise_ lift mkdir makedirs
        symlink fsync seek rewind truncate tell load_dotenv parse_and_bind read_history_file
        write_history_file assert\w* warn\w* lock acquire breakpoint extend_path add_dll_directory use
        mk_?dir\w* make_?dirs?\w*"""
    )
    + "$"
)
# Telling somebody, or remembering for speed: never at the cost of the work.
ON_THE_SIDE = re.compile(
    "(?i)"
    + _any(
        r"""telemetry analytic metric usage track(er|ing)?(_|$) ^_*track trac(e|ing)(r|s)?(_|$) instrument
        observab profil callback hook listener observer subscriber notif (^|_)on_[a-z] progress autolog
        banner heartbeat cache memoi[sz]e memory_usage history breadcrumb stats sentry span audit_log
        diagnos debug monkey patch nowait weakref _count(er)?$ compat plugin extension tooltip
        status_?(bar|line|message) keep_?alive version_?check update_?check (^|_)logs?(_|$) logging
        record_ emit dispatch annotate pbar tqdm report_ (^|_)tags?(_|$) (^|_)attributes?$ _handlers?$"""
    )
)
# The same as the name of a class, a file or a folder, where fewer words are clear.
BESIDE_FILES = re.compile(
    "(?i)"
    + _any(
        r"""telemetry analytic metric usage tracing tracer tracking tracker instrument observab profil
        callback hook autolog monkey sentry patch monitor logger (^|_)log(ging|s)?(_|$)
        (^|_)(exceptions?|errors?)(_|$) updates?_?check check_?updates?"""
    )
)
# The end of something goes on whatever happens; a probe answers by failing; some names promise no more
# than a try.
PROMISES_LITTLE = re.compile(
    r"(?i)(^|_)"
    + _any(
        r"""test a?close shutdown stop terminate clean(up)? clear teardown tear at_?exit exit finali[sz]e
        dispose kill abort cancel interrupt delete reset restore rollback undo uninstall deactivate disconnect
        logout quit release free purge drop discard swallow is has can should check probe detect ping
        try maybe error(s)? failures? exceptions? crash panic best_?effort safe(ly)? quiet(ly)?
        silent(ly)? ignor\w* suppress\w* guess sniff warm warmup prewarm prefetch preload demo example"""
    )
    + "(_|$)"
)
_OBJECT = r"(_(?!from|path|dir|name|id|key|url|config|settings|timeout|error|exception)\w+|(?-i:[A-Z]\w*)|$)"
_WRITING = """write save store upload insert upsert commit persist publish submit ingest transfer executemany
    replicate push export migrate"""
# Its result may be taken, too: it is there for what it leaves behind.
WRITES = re.compile(r"(?i)^_*(a|bulk_|batch_|async_)?" + _any(_WRITING) + _OBJECT)
# Work, if it is called for its effect alone. Whatever has another name may be a look, a probe, a formality.
WORKS = re.compile(
    r"(?i)^_*(a|bulk_|batch_|async_|re)?"
    + _any(
        _WRITING
        + """ load refresh fetch download process run execute create update apply convert transform
        sync import send post put patch copy move rename archive unarchive authenticate configure build
        index train extract parse deliver deploy provision schedule trigger launch compute
        calculate generate merge perform"""
    )
    + _OBJECT
)
# Functions that somebody handed in: their errors are theirs.
SOMEBODY = frozenset("cb fn func callable handler observer validator visitor f".split())
COLLECTS = frozenset("append add extend update insert setdefault appendleft".split())
FETCHES = frozenset("requests httpx urllib urllib3 aiohttp boto3".split())
