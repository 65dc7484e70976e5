"""The transcripts of kcp's plugins."""

import plugin_transcripts
import pytest


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(plugin_transcripts.TRANSCRIPTS))
def test_exactly_the_known_steps_of_the_plugins_differ(name: str) -> None:
    outcome, known = plugin_transcripts.replay_fresh(name), plugin_transcripts.known_differences(name)
    assert known
    assert outcome.differing == known, outcome.text(outcome.differing - known)
