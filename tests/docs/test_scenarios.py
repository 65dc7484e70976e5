"""That all scenarios of the original are shown can be checked: the tests that the decision record names exist."""

from __future__ import annotations

import re

from executable import ROOT

RECORD = ROOT / "docs/adr/0018-global-scheduler.md"
ROW = re.compile(r"^\| (\d+) \| [^|]+ \| (.+) \|$", re.MULTILINE)


def test_every_scenario_of_the_global_scheduler_is_shown_by_tests_that_exist() -> None:
    rows = [(int(number), shown) for number, shown in ROW.findall(RECORD.read_text())]
    assert [number for number, _ in rows] == list(range(1, 28))
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for _, shown in rows:
        names = re.findall(r"`(test_\w+)`", shown)
        assert names
        assert [name for name in names if f"def {name}(" not in sources] == []
        assert all((ROOT / path).is_file() for path in re.findall(r"`(bench/\S+)`", shown))
