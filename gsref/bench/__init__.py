"""How accurate and how fast is it?  `python -m gsref.bench NAME`, one module a name."""
