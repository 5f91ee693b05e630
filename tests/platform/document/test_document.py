"""One document, all its outputs: a page, Markdown, CSV, LaTeX and a terminal hold the same text, and none is obeyed."""

import csv
import io
import json
import re
import unicodedata

import pytest
from hostile_text import HOSTILE, unseen
from pages import Page

from ebclab.document.document import (
    Block,
    CellValue,
    ColumnHead,
    Command,
    Document,
    Facts,
    Folded,
    Items,
    MarkedTable,
    Picture,
    Plot,
    Plots,
    Remark,
    RichText,
    Section,
    Table,
    Tiles,
    numeric,
)
from ebclab.document.html import as_page, in_script
from ebclab.document.text import (
    as_csv,
    as_latex,
    as_markdown,
    escape_markdown,
    escaped,
    print_blocks,
    table_as_latex,
    table_as_markdown,
)
from ebclab.formatting import visible

OBEYED_BY_A_PAGE = ("script", "image", "attribute", "template", "comment", "cell", "heading", "clear", "bidi")
GROUPED = Table(
    "grouped",
    (
        ColumnHead("row"),
        *(ColumnHead(text, above, "here: digits") for above in ("kNN, %", "ESS") for text in ("ours", "paper")),
    ),
    (
        (RichText("warm", ("(simclr)",)), numeric("62.0", 62.0, ("(61.0 to 63.0)", "2 seeds")), 50, 0.125, None),
        ("cold", 40, None, None, None),
    ),
)


def document(text: str = "text") -> Document:
    """A document with every kind of block, all of whose text is ``text``."""
    plot = Plot(text, text, {"data": [{"name": text}], "layout": {}}, 300)
    rich = RichText(text, (text,), 1.0, text, is_number=True, is_strong=True, swatch="3px solid red")
    rows = ((text, 1, rich), (text, None, RichText(text, is_code=True)))
    table = MarkedTable(text, (text, ColumnHead(text, hint=text), text), rows, text, ("winner",), True, True)
    blocks: tuple[Block, ...] = (
        *(Remark(text, look) for look in ("", "lead", "note", "status", "running", "warning")),
        Tiles(((text, text),)),
        Facts(((text, text), (text, rich))),
        table,
        Table("", (ColumnHead(text, text, text), text), ((text, text),)),
        plot,
        Plots((plot, plot), (rich,)),
        Picture("p", text, text, b"png"),
        Items((text, text), text, is_ordered=True),
        Command(text, text),
        Folded(text, (Remark(text), Folded(text, (table,)))),
    )
    sections = (Section(text, blocks, "first", is_head=True), Section("no", ()), Section(text, blocks, "second"))
    return Document(text, "report", text, sections, text)


def shape(page: Page) -> list[tuple[str, tuple[str, ...]]]:
    """The elements of a page with the names of their attributes."""
    return [(tag, tuple(attributes)) for tag, attributes in page.elements]


def addresses(page: Page) -> list[str]:
    """The addresses in a page."""
    named = [value for _, attributes in page.elements for value in attributes.items()]
    return [value or "" for name, value in named if name in ("src", "href", "action")]


@pytest.fixture(scope="module")
def harmless() -> Page:
    return Page(as_page(document()))


@pytest.mark.parametrize("name", OBEYED_BY_A_PAGE)
def test_whatever_text_says_a_page_has_the_same_elements_and_shows_it(name: str, harmless: Page) -> None:
    text = HOSTILE[name]
    page = as_page(document(text))
    found = Page(page)
    assert shape(found) == shape(harmless)
    assert addresses(found) == addresses(harmless)
    assert found.texts.count(visible(text)) == harmless.texts.count("text")
    for figure in re.findall(r'type="application/json" data-for="[^"]+">(.*?)</script>', page, re.DOTALL):
        assert json.loads(figure)["data"] == [{"name": text}]


