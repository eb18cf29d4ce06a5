"""One rule, one file; `catalog.py` lists them all."""
