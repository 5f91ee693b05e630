"""Text that a terminal, a spreadsheet, Markdown or a page would obey."""

import unicodedata

HOSTILE = {
    "title": "\x1b]0;owned\x07x",
    "clear": "\x1b[2J\x1b[H",
    "C1": "\x9b2Jx",
    "back": "ok\b\bno\rerror",
    "bidi": "a\u202egnp.exe\u202c\u2066b\u2069\u200e\u200f",
    "unseen": "a\u200bb\u00adc\ufeffd\U000e0041e\u2028f",
    "image": "<img src=x onerror=alert(1)>",
    "script": "</script><script>alert(1)</script>",
    "attribute": '" onmouseover="alert(1)',
    "template": "{{ 7 * 7 }} {% raw %}",
    "comment": "<!-- \u2028 &",
    "cell": "a | b `c` [d](http://e) *f*",
    "heading": "# a\n## b",
    "formula": '=HYPERLINK("http:evil","x")',
    "at": "@SUM(1+1)*cmd|' 'C'!A0",
    "plus": "+1+cmd",
    "minus": "-1+cmd",
    "tab": "\t=1+1",
    "quoted": " '=1+1",
    "wide": "\uff1d1+1",
    "markup": "[/x][bold]:smile:",
}


def unseen(text: str) -> set[str]:
    """The characters in a text that are obeyed or not shown."""
    return {each for each in text if unicodedata.category(each) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - set("\n\t")