def test_no_text_ends_the_script_that_holds_it_and_all_of_it_comes_back() -> None:
    text = "".join(HOSTILE.values())
    assert set("<>&\u2028").isdisjoint(in_script({text: [text]}))
    assert json.loads(in_script({text: [text]})) == {text: [text]}


def test_a_page_asks_nobody_for_anything_and_runs_its_own_scripts_alone(harmless: Page) -> None:
    page = as_page(document())
    own = {"#first", "#second", "data:image/png;base64"}
    assert {address.partition(",")[0] for address in addresses(harmless)} == own
    nonces = set(re.findall(r"nonce[=-]\"?([\w-]{20,})", page))
    assert len(nonces) == 1
    assert page.count("<script") == page.count(f'<script nonce="{nonces.pop()}"')
    assert "default-src 'none'" in page
    assert len(set(re.findall(r' id="([^"]+)"', page))) == len(re.findall(r' id="([^"]+)"', page))


def test_a_page_without_plots_and_tables_has_no_script_and_one_that_only_sorts_no_plots():
    page = as_page(Document("t", "report", "b", (Section("s", (Remark("r"),)),), "f"))
    assert "<script" not in page
    assert "script-src" not in page
    table = MarkedTable("", ("a",), ((1,),), is_sortable=True)
    page = as_page(Document("t", "report", "b", (Section("s", (table,)),), "f"))
    assert page.count("<script") == 1
    assert len(page) < 100_000


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_whatever_text_says_markdown_shows_it(text: str) -> None:
    told, plain = as_markdown(document(text)), as_markdown(document())
    told = re.sub(r"^(`{3,})\n.*?^\1$", "CODE", told, flags=re.DOTALL | re.MULTILINE)
    plain = re.sub(r"^```\n.*?^```$", "CODE", plain, flags=re.DOTALL | re.MULTILINE)
    assert unseen(told) == set()
    assert "<" not in told
    assert "[d]" not in told
    assert told.count("`") == told.count("\\`")
    assert not escape_markdown(text).startswith(("#", "- ", "+ ", "=="))
    assert told.count("\n") == plain.count("\n")
    assert re.findall(r"(?<!\\)\|", told) == re.findall(r"(?<!\\)\|", plain)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_whatever_text_says_a_terminal_and_csv_show_it(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_blocks(document(text).sections[0].blocks)
    assert unseen(capsys.readouterr().out) == set()
    table = next(block for block in document(text).blocks() if isinstance(block, Table))
    for head, number, *_ in csv.reader(io.StringIO(as_csv(table))):
        assert head.removeprefix("'") == visible(text).removeprefix("'")
        assert unicodedata.normalize("NFKC", head).lstrip(' "')[0] not in "=+-@\t\r"
        assert number in (head, "1", "")


def test_credentials_in_what_somebody_wrote_are_shown_nowhere(capsys: pytest.CaptureFixture[str]) -> None:
    made = document("s3://me:secret@host/x?access_key=secret")
    print_blocks(made.blocks())
    table = next(block for block in made.blocks() if isinstance(block, Table))
    for told in (as_page(made), as_markdown(made), as_latex(made), as_csv(table), capsys.readouterr().out):
        assert "secret" not in told
        assert "host/x" in told
    for text in ("bucket/x?access_key=secret", "s3://me:secret@host"):
        assert "secret" not in in_script({text: [{"name": text}]})


def test_numbers_in_csv_stay_numbers() -> None:
    values: list[CellValue] = [-1, -0.5, 1e-30, True, None, "-3", "+1.5e-3", "3 4", float("-inf"), "-"]
    _, row = csv.reader(io.StringIO(as_csv(Table("", ("",) * len(values), (tuple(values),)))))
    assert row == ["-1", "-0.5", "1e-30", "True", "", "-3", "+1.5e-3", "3 4", "-inf", "'-"]


def test_a_document_says_the_same_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = (Facts.of({"name": "fact", "empty": ""}), Table("t", ("head",), (("cell",),), "note"), Remark("remark"))
    made = Document("t", "report", "brand", (Section("head", (*blocks, Items(("item",))), is_head=True),), "files")
    print_blocks(made.blocks())
    words = ("name", "fact", "head", "cell", "remark", "item")
    for told in (as_page(made), as_markdown(made), capsys.readouterr().out):
        assert all(word in told for word in words)
        assert "empty" not in told


def test_columns_that_share_a_heading_are_rows_where_there_is_little_room(capsys: pytest.CaptureFixture[str]) -> None:
    assert table_as_markdown(GROUPED).splitlines() == [
        "| row | column | ours | paper |",
        "| --- | --- | ---: | ---: |",
        "| warm (simclr) | kNN, % | 62.0 (61.0 to 63.0); 2 seeds | 50 |",
        "| warm (simclr) | ESS | 0.125 |  |",
        "| cold | kNN, % | 40 |  |",
    ]
    print_blocks([GROUPED])
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if "cold" in line]
    assert lines == [["cold", "kNN,", "%", "40"]]


