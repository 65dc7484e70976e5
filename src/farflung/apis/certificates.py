"""CertificateSigningRequests: the resource, its validation and its printer columns.

`prepare_create` removes `spec.username`, `uid`, `groups` and `extra`; the create handler then sets them from the
authenticated user.  The subresource `approval` uses `prepare_approval` and `validate_approval`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from farflung.apis.names import CERTIFICATES_GROUP
from farflung.apis.printers import AGE, NAME, NOTHING, described, field, part, printer
from farflung.apis.resource import CHANGE, Group, Subresource, status, text
from farflung.apis.rows import (
    Always,
    Check,
    Default,
    Defaults,
    Each,
    Enum,
    Minimum,
    Pointer,
    Refused,
    Required,
    Unique,
    Unless,
    Validation,
    When,
)
from farflung.apis.validation import Errors, Rules, keeps
from farflung.machinery import names, times
from farflung.machinery.errors import (
    FieldError,
    Obj,
    duplicate,
    field_forbidden,
    go_quote,
    invalid_value,
    not_supported,
    required,
    too_long,
)


def request_condition(request: Obj) -> str:
    status = part(request, "status")
    types = {condition.get("type") for condition in status.get("conditions") or ()}
    words = ["Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"]
    if "Failed" in types:
        words.append("Failed")
    if status.get("certificate"):
        words.append("Issued")
    return ",".join(words)


def duration_text(seconds: int | None) -> str:
    return NOTHING if seconds is None else times.human(timedelta(seconds=seconds))


CERTIFICATE_SIGNING_REQUESTS: Final = printer(
    "certificates.v1.CertificateSigningRequest",
    NAME,
    AGE,
    field("SignerName", "spec.signerName", show=lambda name: name or NOTHING),
    described("Requestor", "spec.request", lambda request: part(request, "spec").get("username", "")),
    field("RequestedDuration", "spec.expirationSeconds", None, duration_text),
    described("Condition", "status.conditions", request_condition),
)


# --- Certificate signing requests -----------------------------------------------------------------

CERTIFICATES: Final = Group(CERTIFICATES_GROUP, "v1", "io.k8s.api.certificates.v1.")

RESOURCES: Final = (
    CERTIFICATES.stored(
        "certificatesigningrequests",
        "CertificateSigningRequest",
        printer=CERTIFICATE_SIGNING_REQUESTS,
        namespaced=False,
        short_names=("csr",),
        subresources=(
            Subresource("approval", CHANGE, "CertificateSigningRequest"),
            status("CertificateSigningRequest"),
        ),
        selectable={"spec.signerName": text("spec", "signerName")},
    ),
)


REQUESTER: Final = ("username", "uid", "groups", "extra")
SHORTEST_VALIDITY: Final = 600
LEGACY_SIGNER: Final = "kubernetes.io/legacy-unknown"
DOMAIN_LENGTH: Final = 253
VERDICTS: Final = ("Approved", "Denied")
FINAL: Final = (*VERDICTS, "Failed")  #: conditions that are there or not, and never go away
STATUSES: Final = ("False", "True", "Unknown")
USAGES: Final = (
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
)
BEGIN: Final = "-----BEGIN "
END: Final = "-----END "
DASHES: Final = "-----"


def prepare_request(obj: Obj) -> None:
    obj["status"] = {}
    spec = obj.get("spec") or {}
    for member in REQUESTER:
        spec.pop(member, None)


def prepare_status(new: Obj, old: Obj) -> None:
    """Everything but the verdict, which is not this subresource's to change."""
    new["spec"] = old.get("spec", {})


def prepare_approval(new: Obj, old: Obj, now: str) -> None:
    """For `/approval`: nothing changes but the conditions."""
    conditions = conditions_of(new)
    new["spec"] = old.get("spec", {})
    new["status"] = {**(old.get("status") or {}), "conditions": conditions}
    if not conditions:
        del new["status"]["conditions"]
    stamp_conditions(new, old, now)


