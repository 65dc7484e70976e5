from farflung.lib.memory import MAX_TEXT, remember


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

    long = "x" * (MAX_TEXT + 1)
    assert [length(long), length(long)] == [MAX_TEXT + 1] * 2
    assert asked == [MAX_TEXT + 1] * 2


def test_keyword_arguments_are_told_apart() -> None:
    @remember(10)
    def told(text: str, *, twice: bool = False) -> str:
        return text * 2 if twice else text

    assert [told("a"), told("a", twice=True), told("a", twice=False), told("a", twice=True)] == ["a", "aa", "a", "aa"]


def test_no_more_texts_are_kept_than_the_limit() -> None:
    asked: list[str] = []

    @remember(2)
    def length(text: str) -> int:
        asked.append(text)
        return len(text)

    assert [length(text) for text in ("a", "b", "c", "c", "a")] == [1] * 5
    assert asked == ["a", "b", "c", "a"]
