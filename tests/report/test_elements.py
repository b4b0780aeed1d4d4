"""Elements: text is escaped once, markup is not."""

from hypothesis import given
from hypothesis import strategies as st

from html_outline import Outline
from isolatent.report.elements import Markup, element, facts_list, join

# Characters that HTML allows and a parser leaves as they are.
texts = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E) | st.sampled_from("äλ²🙂"))


@given(texts, texts)
def test_a_parser_reads_what_was_given(content, attribute):
    (read,) = Outline(element("p", content, title=attribute)).elements
    assert (read["text"], read["attributes"]["title"]) == (content, attribute)


@given(texts)
def test_markup_is_escaped_once(text):
    assert element("p", element("b", text)) == f"<p>{element('b', text)}</p>"
    assert join(text, text) == join(text) + join(text)


@given(st.text())
def test_forbidden_characters_are_replaced(text):
    html = element("p", text, title=text)
    assert isinstance(html, Markup)
    html.encode("utf-8")
    assert "\0" not in html


def test_missing_content_is_left_out():
    assert element("p", None, "a", class_=None, hidden=True) == "<p hidden>a</p>"
    assert facts_list(()) is None