def stamp_conditions(new: Obj, old: Obj, now: str) -> None:
    """Give conditions the times that their author left out."""
    known = {condition.get("type"): condition for condition in conditions_of(old)}
    for condition in conditions_of(new):
        if condition.get("lastUpdateTime") is None:
            condition["lastUpdateTime"] = now
        before = known.get(condition.get("type"))
        if condition.get("lastTransitionTime") is None:
            unchanged = before is not None and before.get("status") == condition.get("status")
            kept = before.get("lastTransitionTime") if before is not None and unchanged else None
            condition["lastTransitionTime"] = kept or now


def conditions_of(obj: Obj) -> list[Obj]:
    conditions: list[Obj] = (obj.get("status") or {}).get("conditions") or []
    return conditions


# --- the request ----------------------------------------------------------------------------------


def _check_request(spec: Obj, path: str, errors: Errors) -> None:
    if wrong := _not_a_request(spec.get("request") or ""):
        errors.append(invalid_value(f"{path}.request", spec.get("request"), wrong))


def _not_a_request(encoded: str) -> str:
    """The error of a base64 text that should hold a PEM certificate request."""
    try:
        text = base64.b64decode(encoded)
    except binascii.Error as error:
        return str(error)
    kind, block = next(_pem_blocks(text.decode("latin-1")), ("", ""))
    if kind != "CERTIFICATE REQUEST":
        return "PEM block type must be CERTIFICATE REQUEST"
    try:
        signed = x509.load_pem_x509_csr(block.encode("latin-1")).is_signature_valid
    except (ValueError, UnsupportedAlgorithm, InvalidSignature):
        return "asn1: structure error: not a certificate request"
    return "" if signed else "x509: signature check failed"


