"""How Sphinx builds these pages: `sphinx-build -W --keep-going docs docs/_build`. Nothing is downloaded."""

import pprgnn

project = "pprgnn"
author = "the authors of pprgnn"
version = release = pprgnn.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"pprgnn {release}"
html_copy_source = False
html_show_copyright = False

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 88
napoleon_custom_sections = [("Shapes", "notes_style")]
napoleon_use_rtype = False
