"""Jobs, CronJobs and the syntax of schedules."""

from typing import Any

import pytest

from farflung.apis.workloads.batch import CRON_JOB_RULES, JOB_RULES, wrong_schedule
from farflung.machinery.errors import Obj

UID = "0c4f6f1e-0000-0000-0000-000000000001"


def template(restart: str = "Never") -> Obj:
    return {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": restart}}


def job(**spec: Any) -> Obj:
    return {"metadata": {"name": "j1", "uid": UID}, "spec": {"template": template(), **spec}}


def cron_job(**spec: Any) -> Obj:
    inner = {"spec": {"template": template("OnFailure")}}
    return {"metadata": {"name": "cj"}, "spec": {"schedule": "*/5 * * * *", "jobTemplate": inner, **spec}}


def created(obj: Obj) -> list[str]:
    JOB_RULES.default(obj)
    JOB_RULES.prepare_create(obj)
    return [str(error) for error in JOB_RULES.validate(obj)]


def said(obj: Obj) -> list[str]:
    CRON_JOB_RULES.default(obj)
    return [str(error) for error in [*CRON_JOB_RULES.validate(obj), *CRON_JOB_RULES.validate_create(obj)]]


def test_a_job_selects_its_pods_by_its_uid() -> None:
    obj = job()
    assert created(obj) == []
    labels = {
        "batch.kubernetes.io/controller-uid": UID,
        "batch.kubernetes.io/job-name": "j1",
        "controller-uid": UID,
        "job-name": "j1",
    }
    assert obj["metadata"]["labels"] == labels
    assert obj["spec"].pop("template")["metadata"] == {"labels": labels}
    assert obj["spec"] == {
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "completions": 1,
        "manualSelector": False,
        "parallelism": 1,
        "podReplacementPolicy": "TerminatingOrFailed",
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": UID}},
        "suspend": False,
    }
    assert obj["status"] == {}


def test_a_job_with_parallelism_alone_is_a_queue_without_end() -> None:
    obj = job(parallelism=2)
    assert created(obj) == []
    assert "completions" not in obj["spec"]


def test_a_job_may_select_by_hand() -> None:
    own = template()
    own["metadata"] = {"labels": {"a": "b"}}
    obj = job(manualSelector=True, selector={"matchLabels": {"a": "b"}}, template=own)
    assert created(obj) == []
    assert obj["metadata"]["labels"] == {"a": "b"}


def test_a_selector_by_hand_must_be_asked_for() -> None:
    assert created(job(selector={"matchLabels": {"a": "b"}})) == [
        'spec.selector: Invalid value: {"matchLabels":{"batch.kubernetes.io/controller-uid":"' + UID + '","a":"b"}}: '
        "`selector` not auto-generated",
        'spec.template.metadata.labels: Invalid value: {"batch.kubernetes.io/job-name":"j1","job-name":"j1",'
        '"batch.kubernetes.io/controller-uid":"' + UID + '","controller-uid":"' + UID + '"}: `selector` does not match '
        "template `labels`",
    ]


def test_pods_of_a_job_end() -> None:
    assert created(job(template=template("Always"))) == [
        'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    ]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            {"completionMode": "Indexed", "parallelism": 1},
            "spec.completions: Required value: when completion mode is Indexed",
        ),
        (
            {"completionMode": "Often"},
            'spec.completionMode: Unsupported value: "Often": supported values: "NonIndexed", "Indexed"',
        ),
        (
            {"podFailurePolicy": {"rules": [{"onExitCodes": {"operator": "In", "values": [1]}}]}},
            'spec.podFailurePolicy.rules[0].action: Required value: valid values: ["Count" "FailIndex" "FailJob" '
            '"Ignore"]',
        ),
        (
            {"completionMode": "Indexed", "completions": 1, "backoffLimitPerIndex": 1, "maxFailedIndexes": 2},
            "spec.maxFailedIndexes: Invalid value: 2: must be less than or equal to completions",
        ),
        ({"backoffLimit": -1}, "spec.backoffLimit: Invalid value: -1: must be greater than or equal to 0"),
        (
            {"podFailurePolicy": {"rules": [{"action": "Ignore"}]}},
            'spec.podFailurePolicy.rules[0]: Invalid value: "": specifying one of OnExitCodes and OnPodConditions is '
            "required",
        ),
    ],
)
def test_what_is_wrong_with_a_job_is_said_as_kubernetes_says_it(spec: Obj, why: str) -> None:
    assert created(job(**spec)) == [why]


