"""The transcripts of kcp's plugins, where this clone has them beside it."""

import pytest
import plugin_transcripts as transcripts


@pytest.mark.parametrize("name", ["ws.txt", "kcp.txt"])
def test_every_known_difference_of_the_plugins_has_a_reason(name: str) -> None:
    assert transcripts.known_differences(name)


if transcripts.TRANSCRIPTS.is_dir():

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["ws.txt", "kcp.txt"])
    def test_exactly_the_known_steps_of_the_plugins_differ(name: str) -> None:
        assert transcripts.replay_fresh(name).differing == transcripts.known_differences(name)
