from farflung.lib.memory import LONGEST, remember


def test_a_short_text_is_computed_once() -> None:
    asked: list[str] = []

    @remember(10)
    def length(text: str) -> int:
        asked.append(text)
        return len(text)

    assert [length("abc"), length("abc")] == [3, 3]
    assert asked == ["abc"]


def test_a_long_text_is_not_kept() -> None:
    asked: list[int] = []

    @remember(10)
    def length(text: str) -> int:
        asked.append(len(text))
        return len(text)

    long = "x" * (LONGEST + 1)
    assert [length(long), length(long)] == [LONGEST + 1] * 2
    assert asked == [LONGEST + 1] * 2