def test_a_page_and_csv_have_such_columns_beside_each_other() -> None:
    page = as_page(Document("t", "report", "b", (Section("s", (GROUPED,)),), "f"))
    assert page.count('<th colspan="2">kNN, %<small>here: digits</small></th>') == 1
    assert page.count("<colgroup span=") == 3
    assert list(csv.reader(io.StringIO(as_csv(GROUPED)))) == [
        ["row", "kNN, %: ours", "kNN, %: paper", "ESS: ours", "ESS: paper"],
        ["warm (simclr)", "62.0", "50", "0.125", ""],
        ["cold", "40", "", "", ""],
    ]


def test_cells_carry_what_they_are_sorted_by_and_rows_their_marks() -> None:
    rows = ((numeric("50.0%", 0.5), "a"), (None, "b" * 30), (numeric("", ""), "c " * 40))
    table = MarkedTable("", (ColumnHead("a_b", hint="long.a_b"), "name"), rows, "", ("winner",), True, True)
    page = as_page(Document("t", "report", "b", (Section("s", (table,)),), "f"))
    assert '<tr class="winner"><td class="number" data-value="0.5">50.0%</td><td class="">a</td></tr>' in page
    assert '<th class="number" title="long.a_b"><button type="button">a_<wbr>b</button></th>' in page
    assert ['class="words"' in page, 'class="reason"' in page] == [True, True]
    assert 'class="sortable"' in page
    assert page.count('data-table="table-1"') == page.count('id="table-1"') == page.count('data-count="table-1"') == 1


def test_a_head_without_blocks_stays_and_a_section_does_not() -> None:
    made = Document("t", "report", "b", (Section("head", (), is_head=True), Section("nothing", ())), "f")
    for told in (as_page(made), as_markdown(made)):
        assert "head" in told
        assert "nothing" not in told


def test_a_remark_is_whole_in_a_terminal_and_a_cell_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    print_blocks([Remark("x" * 1000), Table("", ("a",), (("y" * 1000,),))])
    told = capsys.readouterr().out
    assert (told.count("x"), told.count("y")) == (1000, 300)


def test_a_row_that_does_not_fit_its_table_is_refused() -> None:
    with pytest.raises(ValueError, match="t: 2 columns, and a row of 1 cells"):
        Table("t", ("a", "b"), (("c",),))


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


def test_an_empty_number_keeps_its_column_narrow_and_a_long_line_below_a_name_wraps():
    rows = (("name", numeric("0.5")), (RichText("name", ("(of several rows, named one by one)",)), numeric("")))
    page = as_page(Document("", "report", "", (Section("", (Table("", ("row", "ours"), rows),)),), ""))
    assert re.findall(r'<td class="([a-z ]*)"', page) == ["", "number", "words", "number"]
