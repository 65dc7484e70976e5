"""The engines of commands that explain, preview and follow what controllers do.

They read a hub as its clients do, compute with the controllers' own engines, and return results.  They write nothing.
"""