def _pem_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Types and whole texts of the PEM blocks.  One pass, whatever the text."""
    position = 0
    while (start := text.find(BEGIN, position)) >= 0:
        stop = text.find(END, start)
        if stop < 0:
            return
        position = stop + len(END)
        kind = text[start + len(BEGIN) : stop].partition(DASHES)[0]
        closing = f"{kind}{DASHES}"
        if text.startswith(closing, position):
            yield kind, text[start : position + len(closing)]


def check_signer(signer: str, field: str, errors: Errors) -> None:
    """`example.com/signer-name`"""
    if signer.count("/") != 1:
        detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        errors.append(invalid_value(field, signer, detail))
        return
    domain, path = signer.split("/")
    if names.size(domain) > DOMAIN_LENGTH:
        errors.append(too_long(field, DOMAIN_LENGTH))
    labels = domain.split(".")
    _check_parts(domain, labels, names.dns_label, field, errors)
    if len(labels) < 2:
        detail = "should be a domain with at least two segments separated by dots"
        errors.append(invalid_value(field, domain, detail))
    _check_parts(path, path.split("."), names.dns_subdomain, field, errors)
    longest = DOMAIN_LENGTH + names.DNS_SUBDOMAIN_LENGTH + 1
    if names.size(signer) > longest:
        errors.append(too_long(field, longest))


def _check_parts(whole: str, parts: list[str], check: names.Check, field: str, errors: Errors) -> None:
    """Reports only the first invalid part."""
    for one in parts:
        if wrong := check(one):
            errors += [invalid_value(field, whole, f"validating label {go_quote(one)}: {text}") for text in wrong]
            return


# --- conditions and certificate -------------------------------------------------------------------


def _check_conditions(request: Obj, path: str, errors: Errors) -> None:
    seen: set[str] = set()
    for index, condition in enumerate(conditions_of(request)):
        path = f"status.conditions[{index}]"
        kind, status = condition.get("type", ""), condition.get("status", "")
        if not kind:
            errors.append(required(f"{path}.type"))
        allowed = ("True",) if kind in FINAL else STATUSES
        if not status:
            errors.append(required(f"{path}.status"))
        elif status not in allowed:
            errors.append(not_supported(f"{path}.status", status, allowed))
        if kind in VERDICTS and seen.intersection(VERDICTS) - {kind}:
            detail = "Approved and Denied conditions are mutually exclusive"
            errors.append(invalid_value(f"{path}.type", kind, detail))
        if kind in seen:
            errors.append(duplicate(f"{path}.type", kind))
        seen.add(kind)


def _validate_change(new: Obj, old: Obj, *, verdict: bool, certificate: bool) -> list[FieldError]:
    """Mutable fields by subresource: conditions through `approval`, the certificate through `status`."""
    errors: Errors = []
    if conditions_of(new) != conditions_of(old):
        _check_conditions(new, "", errors)
    for kind in FINAL:
        if len(_of_type(new, kind)) < len(_of_type(old, kind)):
            detail = f"updates may not remove a condition of type {go_quote(kind)}"
            errors.append(field_forbidden("status.conditions", detail))
    if not verdict:
        _check_verdict_unchanged(new, old, errors)
    _check_certificate(new, old, certificate, errors)
    return errors


def _check_verdict_unchanged(new: Obj, old: Obj, errors: Errors) -> None:
    for kind in VERDICTS:
        after, before = _of_type(new, kind), _of_type(old, kind)
        if len(after) > len(before):
            detail = f"updates may not add a condition of type {go_quote(kind)}"
            errors.append(field_forbidden("status.conditions", detail))
        elif len(after) == len(before) and after != before:
            detail = f"updates may not modify a condition of type {go_quote(kind)}"
            errors.append(field_forbidden("status.conditions", detail))


def _check_certificate(new: Obj, old: Obj, allowed: bool, errors: Errors) -> None:
    after = (new.get("status") or {}).get("certificate")
    before = (old.get("status") or {}).get("certificate")
    if after == before:
        return
    if not allowed:
        errors.append(field_forbidden("status.certificate", "updates may not set certificate content"))
    elif before:
        errors.append(field_forbidden("status.certificate", "updates may not modify existing certificate content"))
    if after and (wrong := _not_certificates(after)):
        errors.append(invalid_value("status.certificate", "<certificate data>", wrong))


def _not_certificates(encoded: str) -> str:
    try:
        text = base64.b64decode(encoded).decode("latin-1")
    except binascii.Error as error:
        return str(error)
    blocks = list(_pem_blocks(text))
    if not blocks:
        return "must contain at least one CERTIFICATE PEM block"
    for kind, block in blocks:
        if kind != "CERTIFICATE":
            return f"only CERTIFICATE PEM blocks are allowed, found {go_quote(kind)}"
        try:
            x509.load_pem_x509_certificate(block.encode("latin-1"))
        except ValueError:
            return "x509: malformed certificate"
    return ""


def _of_type(obj: Obj, kind: str) -> list[Obj]:
    return [condition for condition in conditions_of(obj) if condition.get("type") == kind]


REQUEST: Final = Validation(
    Always("spec", _check_request, zero={}),
    Required("spec.usages"),
    Each("spec.usages", Enum(*USAGES)),
    Each("spec.usages", Unique()),
    When(
        "spec.signerName",
        LEGACY_SIGNER,
        Always("spec.signerName", Refused("the legacy signerName is not allowed via this API version")),
    ),
    Unless("spec.signerName", LEGACY_SIGNER, Required("spec.signerName", check_signer)),
    Pointer(
        "spec.expirationSeconds",
        Minimum(SHORTEST_VALIDITY, "may not specify a duration less than 600 seconds (10 minutes)"),
    ),
    Check(_check_conditions),
)
validate_approval: Final = partial(_validate_change, verdict=True, certificate=False)

RULES: Final[Mapping[tuple[str, str], Rules]] = {
    (CERTIFICATES_GROUP, "CertificateSigningRequest"): Rules(
        name=names.path_segment,
        default=Defaults(Default("status", {})),
        prepare_create=prepare_request,
        prepare_update=keeps("spec", "status"),
        prepare_status=prepare_status,
        validate=REQUEST,
        validate_update=partial(_validate_change, verdict=False, certificate=False),
        validate_status=partial(_validate_change, verdict=False, certificate=True),
    ),
}
