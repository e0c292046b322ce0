"""Reports in notebooks: the same words as in the text, as tables and escaped."""

import html
import re

from tilesolve.system.html_report import write_html_report

REPORT = """\
a<b & "c"
predicted: 3 ms

  level   C       A
  L1    1 B  2.5 kB
  L2      -     <&>

last line"""


def words(text):
    return re.sub(r"<[^<>]*>", " ", text).split()


def test_all_that_the_text_says_is_there_and_escaped():
    """Without tags, the words are those of the text, in the same order."""
    found = write_html_report(REPORT)
    assert [html.unescape(word) for word in words(found)] == REPORT.split()
    assert found.count("<table>") == found.count("</table>") == 1
    assert found.count("<tr>") == 3
    assert "<th>level</th><th>C</th><th>A</th>" in found
    assert "<td>2.5 kB</td>" in found
    assert "&lt;&amp;&gt;" in found


def test_rows_that_are_no_table_stay_as_they_are():
    """Lines with other numbers of columns keep their spaces."""
    assert write_html_report("  one  two\n  three") == "<pre>  one  two\n  three</pre>"
    assert write_html_report("") == ""
