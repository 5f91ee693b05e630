"""How Sphinx builds the site; ``build.py`` calls it on the pages that ``gather.py`` lays out."""

from importlib import metadata

project = "ebclab"
author = "the authors of ebclab"
release = metadata.version("ebclab")
extensions = ["myst_parser", "mathml"]
root_doc = "index"
nitpicky = True

myst_heading_anchors = 6
myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]
highlight_language = "none"
smartquotes = False

html_theme = "furo"
html_title = "ebclab"
html_static_path = ["static"]
html_css_files = ["ebclab.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_use_index = False
html_show_search_summary = False
pygments_style = "default"
pygments_dark_style = "github-dark"
