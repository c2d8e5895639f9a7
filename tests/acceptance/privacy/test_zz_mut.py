from tests.acceptance.privacy.test_twenty_secrets import *
from tests.acceptance.privacy.test_twenty_secrets import watch, planted
import kfm.engine.artifacts, kfm.engine.endings, kfm.admission.enter, kfm.publish.publisher, kfm.sources.discreet, kfm.objects.watched, kfm.cli.discretion, kfm.cli.streams, kfm.cli.session, kfm.objects.bucket
M={
 "runlog": lambda mp: mp.setattr("kfm.engine.artifacts.RunLog._kept", lambda self, f: kfm.engine.artifacts._loggable(f)),
 "leaks": lambda mp: mp.setattr("kfm.publish.publisher._Collecting._require_discretion", lambda *a: None),
 "discreet": lambda mp: mp.setattr("kfm.sources.discreet.DiscreetSource._cleaned", lambda self, f: f),
 "watched": lambda mp: mp.setattr("kfm.objects.watched.needles", lambda s: ()),
 "stderr": lambda mp: mp.setattr("kfm.cli.streams.clean_line", lambda t: t),
 "json": lambda mp: mp.setattr("kfm.cli.discretion.cleaned", lambda t: t),
 "subject": lambda mp: mp.setattr("kfm.wiring.app.App._discreet", lambda self, t: t),
}
@pytest.mark.parametrize("what", list(M))
def test_mut(watch, monkeypatch, what):
    M[what](monkeypatch)
    reasons = ("--rationale", f"because of {told(SECRETS['rationale'])}", "--ticket", SECRETS["rationale"])
    for form in FORMS:
        watch("run", *form)
    watch("run", "--source", "good", "--force", "--actor", SECRETS["rationale"], *reasons, "--verbose")
    found = watch.look()
    print(what, len(found), list(found)[:3])
    assert found
