"""Certificate signing requests."""

import base64
from functools import cache
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from farflung.apis.certificates import RULES, USAGES, prepare_approval, stamp_conditions, validate_approval
from farflung.apis.names import CERTIFICATES_GROUP
from farflung.machinery.errors import Obj

CSR = RULES[CERTIFICATES_GROUP, "CertificateSigningRequest"]
NOW = "2024-01-01T00:00:00Z"
APPROVED: Obj = {"type": "Approved", "status": "True", "reason": "R", "lastUpdateTime": NOW, "lastTransitionTime": NOW}


@cache
def request_text() -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode()


def request(**spec: Any) -> Obj:
    base = {"request": request_text(), "signerName": "example.com/own", "usages": ["client auth"]}
    return {"metadata": {"name": "x"}, "spec": {**base, **spec}, "status": {}}


def told(**spec: Any) -> list[str]:
    return [str(error) for error in CSR.validate(request(**spec))]


def with_status(**status: Any) -> Obj:
    return {**request(), "status": status}


def test_a_client_sets_neither_its_user_nor_its_approval() -> None:
    obj = request(username="root", groups=["system:masters"])
    obj["status"] = {"conditions": [APPROVED]}
    CSR.prepare_create(obj)
    assert obj == request()


def test_a_signed_request_is_fine() -> None:
    assert told(expirationSeconds=600) == []


@pytest.mark.parametrize(
    "encoded",
    ["", "bm90IGEgY3Ny", base64.b64encode(b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n").decode()],
)
def test_a_request_is_a_pem_block_of_its_type(encoded: str) -> None:
    assert told(request=encoded) == [
        f'spec.request: Invalid value: "{encoded}": PEM block type must be CERTIFICATE REQUEST'
    ]


def test_a_forged_or_broken_request_is_refused() -> None:
    pem = base64.b64decode(request_text())
    lines = pem.decode().splitlines()
    der = bytearray(base64.b64decode("".join(lines[1:-1])))
    der[-1] ^= 1
    forged = "\n".join([lines[0], base64.b64encode(bytes(der)).decode(), lines[-1], ""])
    (wrong,) = told(request=base64.b64encode(forged.encode()).decode())
    assert wrong.startswith("spec.request: Invalid value: ")
    broken = base64.b64encode(
        b"-----BEGIN CERTIFICATE REQUEST-----\nAA==\n-----END CERTIFICATE REQUEST-----\n"
    ).decode()
    assert told(request=broken)


def test_many_openings_of_pem_blocks_are_read_once() -> None:
    hostile = base64.b64encode(b"-----BEGIN A-----\n" * 100_000).decode()
    assert len(told(request=hostile)) == 1


def test_usages_are_known_and_come_once() -> None:
    assert told(usages=[]) == ["spec.usages: Required value"]
    supported = ", ".join(f'"{usage}"' for usage in USAGES)
    assert told(usages=["signing", "frobnicate", "signing"]) == [
        f'spec.usages[1]: Unsupported value: "frobnicate": supported values: {supported}',
        'spec.usages[2]: Duplicate value: "signing"',
    ]


@pytest.mark.parametrize(
    ("signer", "message"),
    [
        ("", "Required value"),
        (
            "nodomain",
            'Invalid value: "nodomain": must be a fully qualified domain and path of the form '
            "'example.com/signer-name'",
        ),
        ("com/x", 'Invalid value: "com": should be a domain with at least two segments separated by dots'),
        (
            "kubernetes.io/legacy-unknown",
            'Invalid value: "kubernetes.io/legacy-unknown": the legacy signerName is not allowed via this API version',
        ),
    ],
)
def test_a_signer_is_a_domain_and_a_name(signer: str, message: str) -> None:
    assert told(signerName=signer) == [f"spec.signerName: {message}"]


def test_a_certificate_is_valid_for_ten_minutes_or_more() -> None:
    assert told(expirationSeconds=599) == [
        "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)"
    ]


# --- who may change what --------------------------------------------------------------------------


def test_an_ordinary_update_keeps_spec_and_status() -> None:
    new, old = request(signerName="example.com/other"), with_status(conditions=[APPROVED])
    CSR.prepare_update(new, old)
    assert (new["spec"], new["status"]) == (old["spec"], old["status"])
    assert CSR.validate_update(new, old) == []


def test_an_approval_changes_conditions_alone_and_stamps_them() -> None:
    old = with_status(certificate="AAEC")
    new = {
        **request(signerName="example.com/other"),
        "status": {"conditions": [{"type": "Approved", "status": "True"}]},
    }
    prepare_approval(new, old, NOW)
    assert new["spec"] == old["spec"]
    stamped = {"type": "Approved", "status": "True", "lastUpdateTime": NOW, "lastTransitionTime": NOW}
    assert new["status"] == {"certificate": "AAEC", "conditions": [stamped]}
    assert validate_approval(new, old) == []


def test_a_condition_that_stays_keeps_the_time_of_its_change() -> None:
    old = with_status(conditions=[{**APPROVED, "lastTransitionTime": "2020-01-01T00:00:00Z"}])
    new = with_status(conditions=[{"type": "Approved", "status": "True"}])
    stamp_conditions(new, old, NOW)
    assert new["status"]["conditions"][0]["lastTransitionTime"] == "2020-01-01T00:00:00Z"


def test_a_verdict_is_given_through_approval_only_and_is_final() -> None:
    undecided, approved = with_status(), with_status(conditions=[APPROVED])
    assert [str(error) for error in CSR.validate_status(approved, undecided)] == [
        'status.conditions: Forbidden: updates may not add a condition of type "Approved"'
    ]
    assert [str(error) for error in validate_approval(undecided, approved)] == [
        'status.conditions: Forbidden: updates may not remove a condition of type "Approved"'
    ]
    both = with_status(conditions=[APPROVED, {**APPROVED, "type": "Denied"}])
    assert [str(error) for error in validate_approval(both, approved)] == [
        'status.conditions[1].type: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive'
    ]
    doubtful = with_status(conditions=[{**APPROVED, "status": "False"}])
    assert [str(error) for error in validate_approval(doubtful, undecided)] == [
        'status.conditions[0].status: Unsupported value: "False": supported values: "True"'
    ]


def test_a_certificate_is_set_once_and_through_status_only() -> None:
    pem = base64.b64encode(b"hello").decode()
    issued, pending = with_status(certificate=pem), with_status()
    assert [str(error) for error in CSR.validate_status(issued, pending)] == [
        'status.certificate: Invalid value: "<certificate data>": must contain at least one CERTIFICATE PEM block'
    ]
    assert str(validate_approval(issued, pending)[0]) == (
        "status.certificate: Forbidden: updates may not set certificate content"
    )
    assert str(CSR.validate_status(pending, issued)[0]) == (
        "status.certificate: Forbidden: updates may not modify existing certificate content"
    )
