"""Prompt templates in each language, and what they must not reach."""

from __future__ import annotations

import re
import sys
from typing import Literal

import pytest

from lightstream.schemas.distribution import install_hint
from lightstream.schemas.types import PromptTemplate


def test_prompts_in_each_language() -> None:
    assert PromptTemplate(template="{a} {b:.1f}").format(a="x", b=2) == "x 2.0"
    loop = "{% for x in items %}{{ x }},{% endfor %}"
    assert PromptTemplate(template=loop, engine="jinja").format(items=[1, 2]) == "1,2,"
    with pytest.raises(KeyError):
        PromptTemplate(template="{a}").format()


def test_a_prompt_in_poml() -> None:
    prompt = PromptTemplate(template="<poml><task>Say {{ word }}.</task></poml>", engine="poml")
    assert prompt.format(word="hi").split() == ["#", "Task", "Say", "hi."]


@pytest.mark.parametrize(("engine", "module"), [("jinja", "jinja2.sandbox"), ("poml", "poml")])
def test_an_engine_that_is_not_installed_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, engine: Literal["jinja", "poml"], module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(NotImplementedError, match=re.escape(install_hint("prompts"))):
        PromptTemplate(template="x", engine=engine).format()


def test_an_f_string_prompt_cannot_reach_pythons_internals() -> None:
    for hole in ("{a.__class__}", "{a[0]._x}", "{a.real.__class__.__mro__}"):
        with pytest.raises(ValueError, match="private"):
            PromptTemplate(template=hole).format(a=[1])
    assert PromptTemplate(template="{a[_x]} {b.real:>3} {{}}").format(a={"_x": 1}, b=2) == "1   2 {}"


def test_a_jinja_prompt_cannot_reach_pythons_internals() -> None:
    prompt = PromptTemplate(template="{{ ().__class__.__base__.__subclasses__() }}", engine="jinja")
    with pytest.raises(Exception, match="unsafe"):  # the sandbox's error
        prompt.format()