def test_the_template_of_a_job_stays() -> None:
    old, new = job(), job()
    for obj in (old, new):
        assert created(obj) == []
    new["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    (error,) = JOB_RULES.validate_update(new, old)
    assert (error.field, error.detail) == ("spec.template", "field is immutable")


def test_a_suspended_job_may_still_move() -> None:
    old, new = job(suspend=True), job(suspend=True)
    for obj in (old, new):
        assert created(obj) == []
    new["spec"]["template"]["spec"]["nodeSelector"] = {"a": "b"}
    assert JOB_RULES.validate_update(new, old) == []


def test_a_cron_job_gets_its_defaults_and_its_jobs_get_theirs_later() -> None:
    obj = cron_job()
    assert said(obj) == []
    inner = obj["spec"].pop("jobTemplate")
    assert obj["spec"] == {
        "schedule": "*/5 * * * *",
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
    }
    assert inner["metadata"] == {}
    assert set(inner["spec"]) == {"template"}
    assert inner["spec"]["template"]["metadata"] == {}
    assert inner["spec"]["template"]["spec"]["schedulerName"] == "default-scheduler"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            {"schedule": "not a schedule"},
            'spec.schedule: Invalid value: "not a schedule": expected exactly 5 fields, found 3: [not a schedule]',
        ),
        (
            {"schedule": "TZ=UTC 0 * * * *"},
            'spec.schedule: Invalid value: "TZ=UTC 0 * * * *": cannot use TZ or CRON_TZ in schedule, use '
            "timeZone field "
            "instead",
        ),
        (
            {"timeZone": "Atlantis/Capital"},
            'spec.timeZone: Invalid value: "Atlantis/Capital": unknown time zone Atlantis/Capital',
        ),
        (
            {"timeZone": "../../etc/passwd"},
            'spec.timeZone: Invalid value: "../../etc/passwd": unknown time zone ../../etc/passwd',
        ),
        (
            {"concurrencyPolicy": "Maybe"},
            'spec.concurrencyPolicy: Unsupported value: "Maybe": supported values: "Allow", "Forbid", "Replace"',
        ),
        (
            {"jobTemplate": {"spec": {"template": template(), "selector": {}}}},
            "spec.jobTemplate.spec.selector: Invalid value: {}: `selector` will be auto-generated",
        ),
    ],
)
def test_what_is_wrong_with_a_cron_job_is_said_as_kubernetes_says_it(spec: Obj, why: str) -> None:
    assert said(cron_job(**spec)) == [why]


def test_the_name_of_a_cron_job_leaves_room_for_its_jobs() -> None:
    obj = cron_job(timeZone="Europe/Berlin")
    obj["metadata"]["name"] = "x" * 53
    assert said(obj) == [f'metadata.name: Invalid value: "{"x" * 53}": must be no more than 52 characters']


@pytest.mark.parametrize(
    "schedule",
    ["* * * * *", "*/5 0-3,7 1 jan-MAR mon", "0 0 ? * 0", "@hourly", "@every 1h30m", "59 23 31 12 6", "5/15 * * * *"],
)
def test_good_schedules_are_good(schedule: str) -> None:
    assert wrong_schedule(schedule) == ""


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("*/2/3 * * * *", "too many slashes: */2/3"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        ("@never", "unrecognized descriptor: @never"),
        ("@every x", 'failed to parse duration @every x: time: invalid duration "x"'),
    ],
)
def test_bad_schedules_are_explained(schedule: str, why: str) -> None:
    assert wrong_schedule(schedule) == why


def test_a_long_duration_is_refused_at_once() -> None:
    assert wrong_schedule("@every " + "1" * 1_000_000).startswith("failed to parse duration @every 1111")
