"""Sentences in the reader's language: written in English where they are used, with their Chinese in one table."""

from __future__ import annotations

from typing import Any

from tensor_cast.errors import ModelingError

LANGUAGES = ("en", "zh")
_HTML_NAMES = {"en": "en", "zh": "zh-CN"}


class Language:
    """``language("{count} calls", count=3)``: the sentence in this language, its figures filled in.

    Raises:
        ModelingError: there is no such language.
    """

    def __init__(self, name: str) -> None:
        if name not in LANGUAGES:
            raise ModelingError(f"Reports are written in {' and '.join(LANGUAGES)}, not in {name!r}.")
        self.name = name
        self._sentences: dict[str, str] = {}
        if name == "zh":
            from tensor_cast.evaluation.chinese import SENTENCES

            self._sentences = SENTENCES

    def __call__(self, sentence: str, **values: Any) -> str:
        """The sentence, translated where the language is not English."""
        template = self._sentences[sentence] if self._sentences else sentence
        return template.format(**values) if values else template

    def known(self, word: str) -> str:
        """A name that comes from data, such as a bound or a parameter: translated where there is a translation."""
        return self._sentences.get(word, word)

    def warning(self, sentence: str) -> str:
        """A warning of the simulator's; English where its Chinese is not known."""
        if self.name == "en":
            return sentence
        from tensor_cast.evaluation.chinese_warnings import translated

        return translated(sentence)

    @property
    def html_name(self) -> str:
        """The language as HTML names it."""
        return _HTML_NAMES[self.name]
