"""What to try next, after a search that has found nothing."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from indextables.ops.search import Highlighter

# What other search engines understand, and ours takes for characters of a word.
_QUESTION_MARK: Final = re.compile(r"\w\?\w")
_SLASHES: Final = re.compile(r"(?:^|[\s(:])/\S+/(?:$|[\s)])")
_FIELD: Final = re.compile(r"\w:")


def hints(query: str, columns: Sequence[str], highlighter: Highlighter) -> Iterator[str]:
    """Why a query may have found less than its author expected."""
    if _QUESTION_MARK.search(query):
        yield "? is no wildcard; * stands for any characters (clo*d), and closd~1 forgives one typo"
    if _SLASHES.search(query):
        yield "a regular expression between slashes is not understood; * stands for any characters"
    if not _FIELD.search(query):
        words = [name for name in columns if highlighter.is_text(name)]
        values = [name for name in highlighter.default_columns() if name not in words]
        others = [name for name in columns if name not in (*words, *values)]
        if words:
            yield f"looked for as a word in {', '.join(words)}"
        if values:
            yield (
                f"looked for as a whole value, letter by letter, in {', '.join(values)}; {values[0]}:abc* finds a "
                f"beginning"
            )
        if others:
            yield f"not looked for in {', '.join(others)}, which are asked by their name, as in {others[0]}:VALUE"
