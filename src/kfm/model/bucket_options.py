"""The options that the client of a bucket takes, by the scheme of its address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, get_args
from urllib.parse import urlsplit

from kfm.model.quantities import did_you_mean

# The client does not refuse a name that it does not know: it panics. docs/reference/bucket-options.md.
_FLAGS = {
    "s3": "disable_bulk_delete disable_tagging imdsv1_fallback request_payer s3_express skip_signature "
    "sse_bucket_key_enabled unsigned_payload virtual_hosted_style_request",
    "gs": "skip_signature",
    "az": "disable_tagging skip_signature use_azure_cli use_emulator use_fabric_endpoint",
}
_TEXTS = {
    "s3": "access_key_id checksum_algorithm conditional_put container_authorization_token_file "
    "container_credentials_full_uri container_credentials_relative_uri copy_if_not_exists default_region "
    "metadata_endpoint region role_arn role_session_name secret_access_key server_side_encryption "
    "session_token sse_customer_key_base64 sse_kms_key_id token web_identity_token_file",
    "gs": "application_credentials bearer_token service_account service_account_key service_account_path",
    "az": "account_key account_name authority_host client_id client_secret credential_type encryption_key "
    "federated_token_file msi_endpoint msi_resource_id object_id sas_key tenant_id token",
}
_ADDRESSES = {"s3": "endpoint endpoint_url", "gs": "base_url", "az": "endpoint"}
PREFIXES = {"s3": "aws_", "gs": "google_", "az": "azure_"}
ALLOW_HTTP = "allow_http"  # of the connection, not of the store
LATEST = "latest"  # an option of a target, not of its client: what it has by name
LatestContents = Literal["documents", "files", "never"]
# Of Azure's, those whose longer form has another prefix.
_STORAGE = frozenset("account_key account_name encryption_key sas_key token use_emulator".split())


def client_options(options: Mapping[str, str]) -> dict[str, str]:
    """Those of a bucket target's options that are its client's."""
    return {name: value for name, value in options.items() if name != LATEST}


def latest_problem(options: Mapping[str, str]) -> str | None:
    """What is wrong with a bucket target's `latest`."""
    known = get_args(LatestContents)
    return None if options.get(LATEST, known[0]) in known else f"`{LATEST}` is one of {', '.join(known)}"


def options_of(scheme: str) -> dict[str, str]:
    """Each option, in its short form → `flag`, `text` or `address`."""
    if scheme not in PREFIXES:
        return {}
    tables = (("text", _TEXTS), ("address", _ADDRESSES), ("flag", _FLAGS))
    found = {name: kind for kind, table in tables for name in table[scheme].split()}
    return dict(sorted({**found, ALLOW_HTTP: "flag"}.items()))


def long_form(scheme: str, name: str) -> str:
    """The name that the provider's own tools know it by."""
    if name == ALLOW_HTTP:
        return name
    return f"azure_storage_{name}" if scheme == "az" and name in _STORAGE else PREFIXES[scheme] + name


def option_problems(address: str, options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Name and sentence of each option that the bucket's client would not understand."""
    scheme = address.partition("://")[0]
    known = options_of(scheme)
    forms = {form: kind for name, kind in known.items() for form in (name, long_form(scheme, name))}
    for name, value in options.items():
        kind = forms.get(name.lower())
        if not known:
            yield name, f"`{name[:40]}` does not apply to a place that begins with `{scheme}://`"
        elif kind is None:
            hint = did_you_mean(name.lower(), sorted(forms))
            yield name, f"a bucket of `{scheme}://` has no option `{name[:40]}`{hint}"
        elif problem := _value_problem(name, kind, value):
            yield name, problem


def _value_problem(name: str, kind: str, value: str) -> str | None:
    if value.startswith(("env:", "file:")):
        return None
    if kind == "flag" and value.lower() not in ("true", "false"):
        return f"`{name}` must be `true` or `false`"
    if kind == "address" and not _is_web_address(value):
        return f"`{name}` must begin with `http://` or `https://` and name a place"
    return None


def _is_web_address(value: str) -> bool:
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
