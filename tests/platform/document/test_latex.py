"""Tables of a document in LaTeX: what a paper shows is what the page has, and no text of a file is a command."""

import re

import pytest

from ebclab.document.document import ColumnHead, Document, Folded, Remark, Section, Table, numeric
from ebclab.document.text import as_latex, escaped, table_as_latex


def test_a_table_has_the_rules_of_booktabs_intervals_and_minus_signs() -> None:
    rows = (("simclr_2", numeric("44.6", 44.6, ("(43.6 to 45.6)", "-0.5 points"))), ("b & c", numeric("9 %")))
    assert table_as_latex(Table("kNN", ("method", "accuracy"), rows)).splitlines() == [
        r"\begin{tabular}{lr}",
        r"\toprule",
        r"method & accuracy \\",
        r"\midrule",
        r"simclr\_2 & 44.6 (43.6 to 45.6); $-$0.5 points \\",
        r"b \& c & 9 \% \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


@pytest.mark.parametrize("cell", ["[0.1, 0.2]", "*", "\x00 [x]"])
def test_a_first_cell_is_no_option_of_the_command_before_it(cell: str) -> None:
    lines = table_as_latex(Table("", (cell, "[head]"), ((cell, "[x]"),))).splitlines()
    assert lines[2] == f"{{}}{escaped(cell)} & [head] \\\\"
    assert lines[4] == f"{{}}{escaped(cell)} & [x] \\\\"


def test_headings_over_several_columns_span_them() -> None:
    heads = ("method", ColumnHead("kNN", "16"), ColumnHead("linear", "16"), "", "")
    lines = table_as_latex(Table("", heads, (("a", 1, 2, 3, 4),))).splitlines()
    assert lines[2:4] == [r" & \multicolumn{2}{c}{16} & & \\", r"method & kNN & linear &  &  \\"]
    assert [line.count("&") + line.count("multicolumn{2}") for line in lines[2:4]] == [4, 4]


@pytest.mark.parametrize("text", [r"\input{/etc/passwd}", "$x_1^2$ ~ #3 {", "a%b\\\\", "line\nbreak\x00"])
def test_no_text_is_a_command_a_comment_or_another_line(text: str) -> None:
    line = escaped(text)
    own = re.sub(r"\\(?:text(?:backslash|asciitilde|asciicircum)\{\}|[&%$#_{}])", "", line)
    assert not set(own) & set("\\%$#_{}^~&\n\x00")


def test_a_document_has_every_table_with_rows_folded_ones_too_and_nothing_without_any() -> None:
    full, empty = Table("inner\n%", ("x",), ((1,),)), Table("empty", ("x",), ())
    document = Document("t", "card", "b", (Section("Numbers", (Folded("f", (full,)), empty, full)),), "")
    text = as_latex(document)
    assert text.count(r"\begin{tabular}") == text.count("% Numbers / inner %\n") == 2
    assert "empty" not in text
    assert as_latex(Document("t", "card", "b", (Section("None", (Remark("x"), empty)),), "")) == ""
