"""What runs, evaluations and comparisons look like: `turngym view`.

data: what their folders hold, as plain data, and a line on what cannot be read
page: the page, and what is in it; the trees of a step as it shows them; served on the loopback
text: the same in a terminal
picture: PNG and SVG, of a run and of a comparison
web/: the page itself: HTML, style and script
"""
