"""What notebooks show of a plan."""

import html
import re

import tilesolve


def test_notebooks_show_the_report_as_tables():
    """All words of the report, escaped, and all of its tables as ones."""
    plan = tilesolve.plan("ab-ac-cb", "a=72 b=60 c=48", "i7-6700k")
    text = plan._repr_html_()
    words = [html.unescape(word) for word in re.sub("<[^<>]*>", " ", text).split()]
    assert words == str(plan).split()
    assert text.count("<table>") == 4
    assert text.count("<pre>") == 1
    for head in ("tile", "around it", "level", "together", "held by"):
        assert f"<th>{head}</th>" in text
